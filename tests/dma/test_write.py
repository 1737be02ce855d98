"""The write engine writes exactly the octets of every command and reports each when it is done."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiSlaveWrite, AxiWriteBus

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.host_memory import MEMORY_COMMAND, WORD
from stagecoach.sim.cosim.streams import StreamSource, seeded_random, start_clock_and_reset
from tests.dma.axi_slaves import (
    BurstMonitor,
    OrderedWriteSlave,
    RuleMemory,
    random_pauses,
    words_of,
)
from tests.support.runner import parameter, run_cocotb

CLIENTS = 2
MAX_OUTSTANDING = 32


def engine():
    return WriteEngine(RnicConfig(), CLIENTS)


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_exactly_the_octets_are_written(pattern):
    run_cocotb(engine(), __name__, test_filter="check_random", parameters={"PATTERN": pattern})


def test_every_alignment_and_page_edge():
    run_cocotb(engine(), __name__, test_filter="check_every_alignment")


def test_error_is_reported_with_its_command_only():
    run_cocotb(engine(), __name__, test_filter="check_errors")


def test_done_waits_for_every_response():
    run_cocotb(engine(), __name__, test_filter="check_done_waits")


@pytest.mark.parametrize("order", ["any", "aw_first", "w_first"])
def test_slaves_that_order_address_and_data(order):
    run_cocotb(engine(), __name__, test_filter="check_order", parameters={"ORDER": order})


def test_one_word_per_cycle():
    run_cocotb(engine(), __name__, test_filter="check_throughput")


def test_clients_of_one_burst_a_command():
    engine_of_whole = WriteEngine(RnicConfig(), CLIENTS, whole=(1,))
    run_cocotb(engine_of_whole, __name__, test_filter="check_whole")


def test_wrong_clients_are_refused():
    with pytest.raises(ValueError, match="WriteEngine clients is 0"):
        WriteEngine(RnicConfig(), 0)
    with pytest.raises(ValueError, match="WriteEngine whole has 2; allowed: 0 to 1"):
        WriteEngine(RnicConfig(), 2, whole=(2,))


class Client:
    """Sends write commands with their words and records the reports."""

    def __init__(self, dut, number, rng, pattern):
        self._dut, self._rng = dut, rng
        self._name = f"clients__{number}__"
        self._commands = StreamSource(
            dut, f"{self._name}command", MEMORY_COMMAND, rng=rng, pattern=pattern
        )
        self._words = StreamSource(dut, f"{self._name}data", WORD, rng=rng, pattern=pattern)
        self.expected = {}
        self.sent = 0
        self.reports = []
        self.responses_at_report = []
        cocotb.start_soon(self._watch())

    def write(self, address, octets):
        content = self._rng.randbytes(octets)
        self.expected.update(enumerate(content, address))
        count = words_of(address, octets)
        padded = self._rng.randbytes(address % 8) + content + self._rng.randbytes(8)
        self._commands.put({"address": address, "octets": octets})
        for number in range(count):
            data = int.from_bytes(padded[8 * number :][:8].ljust(8, b"\xaa"), "little")
            self._words.put({"data": data, "last": number == count - 1})
        self.sent += 1

    async def finish(self):
        while len(self.reports) < self.sent:
            await RisingEdge(self._dut.clk)

    async def _watch(self):
        done = getattr(self._dut, f"{self._name}done")
        error = getattr(self._dut, f"{self._name}error")
        while True:
            await RisingEdge(self._dut.clk)
            if not self._dut.rst.value and done.value:
                self.reports.append(int(error.value))


def make_slave(dut, rng, pause):
    slave = AxiSlaveWrite(AxiWriteBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, RuleMemory())
    slave.log.setLevel("WARNING")
    if pause:
        for channel in (slave.aw_channel, slave.w_channel, slave.b_channel):
            channel.set_pause_generator(random_pauses(rng, pause))
    return slave


async def finish(dut, clients, memory):
    for client in clients:
        await client.finish()
    expected = {}
    for client in clients:
        expected.update(client.expected)
        assert not any(client.reports)
    assert memory == expected
    await ClockCycles(dut.clk, 50)
    assert [len(client.reports) for client in clients] == [client.sent for client in clients]


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_random(dut):
    rng = seeded_random()
    pattern = parameter("PATTERN")
    clients = [Client(dut, number, rng, pattern) for number in range(CLIENTS)]
    slave = make_slave(dut, rng, 0 if pattern == "always" else 0.3)
    BurstMonitor(dut, "aw", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    for number in range(60):
        octets = rng.choice([1, 3, 8, 32, rng.randint(1, 300), rng.randint(1, 1500)])
        page = (number << 52) + (rng.getrandbits(30) << 20)
        near = rng.choice([0, 4095, rng.getrandbits(12), 4096 - min(octets, 4096)])
        rng.choice(clients).write(page + near, octets)
    clients[0].write((99 << 52) + 0xFFD, 20000)
    await finish(dut, clients, slave.target.written)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_every_alignment(dut):
    rng = seeded_random()
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    slave = make_slave(dut, rng, 0)
    BurstMonitor(dut, "aw", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    place = 0
    for lane in range(16):
        for octets in (*range(1, 18), 255, 256, 257):
            place += 0x10000
            clients[place >> 16 & 1].write(place - 8 + lane, octets)
    await finish(dut, clients, slave.target.written)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_errors(dut):
    rng = seeded_random()
    clients = [Client(dut, number, rng, "random") for number in range(CLIENTS)]
    slave = make_slave(dut, rng, 0.2)
    await start_clock_and_reset(dut)
    expected = ([], [])
    for number in range(40):
        owner = rng.randrange(CLIENTS)
        address, octets = 0x10000 * number + rng.randrange(4096), rng.randint(1, 1200)
        clients[owner].write(address, octets)
        spoiled = rng.random() < 0.4
        if spoiled:
            slave.target.bad.add(address + rng.randrange(octets) & ~7)
        expected[owner].append(int(spoiled))
    for client in clients:
        await client.finish()
    assert (clients[0].reports, clients[1].reports) == expected


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_whole(dut):
    rng = seeded_random()
    clients = [Client(dut, number, rng, "random") for number in range(CLIENTS)]
    slave = make_slave(dut, rng, 0.2)
    BurstMonitor(dut, "aw", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    for number in range(120):
        clients[0].write(0x40000 * number + rng.randrange(4096), rng.randint(1, 900))
        block, start = 0x40000 * number + 0x20000 + 256 * rng.randrange(64), rng.randrange(256)
        clients[1].write(block + start, rng.randint(1, 256 - start))
    clients[1].write(0x7FFF_0000_0000_0000, 256)
    await finish(dut, clients, slave.target.written)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_done_waits(dut):
    rng = seeded_random()
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    OrderedWriteSlave(dut, "any", 200)
    await start_clock_and_reset(dut)
    needed = []  # responses that must be there before each report
    for number in range(8):
        address, octets = 0x10000 * number + rng.randrange(4096), rng.randint(1, 1500)
        clients[0].write(address, octets)
        bursts = (address + octets - 1) // 256 - address // 256 + 1
        needed.append(bursts + (needed[-1] if needed else 0))
    responses = 0
    while len(clients[0].reports) < clients[0].sent:
        await RisingEdge(dut.clk)
        reports = len(clients[0].reports)
        assert not reports or responses >= needed[reports - 1]
        responses += int(dut.m_axi__bvalid.value and dut.m_axi__bready.value)
    assert responses == needed[-1]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_order(dut):
    rng = seeded_random()
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    slave = OrderedWriteSlave(dut, parameter("ORDER"), 30)
    BurstMonitor(dut, "aw", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    for number in range(40):
        clients[number % 2].write(0x10000 * number + rng.randrange(4096), rng.randint(1, 900))
    await finish(dut, clients, slave.memory)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_throughput(dut):
    rng = seeded_random()
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    slave = OrderedWriteSlave(dut, "any", 100)
    monitor = BurstMonitor(dut, "aw", 32, MAX_OUTSTANDING)
    await start_clock_and_reset(dut)
    for octets, count in ((1460, 30), (65535, 1), (64, 60)):
        slave.words = slave.first = 0
        for number in range(count):
            clients[number % 2].write(0x40000 + octets * number, octets)
        for client in clients:
            await client.finish()
        cycles = slave.final - slave.first + 1
        print(f"write, {count} of {octets} octets: {slave.words} words in {cycles} cycles, ")
        print(f"{monitor.most_outstanding} bursts outstanding")
        if octets > 64:
            assert cycles <= slave.words + count
