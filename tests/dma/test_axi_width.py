"""Through a port of 32 or 128 bits the same octets are read and written as through one of 64."""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, Combine, ReadOnly, RisingEdge
from cocotbext.axi import (
    AxiBus,
    AxiMaster,
    AxiRam,
    AxiReadBus,
    AxiSlaveRead,
    AxiSlaveWrite,
    AxiWriteBus,
)

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.axi_width import AxiReadWidth, AxiWriteWidth
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, ReadClient, WriteClient
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.dma.axi_slaves import (
    BurstMonitor,
    HeldMonitor,
    LatencyReadSlave,
    OrderedWriteSlave,
    RuleMemory,
    host_octets,
    random_pauses,
    words_of,
)
from tests.dma.test_read import MAX_OUTSTANDING, random_command
from tests.dma.test_write import Client, finish
from tests.support.runner import run_cocotb

pytestmark = pytest.mark.slow

WIDTHS = (32, 128)
CLIENTS = 2
BURST_WORDS = 32


class Converters(wiring.Component):
    """The two converters between two ports."""

    def __init__(self, width):
        self._width = width
        super().__init__({"words": In(AxiSignature()), "m_axi": Out(AxiSignature(width))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.read = read = AxiReadWidth(self._width)
        m.submodules.write = write = AxiWriteWidth(self._width)
        connect_axi(m, self.m_axi, read.m_axi, write.m_axi)
        connect_axi(m, self.words, read.words, write.words)
        return m


class Engines(wiring.Component):
    """A read engine and a write engine on a port of any width."""

    def __init__(self, width):
        self._width = width
        super().__init__(
            {
                "readers": In(ReadClient()).array(CLIENTS),
                "clients": In(WriteClient()).array(CLIENTS),
                "m_axi": Out(AxiSignature(width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = RnicConfig(max_burst_beats=BURST_WORDS)
        m.submodules.reader = reader = ReadEngine(config, (512, 0))
        m.submodules.writer = writer = WriteEngine(config, CLIENTS)
        m.submodules.read = read = AxiReadWidth(self._width)
        m.submodules.write = write = AxiWriteWidth(self._width)
        wiring.connect(m, reader.m_axi, read.words)
        wiring.connect(m, writer.m_axi, write.words)
        connect_axi(m, self.m_axi, read.m_axi, write.m_axi)
        for number in range(CLIENTS):
            wiring.connect(m, wiring.flipped(self.readers[number]), reader.clients[number])
            wiring.connect(m, wiring.flipped(self.clients[number]), writer.clients[number])
        return m


@pytest.mark.parametrize("width", WIDTHS)
def test_engines_on_a_port_of_another_width(width):
    run_cocotb(Engines(width), __name__, test_filter="check_engines")


@pytest.mark.parametrize("width", WIDTHS)
def test_back_pressure_on_both_sides(width):
    run_cocotb(Converters(width), __name__, test_filter="check_alone")


def test_ready_of_a_beat_waits_for_nothing():
    run_cocotb(Converters(128), __name__, test_filter="check_ready_before_beats")


@pytest.mark.parametrize("block", [AxiReadWidth, AxiWriteWidth])
@pytest.mark.parametrize("width", [16, 64, 256])
def test_other_widths_are_refused(block, width):
    with pytest.raises(ValueError, match=f"{block.__name__} data_width is {width}; allowed: 32, 1"):
        block(width)


def port_octets(dut):
    return len(dut.m_axi__wdata) // 8


class BeatMemory(RuleMemory):
    """`bad` are octets that fail, with all of their beat."""

    async def read(self, address, length):
        if self.bad.intersection(range(address, address + length)):
            raise ValueError(f"{address:#x} fails")
        return host_octets(address, length)

    async def write(self, address, data):
        if self.bad.intersection(range(address, address + len(data))):
            raise ValueError(f"{address:#x} fails")
        await super().write(address, data)


class Readers:
    """Clients of the read engine, all of whose words are looked at."""

    def __init__(self, dut, rng, pattern):
        self._beat = port_octets(dut)
        self._clients = [
            (
                StreamSource(
                    dut, f"readers__{number}__command", MEMORY_COMMAND, rng=rng, pattern=pattern
                ),
                StreamSink(
                    dut,
                    f"readers__{number}__data",
                    READ_WORD,
                    rng=rng,
                    pattern="always" if number else pattern,  # that one has no buffer
                ),
            )
            for number in range(CLIENTS)
        ]
        self.errors = 0

    async def run(self, commands, bad=()):
        """Each client reads its own commands."""
        tasks = [
            cocotb.start_soon(self._run(source, sink, mine, bad))
            for (source, sink), mine in zip(self._clients, commands, strict=True)
        ]
        for task in tasks:
            await task

    async def _run(self, source, sink, commands, bad):
        source.put_all(commands)
        for command in commands:
            await self._expect(sink, command["address"], command["octets"], bad)

    async def _expect(self, sink, address, octets, bad):
        count = words_of(address, octets)
        words = await sink.get_many(count)
        assert [word["last"] for word in words] == [0] * (count - 1) + [1]
        for place, word in zip(range(address & ~7, address + octets, 8), words, strict=True):
            # All beats that the word is in, or that are in the word.
            begin = place & -max(8, self._beat)
            failed = any(begin <= octet < begin + max(8, self._beat) for octet in bad)
            assert word["error"] == failed, hex(place)
            self.errors += failed
            if not failed:
                assert word["data"] == int.from_bytes(host_octets(place, 8), "little"), hex(place)


def make_slaves(dut, rng, pause):
    """A foreign memory on top of BeatMemory."""
    memory = BeatMemory()
    read = AxiSlaveRead(AxiReadBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, memory)
    write = AxiSlaveWrite(AxiWriteBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, memory)
    channels = (read.ar_channel, read.r_channel)
    for channel in (*channels, write.aw_channel, write.w_channel, write.b_channel):
        if pause:
            channel.set_pause_generator(random_pauses(rng, pause))
    read.log.setLevel("ERROR")
    write.log.setLevel("ERROR")
    return memory


def watch(dut):
    beats = BURST_WORDS * 8 // port_octets(dut)
    BurstMonitor(dut, "ar", beats, MAX_OUTSTANDING)
    BurstMonitor(dut, "aw", beats, 32)
    for channel in ("ar", "aw", "w"):
        HeldMonitor(dut, channel)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_engines_with_random_commands(dut):
    rng = seeded_random(port_octets(dut))
    readers = Readers(dut, rng, "random")
    clients = [Client(dut, number, rng, "bursty") for number in range(CLIENTS)]
    memory = make_slaves(dut, rng, 0.3)
    watch(dut)
    await start_clock_and_reset(dut)
    for number in range(40):
        command = random_command(rng)
        place = (number << 52) + command["address"] % (1 << 50)
        rng.choice(clients).write(place, command["octets"])
    await readers.run([[random_command(rng) for _ in range(30)] for _ in range(CLIENTS)])
    await finish(dut, clients, memory.written)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_engines_with_every_alignment(dut):
    """And every number of words up to five, at the end of a page; longest bursts besides."""
    rng = seeded_random(port_octets(dut))
    readers = Readers(dut, rng, "always")
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    memory = make_slaves(dut, rng, 0)
    watch(dut)
    await start_clock_and_reset(dut)
    commands = []
    for lane in range(16):
        for octets in (*range(1, 20), 31, 32, 33, 8 * BURST_WORDS, 8 * BURST_WORDS + 9):
            place = 0x10000 * (1 + len(commands)) - 16 + lane
            commands.append({"address": place, "octets": octets})
            clients[len(commands) % CLIENTS].write(place, octets)
    await readers.run([commands, commands[::3]])
    await finish(dut, clients, memory.written)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_engines_see_the_error_of_either_half(dut):
    rng = seeded_random(port_octets(dut))
    readers = Readers(dut, rng, "random")
    clients = [Client(dut, number, rng, "random") for number in range(CLIENTS)]
    memory = make_slaves(dut, rng, 0.2)
    await start_clock_and_reset(dut)
    commands = [{"address": 0x10000 + 200 * number, "octets": 190} for number in range(20)]
    memory.bad = {0x10000 + rng.randrange(4000) for _ in range(60)}
    await readers.run([commands, commands[5:]], memory.bad)
    assert readers.errors > 60
    expected = [[] for _ in clients]
    for number in range(1, 30):
        owner = rng.randrange(CLIENTS)
        address, octets = 0x10000 * number + rng.randrange(5000, 9000), rng.randint(1, 600)
        clients[owner].write(address, octets)
        spoiled = rng.random() < 0.4
        if spoiled:
            memory.bad.add(address + rng.randrange(octets))
        expected[owner].append(int(spoiled))
    for client in clients:
        await client.finish()
    assert [client.reports for client in clients] == expected


async def check_order(dut, order):
    rng = seeded_random(port_octets(dut), order)
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    slave = OrderedWriteSlave(dut, order, 30)
    watch(dut)
    await start_clock_and_reset(dut)
    for number in range(40):
        octets = rng.choice((rng.randint(1, 16), rng.randint(1, 900)))
        clients[number % 2].write(0x10000 * number + rng.randrange(4096), octets)
    await finish(dut, clients, slave.memory)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_engines_write_whatever_is_taken_at_once(dut):
    await check_order(dut, "any")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_engines_write_if_words_are_taken_behind_their_address(dut):
    await check_order(dut, "aw_first")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_engines_write_if_words_are_taken_before_their_address(dut):
    await check_order(dut, "w_first")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_engines_lose_no_cycle(dut):
    """A word per cycle, at 32 bits every two, at a latency of 250."""
    rng = seeded_random(port_octets(dut))
    readers = Readers(dut, rng, "always")
    clients = [Client(dut, number, rng, "always") for number in range(CLIENTS)]
    reads = LatencyReadSlave(dut, 250)
    writes = OrderedWriteSlave(dut, "any", 100)
    await start_clock_and_reset(dut)
    word_cycles = max(1, 8 // port_octets(dut))
    commands = [{"address": 0x4000 + 1456 * number, "octets": 1456} for number in range(10)]
    for command in commands:
        clients[0].write(**command)
    await readers.run([commands, []])
    await clients[0].finish()
    for name, slave in (("read", reads), ("write", writes)):
        cycles = slave.final - slave.first + 1
        print(f"{name} {8 * port_octets(dut)}: 1820 words in {cycles} cycles")
        assert 1820 * word_cycles - 2 <= cycles <= 1820 * word_cycles * 1.02


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_alone(dut):
    """Foreign models at both sides; several bursts at a time, all of whole words."""
    rng = seeded_random(port_octets(dut))
    octets = 1 << 14
    limits = {"max_burst_len": 128}
    master = AxiMaster(AxiBus.from_prefix(dut, "words_"), dut.clk, dut.rst, **limits)
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, size=octets)
    for model in (master, ram):
        model.write_if.log.setLevel("WARNING")
        model.read_if.log.setLevel("WARNING")
        channels = (model.read_if.ar_channel, model.read_if.r_channel, model.write_if.aw_channel)
        for channel in (*channels, model.write_if.w_channel, model.write_if.b_channel):
            channel.set_pause_generator(random_pauses(rng, 0.4))
    for channel in ("ar", "aw", "w"):
        HeldMonitor(dut, channel)
    await start_clock_and_reset(dut)
    image = bytearray(rng.randbytes(octets))
    ram.write(0, image)

    def draw():
        words = rng.choice((1, 2, 3, rng.randint(1, 128)))
        return 8 * rng.randint(0, octets // 8 - words), 8 * words

    for _ in range(4):
        places = [draw() for _ in range(12)]
        reads = [cocotb.start_soon(master.read(*place)) for place in places]
        for (address, count), task in zip(places, reads, strict=True):
            assert (await task).data == image[address : address + count], hex(address)
        writes = []
        for address, count in [draw() for _ in range(12)]:
            image[address : address + count] = content = rng.randbytes(count)
            writes.append(cocotb.start_soon(master.write(address, content, awid=0)))
        await Combine(*writes)
    await ClockCycles(dut.clk, 10)
    assert ram.read(0, octets) == image


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_ready_before_beats(dut):
    """RREADY of a wide port looks neither at RVALID nor at RLAST: here that is never driven."""
    for name in ("words__arvalid", "words__awvalid", "words__wvalid", "m_axi__rvalid"):
        getattr(dut, name).value = 0
    dut.m_axi__rlast.value = 0
    dut.m_axi__arready.value = dut.words__rready.value = 1
    await start_clock_and_reset(dut)
    # Three words from the upper half of a beat on: two beats, of which the second has two words.
    dut.words__araddr.value, dut.words__arlen.value, dut.words__arvalid.value = 8, 2, 1
    await RisingEdge(dut.clk)
    dut.words__arvalid.value = 0
    for beat, words in enumerate([[1], [2, 3]]):
        await ClockCycles(dut.clk, 5)
        dut.m_axi__rdata.value = sum(2 * beat + half << 64 * half for half in range(2))
        if len(words) == 1:
            await ReadOnly()
            assert dut.m_axi__rready.value, "RREADY waits for RVALID"
            await RisingEdge(dut.clk)
        dut.m_axi__rvalid.value = 1
        for word in words:
            await ReadOnly()
            assert dut.words__rvalid.value and dut.words__rdata.value == word
            assert dut.words__rlast.value == (word == 3)
            assert dut.m_axi__rready.value == (word == words[-1])
            await RisingEdge(dut.clk)
        dut.m_axi__rvalid.value = 0
