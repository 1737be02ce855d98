"""The driver has each frame whole before its entry, each notice once; no place is overwritten."""

from collections import deque
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import HOST_RING, RAW_NOTICE, RAW_WORD
from stagecoach.gateware.ethernet.raw_receive import COMMANDS, FRAMES, RawReceive
from stagecoach.hw.interface.network_entries import (
    NETWORK_ENTRY,
    NETWORK_ENTRY_OCTETS,
    NetworkFlags,
    NetworkKind,
)
from stagecoach.sim.cosim.signals import cycles, every_cycle
from stagecoach.sim.cosim.streams import (
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.ethernet.host_memory import WrittenMemory
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, simulate

PATTERNS = ("always", "random")
MTU, SHORTEST, LONGEST = 1500, 576, 16369
LONGEST_IN_2_KIB = 2048 - 14
QUEUE, SLOTS = 0x12_3450_0000_0000, 0x7_8000_0000
LOW = 0x1238  # octets of the bases that count for nothing in rings of 2^9 places and more
SIZES = ((0, 0), (1, 0), (0, 2), (3, 2), (2, 5), (15, 15))
"""log2 of the places of the queue, and of the slots."""


class Driver:
    """The driver's side: it reads entries, and frees them and slots in order, some time later."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.frees = True
        self.reads = True

    def begin(self, number: int) -> None:
        """Both rings are empty, and their next places have this number."""
        self.next = self.queue_freed = self.slots_freed = self.next_slot = number % 2**16
        self.free()

    def free(self) -> None:
        self.bench.dut.queue_consumer.value = self.queue_freed
        self.bench.dut.slot_consumer.value = self.slots_freed

    def step(self, in_reset: bool) -> None:
        rng = self.bench.rng
        if in_reset or not self.bench.enabled:
            return
        if self.reads and rng.random() < 0.2 and self.next != (self.queue_freed + 2**15) % 2**16:
            entry = self.bench.entry(self.next)
            # A ring that was never filled has zeros, and the driver writes the phase that is not.
            if entry["phase"] == self.bench.phase(self.next):
                self.bench.told(entry)
                self.next = (self.next + 1) % 2**16
        if self.frees:
            if rng.random() < 0.1:
                self.queue_freed = self.next
            if rng.random() < 0.1:
                self.slots_freed = self.next_slot
            self.free()


class Bench:
    """The block, the memory, the driver, and what the driver has to be told."""

    def __init__(self, dut: Any, pattern: str) -> None:
        self.dut = dut
        self.rng = rng = seeded_random(pattern)
        self.slot_octets = 2048 if int(parameter("MTU", str(MTU))) <= LONGEST_IN_2_KIB else 16384
        self.memory = WrittenMemory(dut, rng, pattern)
        self.raw = StreamSource(dut, "raw", RAW_WORD, rng=rng, pattern=pattern)
        self.notice = StreamSource(dut, "notice", RAW_NOTICE, rng=rng, pattern="random")
        self.driver = Driver(self)
        self.enabled = 0
        dut.enable.value = 0
        self.frames: deque[tuple[int, bytes]] = deque()  # that were sent, and are not told
        self.notices: deque[dict[str, int]] = deque()
        self.told_notices = self.told_frames = self.dropped = self.failed = self.lost = 0
        self.passed = 0  # frames that were sent and never told
        self.interrupts = self.entries = 0
        self.sent = 0
        self.before: dict[int, int] = {}  # notices that were offered before a frame was
        self.offered = self.offered_frames = 0
        self._inside = self._noticed = False
        self.stored: set[int] = set()  # addresses of slots that have a frame without an entry
        self.memory.watch, self.memory.answered = self.written, self.answered
        every_cycle(dut, self.watch)
        every_cycle(dut, self.driver.step)

    async def begin(self, queue: int, slots: int, number: int) -> None:
        """Use rings of these sizes, from these numbers on."""
        dut = self.dut
        self.enabled = dut.enable.value = 0
        await cycles(dut, 2)
        while not dut.idle.value:
            await RisingEdge(dut.clk)
        self.queue, self.slots = queue, slots
        low = LOW if queue >= 9 else 0
        dut.queue.value = pack(HOST_RING, base=QUEUE + low, log2=queue)
        dut.slots.value = pack(HOST_RING, base=SLOTS + low, log2=slots)
        self.driver.begin(number)
        for place in range(number, number + min(1 << queue, 300)):
            at = QUEUE + place % (1 << queue) * NETWORK_ENTRY_OCTETS
            phase = 1 - self.phase(place % 2**16)
            self.memory._octets.update(enumerate(bytes(15) + bytes([phase]), at))
        await cycles(dut, 3)
        self.enabled = dut.enable.value = 1

    def phase(self, number: int) -> int:
        return 1 - (number >> self.queue & 1)

    def entry(self, number: int) -> dict[str, int]:
        at = QUEUE + number % (1 << self.queue) * NETWORK_ENTRY_OCTETS
        return fields_of(self.memory.read(at, NETWORK_ENTRY_OCTETS))

    # What goes in

    def put_frame(self, octets: int) -> None:
        frame = (self.sent.to_bytes(4, "little") + self.rng.randbytes(octets))[:octets]
        self.frames.append((self.sent, frame))
        self.sent += 1
        for at in range(0, octets, 8):
            part = frame[at : at + 8] + self.rng.randbytes(8)
            data = int.from_bytes(part[:8], "little")
            self.raw.put({"data": data, "octets": octets - at, "last": at + 8 >= octets})

    def put_notice(self) -> None:
        rng = self.rng
        notice = {"kind": rng.randrange(NetworkKind.FRAME), "connection": rng.randrange(256)}
        notice |= {"sequence": rng.getrandbits(32), "acknowledgment": rng.getrandbits(32)}
        notice["fin"] = rng.getrandbits(1)
        self.notices.append(dict(notice))
        self.notice.put(notice)

    # What is seen

    def watch(self, in_reset: bool) -> None:
        dut = self.dut
        if in_reset:
            return
        self.dropped += int(dut.dropped.value)
        self.failed += int(dut.failed.value)
        self.interrupts += int(dut.interrupt.value)
        if dut.raw__valid.value and not self._inside:
            self._inside = True
            self.before[self.offered_frames] = self.offered
            self.offered_frames += 1
        if dut.raw__valid.value and dut.raw__ready.value:
            self._inside = not int(dut.raw__payload.value) >> (len(dut.raw__payload) - 1)
        if dut.notice__valid.value and not self._noticed:
            self._noticed = True
            self.offered += 1
        if dut.notice__valid.value and dut.notice__ready.value:
            self._noticed = False

    def written(self, address: int, octets: bytes) -> None:
        """A write is there: it goes to a place that the driver has freed."""
        driver = self.driver
        if SLOTS <= address < SLOTS + (self.slot_octets << self.slots):
            number = (address - SLOTS) // self.slot_octets
            assert (address - SLOTS) % self.slot_octets == 0
            used = (self.next_slot_used - driver.slots_freed) % 2**16
            assert used < 1 << self.slots, "not free"
            assert number == self.next_slot_used % (1 << self.slots)
            self.next_slot_used = (self.next_slot_used + 1) % 2**16
            return
        place, rest = divmod(address - QUEUE, NETWORK_ENTRY_OCTETS)
        assert rest == 0 and place == self.next_place % (1 << self.queue)
        used = (self.next_place - driver.queue_freed) % 2**16
        assert used < 1 << self.queue, "not free"
        self.next_place = (self.next_place + 1) % 2**16
        entry = fields_of(octets)
        if entry["kind"] == NetworkKind.FRAME:
            at = SLOTS + entry["slot"] % (1 << self.slots) * self.slot_octets
            assert at in self.stored, "an entry before the frame is stored"
            self.stored.remove(at)

    def answered(self, address: int) -> None:
        if QUEUE <= address < QUEUE + (NETWORK_ENTRY_OCTETS << self.queue):
            self.entries += 1
        else:
            self.stored.add(address)

    def told(self, entry: dict[str, int]) -> None:
        """The driver reads an entry: what it tells is true, and comes in order."""
        if entry["kind"] != NetworkKind.FRAME:
            wanted = self.notices.popleft()
            fin = wanted.pop("fin")
            assert entry["flags"] == (NetworkFlags.FIN if fin else 0)
            assert {name: entry[name] for name in wanted} == wanted
            assert entry["octets"] == entry["slot"] == 0
            self.told_notices += 1
            return
        assert entry["flags"] == 0
        assert entry["connection"] == entry["sequence"] == entry["acknowledgment"] == 0
        driver = self.driver
        assert entry["slot"] == driver.next_slot
        driver.next_slot = (driver.next_slot + 1) % 2**16
        self.told_frames += 1
        if entry["octets"] == 0:
            self.lost += 1
            return
        at = SLOTS + entry["slot"] % (1 << self.slots) * self.slot_octets
        found = self.memory.read(at, entry["octets"])
        while self.frames and self.frames[0][1] != found:
            self.frames.popleft()
            self.passed += 1
        assert self.frames, "no such frame"
        number, _ = self.frames.popleft()
        assert self.told_notices >= self.before[number], "before a notice that came earlier"

    async def finish(self) -> None:
        """All that can be told is told, and nothing else."""
        dut = self.dut
        await self.raw.wait_idle()
        await self.notice.wait_idle()
        while self.notices or not dut.idle.value:
            await RisingEdge(dut.clk)
        driver = self.driver
        while self.told_notices + self.told_frames < self.entries or (
            driver.queue_freed,
            driver.slots_freed,
        ) != (driver.next, driver.next_slot):
            await RisingEdge(dut.clk)
        await cycles(dut, 4)
        assert self.told_frames + self.dropped == self.sent
        assert self.passed + len(self.frames) == self.dropped + self.lost
        assert self.interrupts == self.entries == self.told_frames + self.told_notices
        assert self.failed == self.lost
        assert not self.stored


def fields_of(entry: bytes) -> dict[str, int]:
    found, at = {}, 0
    for name, octets, _ in NETWORK_ENTRY:
        found[name] = int.from_bytes(entry[at : at + octets], "little")
        at += octets
    return found


async def begin(dut: Any, queue: int = 3, slots: int = 3, number: int = 0) -> Bench:
    bench = Bench(dut, parameter("PATTERN"))
    await start_clock_and_reset(dut)
    await start(bench, queue, slots, number)
    return bench


async def start(bench: Bench, queue: int, slots: int, number: int) -> None:
    bench.next_place = bench.next_slot_used = number % 2**16
    await bench.begin(queue, slots, number)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def check_frames_and_notices(dut: Any) -> None:
    """In rings of all sizes, whose numbers pass 2^16."""
    bench = await begin(dut)
    rng: Random = bench.rng
    longest = int(parameter("MTU", str(MTU))) + 14
    for queue, slots in SIZES:
        for number in (0, 2**16 - 20):
            await start(bench, queue, slots, number)
            for _ in range(60):
                if rng.random() < 0.3:
                    bench.put_notice()
                else:
                    bench.put_frame(rng.choice([14, 60, 64, rng.randrange(1, 200)]))
                if rng.random() < 0.3:
                    await bench.raw.wait_idle()
                    await cycles(dut, rng.randrange(60))
            bench.put_frame(longest)
            await bench.finish()
    assert bench.told_frames > 80 and bench.dropped > 20


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_memory_that_fails(dut: Any) -> None:
    """A frame that could not be written has an entry that says so."""
    bench = await begin(dut, 4, 3, 2**16 - 3)
    bench.memory.fails = lambda address: address < QUEUE and bench.rng.random() < 0.5
    for _ in range(30):
        bench.put_frame(bench.rng.randrange(14, 100))
        await bench.raw.wait_idle()
        await cycles(dut, bench.rng.randrange(150))
    await bench.finish()
    assert bench.lost > 5 and bench.told_frames - bench.lost > 5
    # An entry that could not be written: the driver does not see it.
    bench.memory.fails = lambda address: True
    bench.put_notice()
    await bench.notice.wait_idle()
    await cycles(dut, 100)
    assert bench.failed == bench.lost + 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_full_rings(dut: Any) -> None:
    """As many frames as there is room for; a notice waits, and takes no place of a frame."""
    bench = await begin(dut)
    for queue, slots in ((0, 3), (3, 0), (2, 3), (3, 2), (3, 3)):
        await start(bench, queue, slots, 2**16 - 5)
        bench.driver.frees = False
        dropped = bench.dropped
        for _ in range(12):
            bench.put_frame(20)
        await bench.raw.wait_idle()
        await cycles(dut, 500)
        kept = 1 << min(queue, slots)
        assert bench.dropped - dropped == 12 - kept
        for _ in range((1 << queue) - kept + 1):
            bench.put_notice()
        await cycles(dut, 500)
        assert bench.notice.pending == 1, "a notice is lost, or takes the place of another entry"
        bench.put_frame(20)
        await bench.raw.wait_idle()
        assert bench.dropped - dropped == 13 - kept, "a frame does not wait"
        bench.driver.frees = True
        await bench.finish()
        bench.put_frame(20)
        await bench.finish()
        assert bench.dropped - dropped == 13 - kept


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_memory_that_never_answers(dut: Any) -> None:
    """Frames are taken all the same, and dropped."""
    bench = await begin(dut, 8, 8)
    bench.memory.answers = False
    for _ in range(FRAMES + 9):
        bench.put_frame(30)
    await bench.raw.wait_idle()
    await cycles(dut, 100)
    assert bench.dropped == 9
    for _ in range(COMMANDS - FRAMES + 1):
        bench.put_notice()
    await cycles(dut, 1000)
    assert bench.notice.pending == 1
    bench.put_frame(30)
    await bench.raw.wait_idle()
    assert bench.dropped == 10
    bench.memory.answers = True
    await bench.finish()
    assert bench.told_frames == FRAMES


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_disabled(dut: Any) -> None:
    """Frames are dropped, notices wait, what was taken is told."""
    bench = await begin(dut, 3, 3)
    bench.memory.latencies = (100,)
    bench.put_frame(50)
    bench.put_frame(50)
    await bench.raw.wait_idle()
    dut.enable.value = 0
    bench.put_frame(50)
    bench.put_notice()
    await bench.raw.wait_idle()
    await cycles(dut, 600)
    assert (bench.told_frames, bench.dropped, bench.notice.pending) == (2, 1, 1)
    assert dut.idle.value
    await start(bench, 1, 1, 77)
    await bench.finish()
    assert bench.told_notices == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_cycles(dut: Any) -> None:
    """To commands, words and entries, and how often frames and notices can come."""
    bench = await begin(dut, 6, 6)
    for stream in (bench.memory.commands, bench.memory.words):
        stream.set_pattern("always")
    bench.raw.set_pattern("always")
    bench.notice.set_pattern("always")
    bench.memory.latencies = (0,)
    await cycles(dut, 2)
    names = ("raw__valid", "notice__valid", "write__command__valid", "write__data__valid")
    first: dict[str, list[int]] = {name: [] for name in (*names, "write__done")}
    now = 0

    def look(in_reset: bool) -> None:
        nonlocal now
        now += 1
        for name, found in first.items():
            if getattr(dut, name).value:
                found.append(now)

    every_cycle(dut, look)
    bench.put_frame(16)
    await bench.finish()
    (begins, _, _), commands = first["raw__valid"], first["write__command__valid"]
    assert commands[0] == begins + 1 and first["write__data__valid"][0] == begins + 2
    assert commands[1] == first["write__done"][0] + 2
    for found in first.values():
        found.clear()
    bench.put_notice()
    await bench.finish()
    begins, command = first["notice__valid"][0], first["write__command__valid"]
    assert command == [begins + 1] and first["write__data__valid"][0] == begins + 2
    # One after the other: words and one cycle for each frame, and three for its entry.
    first["raw__valid"].clear()
    for _ in range(12):
        bench.put_frame(64)
    await bench.raw.wait_idle()
    taken = first["raw__valid"]
    assert taken[-1] - taken[0] + 1 <= 12 * (8 + 1) + 11 * 3
    await bench.finish()
    first["notice__valid"].clear()
    for _ in range(10):
        bench.put_notice()
    await bench.finish()
    taken = first["notice__valid"]
    assert taken[-1] - taken[0] + 1 == 10 * 3


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return simulate(tmp_path_factory, RawReceive(MTU), __name__, request.param, PATTERNS)


@each_check(globals())
def test_raw_receive(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


@pytest.mark.parametrize("mtu", [LONGEST_IN_2_KIB, LONGEST_IN_2_KIB + 1, LONGEST])
def test_slots(mtu: int) -> None:
    run_cocotb(
        RawReceive(mtu),
        __name__,
        test_filter="check_frames",
        parameters={"PATTERN": "random", "MTU": str(mtu)},
    )


def test_the_smallest_lists() -> None:
    run_cocotb(
        RawReceive(SHORTEST, frames=2, commands=2),
        __name__,
        test_filter="check_frames|check_memory_that_fails",
        parameters={"PATTERN": "random", "MTU": str(SHORTEST)},
    )


@pytest.mark.parametrize("mtu", [575, 16370])
def test_sizes_that_are_not_allowed(mtu: int) -> None:
    with pytest.raises(ValueError, match="576 to 16369"):
        RawReceive(mtu)
