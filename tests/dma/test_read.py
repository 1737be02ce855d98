"""The read engine delivers every client its words in order and keeps to the AXI rules."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiReadBus, AxiSlaveRead

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.dma.axi_slaves import (
    BurstMonitor,
    LatencyReadSlave,
    RuleMemory,
    host_octets,
    random_pauses,
    words_of,
)
from tests.support.runner import parameter, run_cocotb

BUFFERS = (512, 64, 8, 0)
MAX_OUTSTANDING = 128
"""Bursts, as docs/integration.md promises."""


def engine(max_burst_beats=32):
    return ReadEngine(RnicConfig(max_burst_beats=max_burst_beats), BUFFERS)


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_clients_get_their_words_in_order(pattern):
    run_cocotb(engine(), __name__, test_filter="check_random", parameters={"PATTERN": pattern})


def test_longest_axi_bursts():
    parameters = {"PATTERN": "always", "MAX_BEATS": "256"}
    run_cocotb(engine(256), __name__, test_filter="check_random", parameters=parameters)


def test_every_alignment_and_page_edge():
    run_cocotb(engine(), __name__, test_filter="check_every_alignment")


def test_client_that_takes_nothing_blocks_nobody():
    run_cocotb(engine(), __name__, test_filter="check_stuck_client")


def test_error_marks_its_word_only():
    run_cocotb(engine(), __name__, test_filter="check_errors")


def test_one_word_per_cycle_at_latency_250():
    run_cocotb(engine(), __name__, test_filter="check_throughput")


def test_long_command_does_not_delay_short_ones():
    run_cocotb(engine(), __name__, test_filter="check_fairness")


@pytest.mark.parametrize("buffers", [(), (3,), (1,), (512, -2)])
def test_impossible_buffers_are_refused(buffers):
    with pytest.raises(ValueError, match="ReadEngine buffer_beats"):
        ReadEngine(RnicConfig(), buffers)


def make_clients(dut, rng, pattern):
    clients = []
    for number in range(len(BUFFERS)):
        name = f"clients__{number}__"
        source = StreamSource(dut, f"{name}command", MEMORY_COMMAND, rng=rng, pattern=pattern)
        takes = pattern if BUFFERS[number] else "always"
        sink = StreamSink(dut, f"{name}data", READ_WORD, rng=rng, pattern=takes)
        StreamMonitor(dut, f"{name}data", keep=False)
        clients.append((source, sink))
    return clients


def make_slave(dut, rng, pause):
    slave = AxiSlaveRead(AxiReadBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, RuleMemory())
    slave.log.setLevel("WARNING")
    if pause:
        slave.ar_channel.set_pause_generator(random_pauses(rng, pause))
        slave.r_channel.set_pause_generator(random_pauses(rng, pause))
    return slave


async def expect(sink, address, octets, bad=()):
    """Take the words of one command and compare the octets that it asked for."""
    got = bytearray()
    count = words_of(address, octets)
    for number in range(count):
        word = await sink.get()
        assert word["last"] == (number == count - 1), (hex(address), octets, number)
        assert word["error"] == ((address & ~7) + 8 * number in bad)
        got += word["data"].to_bytes(8, "little")
    got = got[address % 8 :][:octets]
    if not bad:
        assert got == host_octets(address, octets), (hex(address), octets)


def random_command(rng):
    octets = rng.choice([1, 2, 7, 8, 9, 64, rng.randint(1, 300), rng.randint(1, 1500)])
    page = rng.getrandbits(51) << 12
    near = rng.choice([0, 4095, rng.getrandbits(12), 4096 - min(octets, 4096)])
    return {"address": page + near, "octets": octets}


async def run_client(client, commands, bad=()):
    source, sink = client
    source.put_all(commands)
    for command in commands:
        await expect(sink, **command, bad=bad)


async def run_all(clients, commands, bad=()):
    tasks = [
        cocotb.start_soon(run_client(client, mine, bad))
        for client, mine in zip(clients, commands, strict=True)
    ]
    for task in tasks:
        await task


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random(dut):
    rng = seeded_random()
    pattern = parameter("PATTERN")
    clients = make_clients(dut, rng, pattern)
    make_slave(dut, rng, 0 if pattern == "always" else 0.3)
    BurstMonitor(dut, "ar", int(parameter("MAX_BEATS", "32")), MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    commands = [[random_command(rng) for _ in range(count)] for count in (30, 30, 15, 30)]
    commands[0][7] = {"address": rng.getrandbits(60), "octets": 65535}
    await run_all(clients, commands)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_alignment(dut):
    rng = seeded_random()
    clients = make_clients(dut, rng, "always")
    make_slave(dut, rng, 0)
    BurstMonitor(dut, "ar", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    short = [
        {"address": 0x7000 - 8 + lane, "octets": octets}
        for lane in range(16)
        for octets in (*range(1, 18), 255, 256, 257)
    ]
    await run_all(clients, [short, [], short[::7], short[::5]])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_stuck_client(dut):
    rng = seeded_random()
    clients = make_clients(dut, rng, "always")
    make_slave(dut, rng, 0)
    await start_clock_and_reset(dut)
    clients[1][1].paused = True
    clients[2][1].paused = True
    for stuck in (1, 2):
        clients[stuck][0].put_all([{"address": 0x123456, "octets": 20000}] * 3)
    await run_client(clients[0], [random_command(rng) for _ in range(20)])
    clients[1][1].paused = False
    for _ in range(3):
        await expect(clients[1][1], 0x123456, 20000)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_errors(dut):
    rng = seeded_random()
    clients = make_clients(dut, rng, "random")
    slave = make_slave(dut, rng, 0.2)
    await start_clock_and_reset(dut)
    commands = [{"address": 0x10000 + 200 * number, "octets": 190} for number in range(20)]
    slave.target.bad = {0x10000 + 8 * rng.randrange(500) for _ in range(60)}
    await run_all(clients, [commands, commands[:9], commands[5:8], commands[3:]], slave.target.bad)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_throughput(dut):
    rng = seeded_random()
    clients = make_clients(dut, rng, "always")
    slave = LatencyReadSlave(dut, 250)
    monitor = BurstMonitor(dut, "ar", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    for client, octets in [
        *((clients[0], octets) for octets in (65528, 1456, 256)),
        (clients[BUFFERS.index(0)], 256),
    ]:
        slave.words = slave.first = 0
        count = 65528 // octets
        commands = [
            {"address": 0x4000 + octets * number, "octets": octets} for number in range(count)
        ]
        await run_client(client, commands)
        cycles = slave.final - slave.first + 1
        print(f"read, latency 250, {octets} octets: {slave.words} words in {cycles} cycles, ")
        print(f"{monitor.most_outstanding} bursts outstanding, {slave.stalls} stalls")
        assert cycles <= slave.words * 1.02
        assert slave.stalls == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_fairness(dut):
    rng = seeded_random()
    clients = make_clients(dut, rng, "always")
    make_slave(dut, rng, 0)
    await start_clock_and_reset(dut)
    clients[0][0].put({"address": 0, "octets": 65535})
    await ClockCycles(dut.clk, 20)
    for _ in range(5):
        cocotb.start_soon(run_client(clients[1], [{"address": 0x9010, "octets": 64}]))
    while clients[1][0].sent < 5 or clients[1][0].pending:
        await ClockCycles(dut.clk, 1)
    taken = len(clients[0][1])
    print(f"five short commands were taken while the long one delivered {taken} words")
    assert taken < 1500
    await expect(clients[0][1], 0, 65535)
