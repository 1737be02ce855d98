"""A delivery leaves when its placements are visible, in order, and not before."""

from itertools import product

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind, Layouts, QpCommandKind
from stagecoach.gateware.queues.completer import read_done_layout
from stagecoach.gateware.queues.delivery_gate import DEPTH, DeliveryGate
from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode
from stagecoach.sim.cosim.signals import cycles, every_cycle, reader
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import Pulses
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4, cqs=4)
LAYOUTS = Layouts(CONFIG)


@pytest.mark.requirement("RDMAP-5.5-06", "RDMAP-5.5-13", "RDMAP-5.5-16", "DDP-4.1-06", "DDP-5.4-01")
@pytest.mark.requirement("DDP-5.4-03", "RPCRDMA-2-02", "RDMAP-5.5-08", "RDMAP-5.5-14")
@pytest.mark.requirement("EXT-5.4-02", "EXT-5.4-04", "EXT-5.4-06", "EXT7306-5.4-03")
@pytest.mark.parametrize(
    "pattern, count_bits",
    [("always", COUNT_BITS), ("random", 4), ("random", COUNT_BITS), ("slow", 4)],
)
def test_gate(pattern, count_bits):
    parameters = {"PATTERN": pattern, "COUNT_BITS": str(count_bits)}
    run_cocotb(DeliveryGate(CONFIG, count_bits), __name__, parameters=parameters)


class Bench:
    def __init__(self, dut, rng):
        pattern = parameter("PATTERN")
        self.dut = dut
        self.most = (1 << int(parameter("COUNT_BITS"))) - 1  # placements under way
        self.deliveries = StreamSource(dut, "delivery", LAYOUTS.delivery, rng=rng, pattern=pattern)
        self.completions = StreamSink(
            dut, "completion", LAYOUTS.completion, rng=rng, pattern=pattern
        )
        self.read_done = StreamSink(
            dut, "read_done", read_done_layout(CONFIG), rng=rng, pattern=pattern
        )
        self.requests: list[int] = []  # QPs of the pulses of `request_released`
        names = ("request_released__valid", "completion__valid")
        self._released, self._completes = (reader(getattr(dut, name)) for name in names)
        every_cycle(dut, self._watch_requests)
        StreamMonitor(dut, "completion")
        StreamMonitor(dut, "read_done")
        self.commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        dut.placed.value = 0
        dut.placed_error.value = 0
        dut.failed.value = 0
        dut.passed.value = 1
        dut.request_room.value = 1

    def _watch_requests(self, in_reset):
        if not in_reset and self._released():
            assert not self._completes(), "released beside a completion"
            self.requests.append(int(self.dut.request_released__qp.value))

    async def place(self, count=1):
        self.dut.placed.value = 1
        await cycles(self.dut, count)
        self.dut.placed.value = 0


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_deliveries_wait_for_their_placements(dut):
    rng = seeded_random(parameter("COUNT_BITS"))
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    # Past 2^16: the counts wrap in the middle of the test.
    await bench.place(65536 - 150)
    placed = after = 65536 - 150
    expected = []
    seen = dict.fromkeys(DeliveryKind, 0)

    def look():
        for kind, sink in (
            (DeliveryKind.RECEIVE, bench.completions),
            (DeliveryKind.READ, bench.read_done),
        ):
            of_kind = [item for item in expected if item["kind"] == kind.value]
            for item in sink.take_all():
                want = of_kind[seen[kind]]
                seen[kind] += 1
                assert placed >= want["total"], "left before its placements were visible"
                assert (item["qp"], item["length"]) == (want["qp"], want["length"])
                if kind is DeliveryKind.RECEIVE:
                    assert item["opcode"] == CompletionOpcode.RECEIVE
                    assert all(item[name] == want[name] for name in ("index", "flags", "detail"))
        of_kind = [item for item in expected if item["kind"] == DeliveryKind.REQUEST.value]
        for qp in bench.requests:
            want = of_kind[seen[DeliveryKind.REQUEST]]
            seen[DeliveryKind.REQUEST] += 1
            assert placed >= want["total"], "released before its placements were visible"
            assert qp == want["qp"]
        bench.requests.clear()

    for _ in range(300):
        after += rng.choice([0, 0, 1, 1, 2, 5])
        item = {
            "kind": rng.choice(list(DeliveryKind)).value,
            "qp": rng.randrange(4),
            "index": rng.getrandbits(16),
            "length": rng.getrandbits(32),
            "flags": rng.getrandbits(8),
            "detail": rng.getrandbits(64),
        }
        expected.append(item | {"total": after})
        while after - placed > bench.most:
            placed += 1
            await bench.place()
        # Nothing after a delivery begins before it was taken.
        await bench.deliveries.send(item | {"after": after % 65536})
        look()
        while after - placed > rng.randint(0, 12):
            placed += 1
            await bench.place()
            await cycles(dut, rng.choice([0, 0, 3, 10]))
            look()
    await bench.place(after - placed)
    placed = after
    await cycles(dut, 3000)
    look()
    assert sum(seen.values()) == len(expected)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_completion_goes_to_the_receive_cq_of_its_qp(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for _ in range(5):
        cqs = [rng.randrange(CONFIG.cqs) for _ in range(CONFIG.qps)]
        for qp, cq in enumerate(cqs):
            for kind in QpCommandKind:
                named = cq if kind is QpCommandKind.CREATE else CONFIG.cqs - 1 - cq
                command = {"kind": kind.value, "qp": qp, "receive_cq": named, "send_cq": cq ^ 1}
                await bench.commands.send(command)
        qps = [rng.randrange(CONFIG.qps) for _ in range(10)]
        bench.deliveries.put_all([{"qp": qp} for qp in qps])
        got = await bench.completions.get_many(len(qps))
        assert [(item["qp"], item["cq"]) for item in got] == [(qp, cqs[qp]) for qp in qps]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_delivery_whose_last_placement_failed_is_dropped(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    dropped = Pulses(dut, dut.dropped_receive)
    await start_clock_and_reset(dut)
    for number, (missing, before) in enumerate(product((1, 2, 3), (0, 1, 2, 3, 40))):
        after = 4 * (number + 1)
        dut.failed.value = 0
        await bench.place(4 - missing)
        bench.deliveries.put({"qp": 1, "after": after})
        await cycles(dut, before)
        await bench.place(missing - 1)
        dut.placed_error.value = 1
        await bench.place()
        dut.placed_error.value = 0
        await cycles(dut, 1)
        dut.failed.value = 1 << 1
        await cycles(dut, 100)
        assert (dropped.count, len(bench.completions)) == (number + 1, 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_delivery_leaves_so_long_after_the_last_pulse(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    outputs = (
        (DeliveryKind.RECEIVE, dut.completion__valid, 1, 1),
        (DeliveryKind.RECEIVE, dut.completion__valid, 2, 2),
        (DeliveryKind.READ, dut.read_done__valid, 1, 2),
        (DeliveryKind.REQUEST, dut.request_released__valid, 1, 2),
    )
    for number, (kind, output, at_once, latency) in enumerate(outputs):
        await bench.deliveries.send({"kind": kind.value, "after": 3 * (number + 1)})
        await cycles(dut, 20)
        await bench.place(3 - at_once)
        await cycles(dut, 20)
        assert not output.value
        await bench.place(at_once)
        waited = 0
        while not output.value:
            await RisingEdge(dut.clk)
            waited += 1
        assert waited == latency, kind


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_64_deliveries_wait_without_back_pressure(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    bench.deliveries.put_all([{"after": 1, "length": i} for i in range(64)])
    await cycles(dut, 1200)
    assert bench.deliveries.pending == 0
    await bench.place()
    got = await bench.completions.get_many(64)
    assert [item["length"] for item in got] == list(range(64))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_deliveries_of_a_failed_qp_are_dropped_and_counted(dut):
    bench = Bench(dut, seeded_random())
    receives = Pulses(dut, dut.dropped_receive)
    reads = Pulses(dut, dut.dropped_read)
    requests = Pulses(dut, dut.dropped_request)
    await start_clock_and_reset(dut)
    dut.failed.value = 1 << 1
    kinds = [*DeliveryKind, DeliveryKind.RECEIVE, DeliveryKind.REQUEST]
    for qp in (1, 2):
        bench.deliveries.put_all([{"qp": qp, "kind": kind.value} for kind in kinds])
    got = await bench.completions.get_many(2) + [await bench.read_done.get()]
    await cycles(dut, 100)
    assert [item["qp"] for item in got] == [2, 2, 2]
    assert bench.requests == [2, 2]
    assert (receives.count, reads.count, requests.count) == (2, 1, 2)
    assert not len(bench.completions) and not len(bench.read_done)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_invalidating_send_waits_for_what_reads_or_changes_memory(dut):
    bench = Bench(dut, seeded_random())
    marks = Pulses(dut, dut.mark)
    await start_clock_and_reset(dut)
    flags = int(CompletionFlags.INVALIDATED)
    for number in range(1, 6):
        send = {"kind": DeliveryKind.RECEIVE.value, "qp": 1, "flags": flags, "length": 1}
        send |= {"after": number}
        bench.deliveries.put_all([send, send | {"flags": 0, "length": 2}])
        while not dut.mark.value:
            await cycles(dut, 1)
        dut.passed.value = 0
        await cycles(dut, 100)
        await bench.place()
        await cycles(dut, 100)
        assert not len(bench.completions) and marks.count == number
        dut.passed.value = 1
        got = await bench.completions.get_many(2)
        assert [item["length"] for item in got] == [1, 2]
    assert marks.count == 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_no_other_delivery_waits_for_what_reads_or_changes_memory(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    dut.passed.value = 0
    rest = 0xFF & ~int(CompletionFlags.INVALIDATED)
    for kind, qp, flags in (
        (DeliveryKind.RECEIVE, 1, rest),
        (DeliveryKind.READ, 2, 0),
        (DeliveryKind.REQUEST, 3, 0),
        (DeliveryKind.RECEIVE, 2, rest),
    ):
        bench.deliveries.put({"kind": kind.value, "qp": qp, "flags": flags})
    await cycles(dut, 300)
    assert [item["qp"] for item in bench.completions.take_all()] == [1, 2]
    assert [item["qp"] for item in bench.read_done.take_all()] == [2]
    assert bench.requests == [3]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_invalidating_send_of_a_failed_qp_is_dropped_when_its_time_has_come(dut):
    bench = Bench(dut, seeded_random())
    receives = Pulses(dut, dut.dropped_receive)
    await start_clock_and_reset(dut)
    dut.passed.value = 0
    dut.failed.value = 1 << 1
    flags = int(CompletionFlags.INVALIDATED)
    send = {"kind": DeliveryKind.RECEIVE.value, "qp": 1, "flags": flags}
    bench.deliveries.put_all([send, send | {"qp": 2}])
    await cycles(dut, 100)
    assert receives.count == 0 and not len(bench.completions)
    dut.passed.value = 1
    assert (await bench.completions.get())["qp"] == 2
    assert receives.count == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_request_waits_for_room_and_the_completion_before_it_does_not(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    dut.request_room.value = 0
    for kind in (DeliveryKind.RECEIVE, DeliveryKind.REQUEST, DeliveryKind.RECEIVE):
        bench.deliveries.put({"kind": kind.value, "qp": kind.value})
    await cycles(dut, 200)
    assert len(bench.completions) == 1 and not bench.requests
    dut.request_room.value = 1
    await cycles(dut, 200)
    assert len(bench.completions) == 2
    assert bench.requests == [DeliveryKind.REQUEST.value]


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def check_deliveries_leave_after_the_head_was_held_while_others_were_placed(dut):
    """More placements than any count holds, up to 16 bits: of QPs that have no delivery here."""
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    after = 0
    for turns in (bench.most // 2 + 2, bench.most + 2, (1 << 15) + 2, (1 << 16) + 2):
        dut.passed.value = 0
        flags = int(CompletionFlags.INVALIDATED)
        bench.deliveries.put({"qp": 1, "flags": flags, "after": after % 65536})
        # After it, each waits for as many placements as may be under way.
        for number in range(1, DEPTH):
            after += bench.most
            item = {"qp": 2, "length": number, "after": after % 65536}
            await bench.deliveries.send(item | {"kind": DeliveryKind(number % 3).value})
            await bench.place(bench.most)
        await bench.place(turns)
        after += turns
        assert not len(bench.completions) and not len(bench.read_done) and not bench.requests
        # One that came afterwards, and has to wait.
        await bench.deliveries.send({"qp": 3, "after": (after + 1) % 65536})
        await cycles(dut, 20)
        dut.passed.value = 1
        await cycles(dut, 64 * DEPTH)
        receives = [n for n in range(1, DEPTH) if DeliveryKind(n % 3) is DeliveryKind.RECEIVE]
        got = bench.completions.take_all()
        assert [item["length"] for item in got] == [0, *receives]
        reads = [n for n in range(1, DEPTH) if DeliveryKind(n % 3) is DeliveryKind.READ]
        assert [item["length"] for item in bench.read_done.take_all()] == reads
        assert len(bench.requests) == DEPTH - 1 - len(receives) - len(reads)
        bench.requests.clear()
        await bench.place()
        after += 1
        assert (await bench.completions.get())["qp"] == 3
