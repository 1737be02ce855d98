"""The blocks that complete work keep up with small messages, and how long each takes."""

import cocotb
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind, Layouts
from stagecoach.gateware.queues.completer import SendCompleter
from stagecoach.gateware.queues.delivery_gate import DeliveryGate
from stagecoach.gateware.queues.invalidation_gate import InvalidationGate
from stagecoach.gateware.queues.request_gate import RequestGate
from stagecoach.gateware.queues.ring_writer import RingWriter
from stagecoach.hw.interface.queue_entries import SendOpcode
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import WriteMemory
from tests.support.runner import run_cocotb
from tests.support.timeline import Timeline, high, passes

CONFIG = RnicConfig(qps=4, cqs=4)
LAYOUTS = Layouts(CONFIG)
MESSAGES = 200


def test_delivery_gate():
    run_cocotb(DeliveryGate(CONFIG), __name__, test_filter="check_delivery_gate")


def test_request_gate():
    run_cocotb(RequestGate(CONFIG), __name__, test_filter="check_request_gate")


def test_invalidation_gate():
    run_cocotb(InvalidationGate(CONFIG), __name__, test_filter="check_invalidation_gate")


def test_completer():
    run_cocotb(SendCompleter(CONFIG), __name__, test_filter="check_completer")


def test_ring_writer():
    run_cocotb(RingWriter(CONFIG), __name__, test_filter="check_ring_writer")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_delivery_gate_rate_and_latency(dut):
    deliveries = StreamSource(dut, "delivery", LAYOUTS.delivery)
    StreamSource(dut, "qp_command")
    for name in ("completion", "read_done"):
        StreamSink(dut, name)
    for name in ("placed", "placed_error", "failed"):
        getattr(dut, name).value = 0
    dut.passed.value = dut.request_room.value = 1
    time = Timeline(
        dut,
        placed=high(dut.placed),
        completion=passes(dut, "completion"),
        read_done=passes(dut, "read_done"),
        request=high(dut.request_released__valid),
    )
    await start_clock_and_reset(dut)
    outputs = (
        (DeliveryKind.RECEIVE, "completion"),
        (DeliveryKind.READ, "read_done"),
        (DeliveryKind.REQUEST, "request"),
    )
    for placed, (kind, name) in enumerate(outputs):
        time.clear()
        for _ in range(MESSAGES):
            deliveries.put({"kind": kind.value, "qp": 1, "after": placed})
        await time.wait_for(name, MESSAGES)
        each = time.interval(name)
        await ClockCycles(dut.clk, 20)
        time.clear()
        deliveries.put({"kind": kind.value, "qp": 1, "after": placed + 1})
        await ClockCycles(dut.clk, 20)
        dut.placed.value = 1
        await ClockCycles(dut.clk, 1)
        dut.placed.value = 0
        await time.wait_for(name, 1)
        latency = time.latency("placed", name)
        print(f"delivery gate, {kind.name}: {each:.2f} cycles, {latency} after the last pulse")
        assert each <= 4 and latency == (1 if kind is DeliveryKind.RECEIVE else 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_request_gate_rate(dut):
    for name in ("i__valid", "i__qp", "accepted", "finished"):
        getattr(dut, name).value = 0
    time = Timeline(dut, i=high(dut.i__valid), o=high(dut.o__valid))
    await start_clock_and_reset(dut)
    dut.i__valid.value = 1
    await ClockCycles(dut.clk, 20)
    dut.i__valid.value = 0
    await time.wait_for("o", 20)
    print(f"request gate: {time.interval('o'):.2f} cycles, latency {time.latency('i', 'o')}")
    assert time.interval("o") <= 3 and time.latency("i", "o") <= 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_invalidation_gate_rate(dut):
    items = StreamSource(dut, "i", LAYOUTS.sent_item)
    StreamSink(dut, "o")
    for name in ("placing", "begun", "placed"):
        getattr(dut, name).value = 0
    dut.passed.value = 1
    time = Timeline(dut, i=passes(dut, "i"), o=passes(dut, "o"))
    await start_clock_and_reset(dut)
    items.put_all([{"opcode": SendOpcode.SEND}] * MESSAGES)
    await time.wait_for("o", MESSAGES)
    print(f"invalidation gate: {time.interval('o'):.2f} cycles, latency {time.latency('i', 'o')}")
    assert time.interval("o") <= 2 and time.latency("i", "o") <= 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_completer_rate(dut):
    sent = StreamSource(dut, "sent", LAYOUTS.sent_item)
    StreamSource(dut, "read_done")
    StreamSource(dut, "qp_command")
    StreamSink(dut, "completion")
    dut.failed.value = 0
    time = Timeline(
        dut,
        sent=high(dut.sent__valid),
        completion=passes(dut, "completion"),
        retired=high(dut.retired__valid),
    )
    await start_clock_and_reset(dut)
    await ClockCycles(dut.clk, CONFIG.qps + 5)
    for qps in (1, CONFIG.qps):
        for signaled in (0, 1):
            time.clear()
            for number in range(MESSAGES):
                sent.put({"qp": number % qps, "opcode": SendOpcode.SEND, "signaled": signaled})
            await time.wait_for("retired", MESSAGES)
            each = time.interval("retired")
            print(f"completer, {qps} QPs, signaled {signaled}: {each:.2f} cycles")
            assert each <= 9
            await ClockCycles(dut.clk, 20)
    time.clear()
    sent.put({"qp": 0, "opcode": SendOpcode.SEND, "signaled": 1})
    await time.wait_for("completion", 1)
    print(f"completer: latency {time.latency('sent', 'completion')}")
    assert time.latency("sent", "completion") <= 6


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_ring_writer_rate_and_latency(dut):
    sources = {name: StreamSource(dut, name, LAYOUTS.completion) for name in ("send", "receive")}
    StreamSource(dut, "event")
    StreamSource(dut, "cq_doorbell")
    rings = StreamSource(dut, "cq_command", LAYOUTS.cq_command)
    StreamSink(dut, "overflow")
    memory = WriteMemory(dut, "write", seeded_random())
    memory.latency = (50, 50)
    memory.always_ready = True
    time = Timeline(
        dut,
        send=high(dut.send__valid),
        receive=high(dut.receive__valid),
        accepted=high(dut.accepted),
        command=high(dut.write__command__valid),
        word=high(dut.write__data__valid),
    )
    await start_clock_and_reset(dut)
    for cq in (0, 1, CONFIG.cqs):
        await rings.send({"cq": cq, "enable": 1, "base": 0x100000 * cq, "log2": 15})
    for names in (("send",), ("receive",), ("send", "receive")):
        time.clear()
        for number in range(MESSAGES):
            name = names[number % len(names)]
            sources[name].put({"qp": 1, "cq": name == "receive", "index": number})
        await time.wait_for("accepted", MESSAGES)
        each = time.interval("accepted")
        await ClockCycles(dut.clk, 100)
        time.clear()
        sources[names[0]].put({"qp": 1, "cq": names[0] == "receive"})
        await time.wait_for("word", 1)
        command, word = time.latency(names[0], "command"), time.latency(names[0], "word")
        print(f"ring writer, {names}: {each:.2f} cycles, command after {command}, word {word}")
        seen_late = names[0] == "send"
        assert each <= 5 and command <= 5 + seen_late and word <= 7 + seen_late
        await ClockCycles(dut.clk, 100)
