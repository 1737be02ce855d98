"""Entries arrive in ring order, never more than there is room for, and never for the wrong QP."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.queues.prefetch_memory import LANE_UNITS, UNIT_OCTETS
from stagecoach.gateware.queues.ring_fetcher import RingFetcher
from stagecoach.gateware.queues.unit_arrivals import RUN
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.ports import Pulses, ReadMemory
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=8, prefetch_lanes=2)
LAYOUTS = Layouts(CONFIG)
FULL = RnicConfig(qps=64)


def fetcher(
    config: RnicConfig, units: int, own_units: int, *, send: bool = True, **sizes: int
) -> dict[str, Any]:
    """Arguments of `run_cocotb`: a fetcher of the send or the receive rings, and its sizes."""
    return {
        "component": RingFetcher(
            config, entry_units=units, own_units=own_units, send=send, **sizes
        ),
        "parameters": {
            "UNITS": str(units),
            "OWN_UNITS": str(own_units),
            "SIDE": "send" if send else "receive",
            "QPS": str(config.qps),
        },
    }


@pytest.mark.parametrize(
    ("units", "own_units", "send", "outstanding"),
    [(2, 2, True, 64), (2, 4, True, 2), (1, 8, False, 32)],
)
def test_fetcher(units, own_units, send, outstanding):
    run_cocotb(
        **fetcher(CONFIG, units, own_units, send=send, outstanding=outstanding, tick_cycles=16),
        test_module=__name__,
        test_filter="check_(?!pace|late_pace|runs)",
    )


def test_one_unit_in_12_cycles_at_latency_250():
    run_cocotb(
        **fetcher(FULL, 2, 2, tick_cycles=128), test_module=__name__, test_filter="check_pace"
    )


@pytest.mark.parametrize("qps", [16, 64])
def test_one_unit_in_12_cycles_at_latency_1000(qps):
    arguments = fetcher(FULL, 2, 4, outstanding=64, tick_cycles=128)
    arguments["parameters"] |= {"LATENCY": "1000", "BUSY": str(qps)}
    run_cocotb(**arguments, test_module=__name__, test_filter="check_late_pace")


def test_eight_entries_in_a_row_are_there_at_latency_250():
    run_cocotb(
        **fetcher(FULL, 1, 8, send=False, tick_cycles=128),
        test_module=__name__,
        test_filter="check_runs",
    )


class Bench:
    """Rings in host memory, and a consumer that checks every word of what it pops."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.entry = UNIT_OCTETS
        self.most_units = int(parameter("UNITS"))
        self.own_units = int(parameter("OWN_UNITS"))
        self.qps = int(parameter("QPS", str(CONFIG.qps)))
        self.words = self.entry // 8
        self.memory = {}
        self.reads = ReadMemory(dut, "read", self.memory, rng)
        layouts = LAYOUTS if self.qps == CONFIG.qps else Layouts(FULL)
        self.commands = StreamSource(dut, "qp_command", layouts.qp_command, rng=rng)
        self.doorbells = StreamSource(dut, "doorbell", layouts.doorbell, rng=rng)
        self.errors = StreamSink(dut, "error", layouts.qp_error, rng=rng, pattern="slow")
        StreamMonitor(dut, "error")
        StreamMonitor(dut, "read__command")
        self.filled = Pulses(dut, dut.filled__valid, dut.filled__qp)
        self.base, self.log2, self.posted, self.popped = {}, {}, {}, {}
        dut.entries__pop.value = dut.entries__popping.value = 0
        dut.entries__pop_both.value = 0
        dut.entries__coming.value = 0
        dut.entries__select.value = 0
        dut.entries__word_address.value = 0

    async def create(self, qp, log2):
        self.base[qp] = (self.rng.getrandbits(48) << 16) + self.rng.randrange(512) * 8
        self.log2[qp], self.posted[qp], self.popped[qp] = log2, 0, 0
        side = parameter("SIDE")
        other = "receive" if side == "send" else "send"
        await self.command(
            "CREATE",
            qp,
            **{f"{side}_base": self.base[qp], f"{side}_log2": log2, f"{other}_base": 8},
        )

    async def command(self, kind, qp, **fields):
        await self.commands.send({"kind": QpCommandKind[kind].value, "qp": qp, **fields})

    def post(self, qp, count):
        """Write entries into the ring and return the producer number for the doorbell."""
        for number in range(self.posted[qp], self.posted[qp] + count):
            at = self.base[qp] + number % (1 << self.log2[qp]) * self.entry
            for word in range(self.words):
                self.memory[at + 8 * word] = self.content(qp, number, word)
        self.posted[qp] += count
        return self.posted[qp] % 65536

    def content(self, qp, number, word):
        """Octets of a word that tell ring, QP, entry and word."""
        ring = (self.base[qp] >> 16 & 0xFFFFFF).to_bytes(3, "little")
        return ring + bytes([qp, *(number & 0xFFFF).to_bytes(2, "little"), word, 7])

    async def look(self, qp):
        """Return level, posted and index as the consumer sees them."""
        await select(self.dut, qp)
        await cycles(self.dut, 3)
        entries = self.dut
        return (
            int(entries.entries__level.value),
            int(entries.entries__posted.value),
            int(entries.entries__index.value),
        )

    async def pop(self, qp, units=1):
        """Check every word of the oldest units, one per cycle, and pop them."""
        words = []
        total = units * self.words
        await select(self.dut, qp)
        for word in range(total + 3):
            self.dut.entries__word_address.value = min(word, total - 1)
            if word >= 3:
                words.append(int(self.dut.entries__word.value))
            await RisingEdge(self.dut.clk)
        # One more edge than the loop's: the first sample belongs to word 0.
        number = self.popped[qp]
        assert words == [
            int.from_bytes(self.content(qp, number + unit, word), "little")
            for unit in range(units)
            for word in range(self.words)
        ]
        self.popped[qp] += units
        self.dut.entries__pop_both.value = units - 1
        self.dut.entries__pop.value = self.dut.entries__popping.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.entries__pop.value = self.dut.entries__popping.value = 0
        self.dut.entries__select.value = self.rng.randrange(self.qps)


async def select(dut, qp):
    """Make a QP the selected one, and say so in the cycle before."""
    dut.entries__coming.value = qp
    await RisingEdge(dut.clk)
    dut.entries__select.value = qp


@cocotb.test(timeout_time=12, timeout_unit="ms")
async def check_entries_come_in_ring_order(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    bench.reads.latency = (2, 300)
    # Most rings have more than the room of a QP, and there are few lanes.
    for qp, log2 in enumerate(rng.sample((0, 1, 3, 4, 5, 6, 6, 6), CONFIG.qps)):
        await bench.create(qp, log2)
    there = [0] * CONFIG.qps
    favourites = [0]
    total = 0
    while total < 2000:
        qp = rng.choice(favourites) if rng.random() < 0.9 else rng.randrange(CONFIG.qps)
        room = (1 << bench.log2[qp]) - (bench.posted[qp] - bench.popped[qp])
        if room and rng.random() < 0.4:
            await bench.doorbells.send({"qp": qp, "producer": bench.post(qp, rng.randint(1, room))})
        level, posted, index = await bench.look(qp)
        assert level <= bench.own_units + LANE_UNITS and index == bench.popped[qp] % 65536
        assert level <= posted <= bench.posted[qp] - bench.popped[qp]
        # What was there once stays there, but for what nobody looks at yet.
        assert level >= there[qp]
        there[qp] = min(level, bench.own_units)
        if level:
            # Some in a row, faster than others come.
            run = rng.randint(1, min(level, bench.own_units))
            there[qp] -= run
            total += run
            while run:
                units = rng.randint(1, min(run, bench.most_units))
                await bench.pop(qp, units)
                run -= units
        if rng.random() < 0.02:
            # Others come to the fore, and lanes are taken back.
            favourites = rng.sample(range(CONFIG.qps), 3)
            await cycles(dut, rng.choice([1, 100]))
    await cycles(dut, 5000)
    on_chip = 0
    for qp in range(CONFIG.qps):
        left = bench.posted[qp] - bench.popped[qp]
        level, posted, _ = await bench.look(qp)
        assert posted == left and level >= min(left, bench.own_units)
        assert bench.filled.qps.count(qp) >= bench.popped[qp] + level
        on_chip += level
    assert not len(bench.errors)
    # Lanes were taken back: units were dropped and came again.
    read = sum(command["octets"] for command in bench.reads.commands) // UNIT_OCTETS
    print(f"{total} units popped, {on_chip} on chip, {read - total - on_chip} read again")
    assert read > total + on_chip + 100
    assert max(command["octets"] for command in bench.reads.commands) == RUN * UNIT_OCTETS


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_small_ring_turns_many_times(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    bench.reads.latency = (2, 4)
    await start_clock_and_reset(dut)
    await bench.create(1, 2)
    while bench.popped[1] < 60:
        if bench.posted[1] - bench.popped[1] < 2:
            await bench.doorbells.send({"qp": 1, "producer": bench.post(1, 2)})
        if (await bench.look(1))[0]:
            await bench.pop(1)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_reads_of_a_destroyed_qp_are_not_taken_for_the_new_one(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    bench.reads.latency = (100, 200)
    await start_clock_and_reset(dut)
    for _ in range(8):
        await bench.create(2, 3)
        await bench.doorbells.send({"qp": 2, "producer": bench.post(2, 5)})
        await cycles(dut, rng.randint(1, 150))
        if rng.random() < 0.5:
            await bench.command("DESTROY", 2)
            assert (await bench.look(2))[:2] == (0, 0)
            # A QP that does not exist hears no doorbell.
            await bench.doorbells.send({"qp": 2, "producer": 7})
            await cycles(dut, 30)
            assert (await bench.look(2))[:2] == (0, 0)
        await bench.create(2, 2)
        count = len(bench.reads.commands)
        assert (await bench.look(2)) == (0, 0, 0)
        await bench.doorbells.send({"qp": 2, "producer": bench.post(2, 2)})
        while (await bench.look(2))[0] < 2:
            pass
        await bench.pop(2)
        await bench.pop(2)
        assert len(bench.reads.commands) == count + 1
    assert not len(bench.errors)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_bad_doorbells_raise_an_error_and_change_nothing(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    await bench.create(3, 2)
    await bench.command("CONNECT", 3)
    for producer in (5, 65535, 32768):
        await bench.doorbells.send({"qp": 3, "producer": producer})
        error = await bench.errors.get()
        assert (error["qp"], error["cause"], error["index"]) == (
            3,
            Cause.LOCAL_BAD_ENTRY,
            producer,
        )
    assert not bench.reads.commands
    await bench.doorbells.send({"qp": 3, "producer": bench.post(3, 4)})
    while not (await bench.look(3))[0]:
        pass
    await bench.pop(3)
    # Entries cannot be taken back: 4 were posted.
    await bench.doorbells.send({"qp": 3, "producer": 3})
    assert (await bench.errors.get())["index"] == 3
    # One was popped, so 5 fit.
    await bench.doorbells.send({"qp": 3, "producer": bench.post(3, 1)})
    for _ in range(4):
        while not (await bench.look(3))[0]:
            pass
        await bench.pop(3)
    assert not len(bench.errors)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_the_smallest_and_the_largest_ring_take_what_they_hold(dut):
    bench = Bench(dut, seeded_random())
    await start_clock_and_reset(dut)
    for log2 in (0, 15):
        size = 1 << log2
        await bench.create(3, log2)
        await bench.command("CONNECT", 3)
        for turn in range(5):
            # It is full; one more, and one less than there are, are errors and change nothing.
            producer = bench.post(3, size - (bench.posted[3] - bench.popped[3]))
            await bench.doorbells.send({"qp": 3, "producer": producer})
            for wrong in (1, -1):
                bad = (producer + wrong) % 65536
                await bench.doorbells.send({"qp": 3, "producer": bad})
                assert (await bench.errors.get())["index"] == bad
            level, posted, index = await bench.look(3)
            assert (posted, index) == (size, turn)
            while not level:
                level, _, _ = await bench.look(3)
            await bench.pop(3)
    assert not len(bench.errors)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_failed_read_stops_its_qp_alone(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    await start_clock_and_reset(dut)
    for qp in (0, 1):
        await bench.create(qp, 3)
        bench.post(qp, 6)
    bench.reads.failing.add(bench.base[0] + bench.entry + 8)
    for qp in (0, 1):
        await bench.doorbells.send({"qp": qp, "producer": 6})
    for _ in range(6):
        while not (await bench.look(1))[0]:
            pass
        await bench.pop(1)
    error = await bench.errors.get()
    assert (error["qp"], error["cause"], error["index"]) == (0, Cause.HOST_READ_ERROR, 1)
    assert (await bench.look(0)) == (1, 6, 0)
    await bench.pop(0)
    await cycles(dut, 200)
    assert (await bench.look(0)) == (0, 5, 1)
    assert not len(bench.errors)
    await bench.create(0, 3)
    bench.reads.failing.clear()
    await bench.doorbells.send({"qp": 0, "producer": bench.post(0, 1)})
    while not (await bench.look(0))[0]:
        pass
    await bench.pop(0)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_many_failed_reads_are_all_told(dut):
    rng = seeded_random()
    bench = Bench(dut, rng)
    bench.reads.latency = (100, 200)
    await start_clock_and_reset(dut)
    for qp in range(CONFIG.qps):
        await bench.create(qp, 4)
        bench.post(qp, 12)
        for unit in range(qp % 2, 12):
            bench.reads.failing.add(bench.base[qp] + unit * bench.entry + 8 * rng.randrange(8))
        await bench.doorbells.send({"qp": qp, "producer": 12})
    found = [await bench.errors.get() for _ in range(CONFIG.qps)]
    found.sort(key=lambda error: error["qp"])
    for qp, error in enumerate(found):
        assert (error["qp"], error["cause"]) == (qp, Cause.HOST_READ_ERROR)
        assert error["index"] == qp % 2
        assert (await bench.look(qp)) == (qp % 2, 12, 0)
    await cycles(dut, 300)
    assert not len(bench.errors)


# Pace


class Pace:
    """Pops units as soon as they are there, at most one in `gap` cycles, of some QPs in turn."""

    def __init__(self, bench, qps, gap=4):
        self.bench, self.qps, self.gap = bench, qps, gap

    async def post(self, qp):
        """Keeps the ring full."""
        bench = self.bench
        room = (1 << bench.log2[qp]) - (bench.posted[qp] - bench.popped[qp])
        if room >= 16:
            bench.doorbells.put({"qp": qp, "producer": bench.post(qp, room)})

    async def run(self, units):
        """Cycles for so many units."""
        bench, dut = self.bench, self.bench.dut
        passed, taken, turn = 0, 0, 0
        await select(dut, self.qps[0])
        while taken < units:
            qp = self.qps[turn % len(self.qps)]
            turn += 1
            await self.post(qp)
            dut.entries__select.value = qp
            dut.entries__word_address.value = 0
            await cycles(dut, self.gap - 1)
            dut.entries__coming.value = self.qps[turn % len(self.qps)]
            await cycles(dut, 1)
            passed += self.gap
            if not int(dut.entries__level.value):
                continue
            number = bench.popped[qp]
            expected = int.from_bytes(bench.content(qp, number, 0), "little")
            assert int(dut.entries__word.value) == expected
            bench.popped[qp] += 1
            dut.entries__pop_both.value = 0
            dut.entries__pop.value = dut.entries__popping.value = 1
            await RisingEdge(dut.clk)
            dut.entries__pop.value = dut.entries__popping.value = 0
            passed += 1
            taken += 1
        return passed


async def paced(dut):
    bench = Bench(dut, seeded_random())
    latency = int(parameter("LATENCY", "250"))
    bench.reads.quick, bench.reads.latency = True, (latency, latency)
    bench.errors.set_pattern("always")
    await start_clock_and_reset(dut)
    for qp in range(FULL.qps):
        await bench.create(qp, 6)
    return bench


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_pace_of_one_qp(dut):
    bench = await paced(dut)
    pace = Pace(bench, [5])
    await pace.run(64)
    before = len(bench.reads.commands)
    passed = await pace.run(512)
    reads = len(bench.reads.commands) - before
    print(f"one QP: {passed / 512:.2f} cycles per unit, {512 / reads:.2f} units per read")
    assert passed <= 512 * 12
    assert reads <= 512 / 3


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_pace_of_all_qps(dut):
    bench = await paced(dut)
    pace = Pace(bench, list(range(FULL.qps)))
    await pace.run(256)
    passed = await pace.run(1024)
    print(f"{FULL.qps} QPs: {passed / 1024:.2f} cycles per unit")
    assert passed <= 1024 * 12


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_runs_of_more_qps_than_lanes(dut):
    bench = await paced(dut)
    qps = bench.rng.sample(range(FULL.qps), 4 * FULL.prefetch_lanes)
    # The runs begin anywhere in the room of a QP.
    for qp in qps:
        await Pace(bench, [qp]).run(bench.rng.randint(1, 8))
    runs = Pace(bench, [qp for qp in qps for _ in range(bench.own_units)], gap=11)
    await runs.run(128)
    before = len(bench.reads.commands)
    passed = await runs.run(512)
    reads = len(bench.reads.commands) - before
    print(f"runs: {passed / 512:.2f} cycles per unit, {512 / reads:.2f} units per read")
    assert passed == 512 * 12


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_late_pace(dut):
    bench = await paced(dut)
    pace = Pace(bench, list(range(int(parameter("BUSY")))))
    await pace.run(256)
    passed = await pace.run(512)
    print(f"{passed / 512:.2f} cycles per unit")
    assert passed <= 512 * 12


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_pace_of_one_among_idle_ones(dut):
    """Rings that were filled and are never used hold up nobody, nor do those used once."""
    bench = await paced(dut)
    for qp in range(FULL.qps):
        if qp != 40:
            await bench.doorbells.send({"qp": qp, "producer": bench.post(qp, 64)})
    await Pace(bench, list(range(8))).run(64)
    for hot in (40, 41, 3):
        pace = Pace(bench, [hot])
        await pace.run(128)
        passed = await pace.run(256)
        print(f"QP {hot} among idle ones: {passed / 256:.2f} cycles per unit")
        assert passed <= 256 * 12


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_pace_from_doorbell_to_command(dut):
    bench = await paced(dut)
    for qp, count in ((1, 1), (2, 2), (3, 30)):
        producer = bench.post(qp, count)
        seen = len(bench.reads.commands)
        bench.doorbells.put({"qp": qp, "producer": producer})
        passed = 0
        while len(bench.reads.commands) == seen:
            await RisingEdge(dut.clk)
            passed += 1
        print(f"{count} units: {passed} cycles from doorbell to command")
        assert passed <= 16
        await cycles(dut, 600)
