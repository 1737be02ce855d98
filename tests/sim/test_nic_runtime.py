"""The runtime around a NIC: frames, time, deadlines, two interrupts, two ports to memory."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from stagecoach.sim.device import NEVER, Device, DeviceCallError, Paced, Response
from stagecoach.sim.irq import Irq
from stagecoach.sim.status import Status
from stagecoach.sim.wire.clock import CYCLE_PS
from stagecoach.sim.wire.impairments import OVERHEAD
from tests.sim.conftest import STUB_CONFIG
from tests.sim.nic_stand_in import IDENTITY_VALUE, At

pytestmark = pytest.mark.timeout(180)

PERIOD = 64
LONGEST = 9014
PS_PER_US = 1_000_000
START_PS = 5_000_000 * PS_PER_US + 3
SETTLED = 600
"""Cycles after which a device rests of which nothing happens."""


class Bench:
    """A device, and the wire's end of its socket; `now` is the time of a paced one."""

    def __init__(self, library: Path, paced: bool, **options: int) -> None:
        self.wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.wire.settimeout(None if paced else 30)
        self.wire.setblocking(not paced)
        self.paced = paced
        self.now = START_PS
        self.seen_irqs: set[Irq] = set()
        self.device = Device(
            library, STUB_CONFIG.qps, network=theirs.detach(), paced=paced, **options
        )

    def pace(self, cycles: int = PERIOD) -> Paced:
        paced = self.device.pace(cycles, self.now)
        self.now += cycles * CYCLE_PS
        self.seen_irqs |= {Irq.RNIC} if paced.irq else set()
        self.seen_irqs |= {Irq.NETWORK} if paced.network_irq else set()
        return paced

    def access(self, address: int, value: int | None = None) -> int:
        if not self.paced:
            if value is None:
                return self.device.read_register(address)
            self.device.write_register(address, value)
            return 0
        self.device.begin_access(address, value)
        while not (paced := self.pace()).access_done:
            pass
        self.device.require_access(address, paced.access_status)
        return int(paced.access_value)

    def rest(self) -> Paced:
        """Until the device does nothing any more."""
        while (paced := self.pace()).busy:
            pass
        return paced

    def echoed(self, count: int) -> list[bytes]:
        """So many frames of the device."""
        frames: list[bytes] = []
        while len(frames) < count:
            if self.paced:
                self.pace()
            try:
                frames.append(self.wire.recv(1 << 15))
            except BlockingIOError:
                continue
        return frames

    def word(self, kind: int, address: int, value: int = 0) -> tuple[int, int]:
        """A word of memory is written (1) or read (2); its response, and what was read."""
        for at, part in (
            (At.ADDRESS_LOW, address & 0xFFFFFFFF),
            (At.ADDRESS_HIGH, address >> 32),
            (At.WORD_LOW, value & 0xFFFFFFFF),
            (At.WORD_HIGH, value >> 32),
            (At.START, kind),
        ):
            self.access(at, part)
        while (state := self.access(At.STATE)) & 1:
            pass
        return state >> 1, self.access(At.READ_LOW) | self.access(At.READ_HIGH) << 32

    def close(self) -> None:
        self.device.close()
        self.wire.close()


Open = Callable[..., Bench]


@pytest.fixture
def opened(nic_library: Path) -> Iterator[Open]:
    made: list[Bench] = []

    def open_bench(paced: bool, **options: int) -> Bench:
        made.append(Bench(nic_library, paced, **options))
        return made[-1]

    yield open_bench
    for bench in made:
        assert bench.device.statistics()["faults"] == []
        bench.close()


@pytest.fixture(params=["paced", "thread"])
def bench(request: pytest.FixtureRequest, opened: Open) -> Bench:
    return opened(request.param == "paced")


@pytest.fixture
def paced(opened: Open) -> Bench:
    return opened(True)


def test_registers(bench: Bench) -> None:
    assert bench.access(At.IDENTITY) == IDENTITY_VALUE
    bench.access(At.SCRATCH, 0x89ABCDEF)
    assert bench.access(At.SCRATCH) == 0x89ABCDEF
    with pytest.raises(DeviceCallError, match="error response"):
        bench.access(0xFFC)


@pytest.mark.parametrize("sizes", [[1], [LONGEST], [14, 60, 61, 1514, LONGEST, 1], [*range(1, 80)]])
def test_frames_cross_whole(bench: Bench, sizes: list[int]) -> None:
    frames = [random.Random(size).randbytes(size) for size in sizes]
    bench.access(At.ECHO, 1)
    for frame in frames:
        bench.wire.send(frame)
    assert bench.echoed(len(frames)) == frames
    ethernet = bench.device.statistics()["ethernet"]
    assert ethernet["rx_frames"] == ethernet["tx_frames"] == len(frames)
    assert ethernet["rx_octets"] == ethernet["tx_octets"] == sum(sizes)
    assert ethernet["rx_stalls"] == 0


def wire_cycles(sizes: list[int]) -> int:
    """From the first word of the first frame to the last word of the last one, at 10 Gb/s."""
    before = sum(max(60, size) + OVERHEAD for size in sizes[:-1])
    return -(-before // 8) + -(-sizes[-1] // 8) - 1


@pytest.mark.parametrize(
    "sizes", [[60] * 50, [1514] * 9, [LONGEST] * 3, [61] * 40, [14, 1514, 60, 1513, 67, 68] * 3]
)
def test_frames_have_the_rate_of_the_wire(paced: Bench, sizes: list[int]) -> None:
    """In both directions: the gaps of the wire lie between them, to the octet."""
    paced.access(At.ECHO, 1)
    for size in sizes:
        paced.wire.send(bytes(size))
    paced.echoed(len(sizes))
    assert paced.access(At.BEATS) == sum(-(-size // 8) for size in sizes)
    assert paced.access(At.LAST_BEAT) - paced.access(At.FIRST_BEAT) == wire_cycles(sizes)
    if len(set(sizes)) == 1:  # else those that are behind a long one wait for it
        assert paced.access(At.LAST_SENT) - paced.access(At.FIRST_SENT) == wire_cycles(sizes)


def test_a_frame_after_a_pause_waits_for_nothing(paced: Bench) -> None:
    paced.access(At.ECHO, 1)
    for pause in (0, 11, 12, 40):
        paced.wire.send(bytes(60))
        paced.pace(1)
        paced.pace(10 + pause)
        paced.wire.send(bytes(60))
        paced.rest()
        distance = paced.access(At.LAST_BEAT) - paced.access(At.FIRST_BEAT) - 7
        assert distance == max(11, 11 + pause)
        paced.access(At.ECHO, 1)


def test_what_the_mac_does_not_take_waits(bench: Bench) -> None:
    bench.access(At.ECHO, 1)
    bench.device.hold(transmit=True)
    frames = [bytes([number]) * 100 for number in range(5)]
    for frame in frames:
        bench.wire.send(frame)
    for _ in range(20):
        bench.access(At.SCRATCH, 1)
    assert bench.device.statistics()["ethernet"]["tx_frames"] == 0
    bench.device.hold()
    assert bench.echoed(5) == frames


def test_a_frame_that_the_device_spoils_is_not_sent(bench: Bench) -> None:
    bench.access(At.ECHO, 3)
    bench.wire.send(b"bad" * 30)
    while bench.access(At.BEATS) < 12:
        pass
    for _ in range(20):
        bench.access(At.SCRATCH, 1)
    bench.access(At.ECHO, 1)
    bench.wire.send(b"good" * 30)
    assert bench.echoed(1) == [b"good" * 30]


def test_a_device_waits_for_a_wire_that_takes_nothing(paced: Bench) -> None:
    """Nothing is lost: tx is held, and frames wait in the socket."""
    paced.access(At.ECHO, 1)
    frames = [bytes([number]) * 9000 for number in range(60)]
    left = list(frames)
    taken: list[bytes] = []
    while left:
        try:
            paced.wire.send(left[0])
            left.pop(0)
        except BlockingIOError:
            break
        paced.pace(2000)
    assert left
    while len(taken) < len(frames):
        taken += paced.echoed(1)
        while left:
            try:
                paced.wire.send(left[0])
                left.pop(0)
            except BlockingIOError:
                break
    assert taken == frames


def test_time_is_exact_in_cycles(paced: Bench) -> None:
    """Each microsecond begins in its cycle; a deadline comes in the first cycle of it."""
    for ahead in (20, 21, 37, 400):
        due = START_PS // PS_PER_US + (paced.now - START_PS) // PS_PER_US + ahead
        paced.access(At.DEADLINE, due & 0xFFFFFFFF)
        paced.access(At.ARMED, 1)
        while not paced.pace().network_irq:
            pass
        begun = paced.now
        cycle = paced.access(At.CYCLE)
        assert paced.access(At.CAME_TIME) == due & 0xFFFFFFFF
        # CYCLE is read in the first cycle of a period.
        came = begun - (cycle - paced.access(At.CAME)) * CYCLE_PS
        assert 0 <= came - due * PS_PER_US < CYCLE_PS
        paced.access(At.ARMED, 0)


def test_time_jumps_to_the_deadline_of_a_resting_device(paced: Bench) -> None:
    assert paced.rest().due_us == NEVER
    due = paced.now // PS_PER_US + 250_000
    paced.access(At.DEADLINE, due & 0xFFFFFFFF)
    paced.access(At.ARMED, 1)
    told = paced.rest()
    assert told.due_us == due
    assert not told.network_irq
    paced.now = due * PS_PER_US - CYCLE_PS * PERIOD
    told = paced.pace()
    assert not told.network_irq
    paced.now = due * PS_PER_US
    assert paced.pace().network_irq
    assert paced.rest().due_us == NEVER
    assert paced.access(At.CAME_TIME) == due & 0xFFFFFFFF


def test_a_deadline_that_has_come_keeps_the_device_busy_until_it_is_seen(paced: Bench) -> None:
    """Also one across the wrap of 32 bits."""
    paced.now = ((1 << 32) - 2) * PS_PER_US
    paced.access(At.DEADLINE, 3)
    paced.access(At.ARMED, 1)
    assert paced.rest().due_us == (1 << 32) + 3
    paced.now = ((1 << 32) + 3) * PS_PER_US
    assert paced.pace(1).busy
    assert paced.pace(63).network_irq


def test_the_time_is_that_of_the_wall(opened: Open) -> None:
    offset = 7_000_000_000_123
    bench = opened(False, clock_offset_ns=offset)
    before = (time.monotonic_ns() + offset) // 1000
    told = bench.access(At.TIME)
    after = (time.monotonic_ns() + offset) // 1000
    # The clock is looked at every 64 cycles; a busy machine may take long for them.
    assert (before - told) % (1 << 32) < 1 << 20 or (told - before) % (1 << 32) <= after - before


def test_a_deadline_wakes_a_device_that_rests(opened: Open) -> None:
    bench = opened(False)
    for _ in range(3):
        due = time.monotonic_ns() // 1000 + 200_000
        bench.access(At.DEADLINE, due & 0xFFFFFFFF)
        bench.access(At.ARMED, 1)
        slept = bench.device.statistics()["sleeps"]
        cycles = bench.device.cycles
        assert bench.device.wait_irq(10, Irq.NETWORK)
        assert time.monotonic_ns() // 1000 >= due
        assert bench.device.statistics()["sleeps"] > slept
        assert bench.device.cycles - cycles < 5000, "it did not rest"
        late = (bench.access(At.CAME_TIME) - due) & 0xFFFFFFFF
        assert late < 10_000_000
        bench.access(At.ARMED, 0)


def test_time_alone_does_not_wake_a_device(opened: Open) -> None:
    bench = opened(False)
    time.sleep(0.3)
    cycles = bench.device.statistics()["cycles"]
    time.sleep(0.3)
    assert bench.device.statistics()["cycles"] - cycles < 2 * SETTLED


def test_interrupts_are_apart(opened: Open) -> None:
    bench = opened(False)
    assert not bench.device.wait_irq(0, Irq.NETWORK)
    bench.access(At.ARMED, 2)
    assert bench.device.wait_irq(0, Irq.RNIC)
    assert not bench.device.wait_irq(0, Irq.NETWORK)
    bench.access(At.DEADLINE, time.monotonic_ns() // 1000 & 0xFFFFFFFF)
    bench.access(At.ARMED, 1)
    assert bench.device.wait_irq(10, Irq.NETWORK)
    assert not bench.device.wait_irq(0, Irq.RNIC)


def test_interrupts_are_apart_in_paced_time(paced: Bench) -> None:
    paced.access(At.ARMED, 2)
    paced.pace()
    assert paced.seen_irqs == {Irq.RNIC}
    paced.access(At.DEADLINE, paced.now // PS_PER_US & 0xFFFFFFFF)
    paced.access(At.ARMED, 1)
    paced.seen_irqs.clear()
    paced.rest()
    assert Irq.NETWORK in paced.seen_irqs
    paced.seen_irqs.clear()
    paced.access(At.ARMED, 0)
    paced.pace()
    paced.seen_irqs.clear()
    paced.pace()
    assert not paced.seen_irqs


def test_a_wait_for_an_interrupt_can_be_ended(opened: Open) -> None:
    bench = opened(False)
    results: list[bool] = []
    thread = threading.Thread(
        target=lambda: results.append(bench.device.wait_irq(None, Irq.NETWORK))
    )
    thread.start()
    bench.device.wake_irq(Irq.NETWORK)
    thread.join(10)
    assert results == [True]
    assert not bench.device.wait_irq(0, Irq.NETWORK)


@pytest.mark.parametrize("by_device", [0, 4])
def test_memory_is_reached_by_both_ports(bench: Bench, by_device: int) -> None:
    whole = np.zeros(4, dtype=np.uint64)
    base = whole.ctypes.data
    bench.device.map(base, 16)
    assert bench.word(1 | by_device, base + 8, 0x1122334455667788)[0] == 0
    assert whole.tolist() == [0, 0x1122334455667788, 0, 0]
    whole[0] = 0xA5A5A5A5_5A5A5A5A
    assert bench.word(2 | by_device, base) == (0, 0xA5A5A5A5_5A5A5A5A)
    assert bench.word(1 | by_device, base + 16, 1)[0] == Response.DECERR
    assert bench.word(2 | by_device, base + 16)[0] == Response.DECERR
    for write in (True, False):
        bench.device.fail_access(base, 8, write=write)
        assert bench.word((1 if write else 2) | by_device, base, 5)[0] == Response.SLVERR
    assert whole[0] == 0xA5A5A5A5_5A5A5A5A
    bench.device.unmap(base, 16)
    assert bench.word(2 | by_device, base)[0] == Response.DECERR
    statistics = bench.device.statistics()
    assert statistics["read_errors"] == 3
    assert statistics["write_errors"] == 2


def test_connections_of_the_llp_are_refused(opened: Open) -> None:
    bench = opened(False)
    for call in (
        lambda: bench.device.attach(0, 99),
        lambda: bench.device.detach(0),
        lambda: bench.device.lose_after(0, 5),
    ):
        with pytest.raises(DeviceCallError, match="a NIC has no LLP port") as error:
            call()
        assert error.value.status is Status.INVALID


def test_a_nic_needs_a_wire(nic_library: Path) -> None:
    with pytest.raises(DeviceCallError, match="a NIC needs a socket"):
        Device(nic_library, STUB_CONFIG.qps)


@pytest.mark.parametrize("is_paced", [False, True])
def test_it_ends_with_its_wire(nic_library: Path, is_paced: bool) -> None:
    bench = Bench(nic_library, is_paced)
    bench.wire.close()
    with pytest.raises(DeviceCallError, match="the wire has gone"):
        while True:
            bench.access(At.SCRATCH, 1)
    bench.device.close()
