"""The placer moves exactly the placement's octets and releases the store only after reading."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.placer import Placer
from stagecoach.gateware.host_memory import MEMORY_COMMAND, WORD
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.ports import StorePort
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.dma.axi_slaves import words_of
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(fpdu_store_octets=131072)
PLACEMENT, STORED = Layouts(CONFIG).placement, Layouts(CONFIG).stored
STORE_WORDS = CONFIG.fpdu_store_octets // 8
STORE_NUMBERS = 1 << CONFIG.store_number_bits


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_placements_are_written(pattern):
    run_cocotb(
        Placer(CONFIG), __name__, test_filter="check_random", parameters={"PATTERN": pattern}
    )


@pytest.mark.requirement("EXT-5.1.1-02")
def test_every_pair_of_lanes():
    run_cocotb(Placer(CONFIG), __name__, test_filter="check_lanes")


def test_one_word_per_cycle():
    run_cocotb(Placer(CONFIG), __name__, test_filter="check_throughput")


class Store:
    """The FPDU store. Words that were released are overwritten in the same cycle."""

    def __init__(self, dut, rng):
        self._dut, self._rng = dut, rng
        self.words = [rng.getrandbits(64) for _ in range(STORE_WORDS)]
        self.content = b"".join(word.to_bytes(8, "little") for word in self.words)
        self.releases = []
        self.freed = 0
        dut.store__data.value = 0
        cocotb.start_soon(self._run())

    def octets(self, place, octets, turned=False):
        content = self.content
        if turned:
            content = b"".join(content[n : n + 8][::-1] for n in range(0, len(content), 8))
        return (content + content)[place : place + octets]

    async def _run(self):
        dut = self._dut
        pipeline = [0] * StorePort.LATENCY
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            if dut.store__release.value:
                released = unpack(STORED, dut.store__released.value)
                self.releases.append(released)
                while self.freed != released["end"]:
                    self.words[self.freed] = self._rng.getrandbits(64)
                    self.freed = (self.freed + 1) % STORE_WORDS
            pipeline.append(self.words[int(dut.store__address.value)])
            del pipeline[0]
            dut.store__data.value = pipeline[0]


class Bench:
    def __init__(self, dut, rng, pattern):
        self.rng = rng
        self.store = Store(dut, rng)
        self.placements = StreamSource(dut, "placement", PLACEMENT, rng=rng, pattern=pattern)
        self.commands = StreamSink(dut, "write__command", MEMORY_COMMAND, rng=rng, pattern=pattern)
        self.words = StreamSink(dut, "write__data", WORD, rng=rng, pattern=pattern)
        StreamMonitor(dut, "write__command", keep=False)
        self.monitor = StreamMonitor(dut, "write__data", keep=False)
        self.expected = []
        self.releases = []
        self.place = 0  # next free octet of the store

    def put_fpdu(self, cuts, lead=2, trail=6, turned=False):
        """Store an FPDU whose payload goes out in placements of (address, octets).

        With `turned` the octets of every store word are turned round.
        """
        start = self.place
        octet = start + lead
        end = -(-(octet + sum(octets for _, octets in cuts) + trail) // 8) * 8
        self.place = end
        number = len(self.releases) % STORE_NUMBERS
        stored = {"end": end // 8 % STORE_WORDS, "number": number}
        for number, (address, octets) in enumerate(cuts):
            last = number == len(cuts) - 1
            self.placements.put(
                {
                    "address": address,
                    "octets": octets,
                    "store_address": octet // 8 % STORE_WORDS,
                    "store_octet": octet % 8,
                    "reversed": turned,
                    "release": last,
                    "stored": stored
                    if last
                    else {"end": self.rng.randrange(STORE_WORDS), "number": 0},
                }
            )
            if octets:
                place = octet % (8 * STORE_WORDS)
                self.expected.append((address, octets, self.store.octets(place, octets, turned)))
            octet += octets
        self.releases.append(stored)

    async def check_all(self):
        for address, octets, content in self.expected:
            assert await self.commands.get() == {"address": address, "octets": octets}
            words = await self.words.get_until("last")
            assert len(words) == words_of(address, octets)
            got = b"".join(word["data"].to_bytes(8, "little") for word in words)
            assert got[address % 8 :][:octets] == content, (hex(address), octets)
        self.expected.clear()


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def check_random(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    room = 8 * STORE_WORDS
    for _ in range(4):
        # What was released is spoiled, so every turn of the store is checked before the next.
        used = 0
        bench.store.words = [rng.getrandbits(64) for _ in range(STORE_WORDS)]
        bench.store.content = b"".join(word.to_bytes(8, "little") for word in bench.store.words)
        while used < room // 5:
            top = rng.choice([4, 40, 700, 3000])
            cuts = [
                (rng.getrandbits(63), rng.choice([0, rng.randint(1, top)]))
                for _ in range(rng.choice([1, 1, 2, 4]))
            ]
            bench.put_fpdu(cuts, lead=rng.choice([2, 16, 20]), trail=rng.randrange(4, 8))
            if rng.random() < 0.3:
                # A number; others are around it.
                bench.put_fpdu([(rng.getrandbits(63), 8)], lead=24, trail=4, turned=True)
                used += 40
            used += sum(octets for _, octets in cuts) + 40
        if rng.random() < 0.5:
            bench.put_fpdu([(rng.getrandbits(63), 64000)])
        await bench.check_all()
        while len(bench.store.releases) < len(bench.releases):
            await RisingEdge(dut.clk)
    assert bench.store.releases == bench.releases


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_lanes(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, "always")
    await start_clock_and_reset(dut)
    for lead in range(8):
        for lane in range(8):
            for octets in (1, 2, 6, 7, 8, 9, 10, 15, 16, 17, 25):
                bench.put_fpdu([(0x5000 + lane, octets)], lead=lead)
                bench.put_fpdu([(0x5000 + lane, octets)], lead=lead, turned=True)
    # The original value of an atomic at every address, as the host counts it.
    for lane in range(8):
        place = bench.place % (8 * STORE_WORDS) + 24
        bench.put_fpdu([(0x6000 + lane, 8)], lead=24, trail=4, turned=True)
        assert bench.expected[-1][2] == bench.store.octets(place, 8)[::-1]
    await bench.check_all()
    while len(bench.store.releases) < len(bench.releases):
        await RisingEdge(dut.clk)
    assert bench.store.releases == bench.releases


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_throughput(dut):
    rng = seeded_random()
    bench = Bench(dut, rng, "always")
    await start_clock_and_reset(dut)
    for octets, count in ((1460, 20), (64, 60)):
        words = 0
        for _ in range(count):
            address = rng.getrandbits(60)
            words += words_of(address, octets)
            bench.put_fpdu([(address, octets)], lead=16)
        check = cocotb.start_soon(bench.check_all())
        cycles = begin = end = 0
        while not check.done():
            await RisingEdge(dut.clk)
            cycles += 1
            if dut.write__data__valid.value:
                begin = begin or cycles
                end = cycles
        print(f"placer, {count} of {octets} octets: {words} words in {end - begin + 1} cycles")
        assert end - begin + 1 <= words + 3 * count
