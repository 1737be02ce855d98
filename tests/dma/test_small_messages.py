"""The DMA blocks keep up with one small message every ten cycles, and how long each takes.

Host memory answers reads after 250 cycles and writes after 50.
"""

import cocotb
from cocotb.triggers import ClockCycles

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.gather import Gather
from stagecoach.gateware.dma.placer import Placer
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.dma.axi_slaves import LatencyReadSlave, OrderedWriteSlave
from tests.dma.test_gather import Bench as GatherBench
from tests.dma.test_placer import CONFIG as PLACER_CONFIG
from tests.dma.test_placer import Bench as PlacerBench
from tests.support.runner import run_cocotb
from tests.support.timeline import Timeline, high, passes

READ_LATENCY = 250
WRITE_LATENCY = 50
MESSAGES = 300
ENTRY_OCTETS = 32


def test_placer():
    run_cocotb(Placer(PLACER_CONFIG), __name__, test_filter="check_placer")


def test_write_engine():
    run_cocotb(
        WriteEngine(RnicConfig(), 3, whole=(1, 2)), __name__, test_filter="check_write_engine"
    )


def test_read_engine():
    run_cocotb(ReadEngine(RnicConfig(), (512, 64, 8)), __name__, test_filter="check_read_engine")


def test_gather():
    run_cocotb(Gather(RnicConfig()), __name__, test_filter="check_gather")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_placer_rate(dut):
    bench = PlacerBench(dut, seeded_random(), "always")
    time = Timeline(dut, taken=passes(dut, "placement"))
    await start_clock_and_reset(dut)
    for octets, limit in ((0, 2), (8, 3), (64, 10)):
        time.clear()
        for _ in range(MESSAGES):
            bench.put_fpdu([(0x1000, octets)], lead=16)
        await time.wait_for("taken", MESSAGES)
        each = time.interval("taken")
        print(f"placer, {octets} octets: {each:.2f} cycles")
        assert each <= limit, octets


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_placer_latency(dut):
    bench = PlacerBench(dut, seeded_random(), "always")
    time = Timeline(
        dut,
        placement=passes(dut, "placement"),
        command=high(dut.write__command__valid),
        word=high(dut.write__data__valid),
    )
    await start_clock_and_reset(dut)
    for lane, lead in ((0, 16), (3, 16), (5, 20), (0, 20)):
        time.clear()
        bench.put_fpdu([(0x1000 + lane, 8)], lead=lead)
        await time.wait_for("word", 1)
        primes = lane < lead % 8
        latency = time.latency("placement", "word")
        print(f"placer: command {time.latency('placement', 'command')}, word {latency} cycles")
        assert latency == 5 + 2 * primes
        await ClockCycles(dut.clk, 20)


class Writer:
    """Gives a client of the write engine commands and words ahead."""

    def __init__(self, dut, number):
        self._commands = StreamSource(dut, f"clients__{number}__command", MEMORY_COMMAND)
        self._words = StreamSource(dut, f"clients__{number}__data", WORD)

    def put(self, address, octets):
        self._commands.put({"address": address, "octets": octets})
        count = (address % 8 + octets + 7) // 8
        self._words.put_all({"data": n, "last": n == count - 1} for n in range(count))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_write_engine_rate(dut):
    writers = [Writer(dut, number) for number in range(3)]
    OrderedWriteSlave(dut, "any", WRITE_LATENCY)
    time = Timeline(dut, done=high(dut.clients__1__done), placed=high(dut.clients__0__done))
    await start_clock_and_reset(dut)
    for octets, limit in ((0, 4.1), (8, 5.2), (64, 12.1)):
        time.clear()
        for number in range(MESSAGES):
            if octets:
                writers[0].put(0x10000 + 1000 * number, octets)
            writers[1].put(0x800000 + ENTRY_OCTETS * number, ENTRY_OCTETS)
        await time.wait_for("done", MESSAGES)
        each = time.interval("done")
        print(f"write engine, {octets} octets and a completion: {each:.2f} cycles")
        assert each <= limit, octets


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_write_engine_latency(dut):
    writers = [Writer(dut, number) for number in range(3)]
    OrderedWriteSlave(dut, "any", WRITE_LATENCY)
    time = Timeline(
        dut,
        placement=passes(dut, "clients__0__command"),
        entry=passes(dut, "clients__1__command"),
        address=high(dut.m_axi__awvalid),
        word=high(dut.m_axi__wvalid),
        response=lambda: bool(dut.m_axi__bvalid.value and dut.m_axi__bready.value),
        placed=high(dut.clients__0__done),
        done=high(dut.clients__1__done),
    )
    await start_clock_and_reset(dut)
    for client, name, end, limit in ((0, "placement", "placed", 5), (1, "entry", "done", 3)):
        time.clear()
        writers[client].put(0x1000, ENTRY_OCTETS)
        await time.wait_for(end, 1)
        word, done = time.latency(name, "word"), time.latency("response", end)
        print(f"write engine, client {client}: word after {word}, done after {done} cycles")
        assert word <= limit and done == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_write_engine_lets_an_entry_pass_a_long_placement(dut):
    writers = [Writer(dut, number) for number in range(3)]
    OrderedWriteSlave(dut, "any", WRITE_LATENCY)
    time = Timeline(dut, entry=passes(dut, "clients__1__command"), done=high(dut.clients__1__done))
    await start_clock_and_reset(dut)
    writers[0].put(0x1000, 65528)
    await ClockCycles(dut.clk, 300)
    writers[1].put(0x800000, ENTRY_OCTETS)
    await time.wait_for("done", 1)
    waited = time.latency("entry", "done") - WRITE_LATENCY
    print(f"write engine: an entry waits {waited} cycles beside a long placement")
    assert waited <= 110


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_read_engine_rate(dut):
    names = ("clients__0__", "clients__1__")
    commands = [StreamSource(dut, f"{name}command", MEMORY_COMMAND) for name in names]
    for name in names:
        StreamSink(dut, f"{name}data", READ_WORD)
    LatencyReadSlave(dut, READ_LATENCY)
    time = Timeline(dut, word=passes(dut, "clients__0__data"))
    await start_clock_and_reset(dut)
    for octets, limit in ((8, 4.5), (64, 8.3)):
        time.clear()
        for number in range(MESSAGES):
            commands[0].put({"address": 0x10000 + 1024 * number, "octets": octets})
        beats = octets // 8
        await time.wait_for("word", MESSAGES * beats)
        each = time.interval("word") * beats
        print(f"read engine, {octets} octets: {each:.2f} cycles")
        assert each <= limit, octets


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_read_engine_latency(dut):
    command = StreamSource(dut, "clients__0__command", MEMORY_COMMAND)
    StreamSink(dut, "clients__0__data", READ_WORD)
    LatencyReadSlave(dut, READ_LATENCY)
    time = Timeline(
        dut,
        command=passes(dut, "clients__0__command"),
        address=high(dut.m_axi__arvalid),
        response=high(dut.m_axi__rvalid),
        word=high(dut.clients__0__data__valid),
    )
    await start_clock_and_reset(dut)
    command.put({"address": 0x1000, "octets": 8})
    await time.wait_for("word", 1)
    address, word = time.latency("command", "address"), time.latency("response", "word")
    print(f"read engine: address after {address}, word {word} cycles behind R")
    assert address == 5 and word == 6


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_gather_rate(dut):
    bench = GatherBench(dut, seeded_random(), "always")
    time = Timeline(dut)
    await start_clock_and_reset(dut)
    for pieces, limit in (
        ([(0x1000, 8)], 3),
        ([(0x1003, 8)], 4),
        ([(None, 8)], 3),
        ([(0x1000, 64)], 10),
        ([(0x1003, 8), (0x2005, 8)], 6),
        ([(None, 28)], 6),
    ):
        for _ in range(MESSAGES):
            bench.put(pieces)
        check = cocotb.start_soon(bench.check_all())
        start = time.now
        await check
        each = (time.now - start) / MESSAGES
        print(f"gather, {pieces}: {each:.2f} cycles")
        assert each <= limit, pieces
