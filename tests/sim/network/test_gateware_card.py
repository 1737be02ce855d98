"""A card that carries frames between a wire and the stand-in for a NIC, in both kinds of time."""

import threading
import time as walltime
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.sim.device import Device
from stagecoach.sim.network.channel import Channel
from stagecoach.sim.network.gateware_card import GatewareCard, GatewareHost
from stagecoach.sim.network.timeline import CycleTime, WallTime
from stagecoach.sim.wire.address import parse_wire
from stagecoach.sim.wire.clock import CYCLE_PS, WallClock
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire
from tests.sim.conftest import STUB_CONFIG
from tests.sim.nic_stand_in import At

pytestmark = pytest.mark.timeout(120)


class Registers:
    """What a host needs of a transport."""

    def __init__(self, access: Callable[[int, int | None], int]) -> None:
        self._access = access

    def read_register(self, address: int) -> int:
        return self._access(address, None)

    def write_register(self, address: int, value: int) -> None:
        self._access(address, value)


class Bench:
    """A card, its host, and the other end of its wire."""

    def __init__(self, library: Path, name: str, paced: bool, options: str = "") -> None:
        self.time: CycleTime | WallTime = CycleTime() if paced else WallTime()
        clock = self.time.clock
        self.channel = channel = Channel()
        self.device = Device(
            library,
            STUB_CONFIG.qps,
            network=channel.give_away(),
            paced=paced,
            clock_offset_ns=clock.offset_ns if isinstance(clock, WallClock) else 0,
        )
        address = f"sim://?wire=pair:{name}&ip=192.0.2."
        self.wire = Wire(parse_wire(f"{address}1/24{options}"), clock)
        self.peer = Wire(parse_wire(f"{address}2/24"), clock)
        self.card = GatewareCard(self.device, channel, self.wire, self.time, paced=paced)
        self.time._add(self.card)
        access = self.card.access if paced else self._access
        self.host = GatewareHost(
            Registers(access),  # type: ignore[arg-type]
            *(self.device, self.card, self.time),
            paced=paced,
        )

    def _access(self, address: int, value: int | None) -> int:
        if value is None:
            return self.device.read_register(address)
        self.device.write_register(address, value)
        return 0

    def send(self, frame: bytes) -> None:
        """From the other end."""
        with self.time.lock:
            assert self.peer.send(frame)
            self._wait(lambda: self.peer.poll() or self.peer.next_arrival_ps is None)
            self.time._changed()

    def _wait(self, ready: Callable[[], bool]) -> None:
        while not self.time._block(ready, self.time._now_ps() + 100 * PS_PER_US):
            pass

    def receive(self) -> bytes:
        """At the other end."""
        got: list[bytes] = []

        def look() -> bool:
            frame = self.peer.receive()
            if frame is not None:
                got.append(frame)
            return bool(got)

        with self.time.lock:
            self._wait(look)
        return got[0]

    def close(self) -> None:
        self.card.close("the test is over")
        self.time._remove(self.card)
        self.device.close()
        self.channel.close()
        self.wire.close()
        self.peer.close()


@pytest.fixture(params=["cycle", "wall"])
def bench(request: pytest.FixtureRequest, nic_library: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(nic_library, tmp_path.name, request.param == "cycle")
    yield made
    assert made.device.statistics()["faults"] == []
    made.close()


@pytest.fixture
def paced(nic_library: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(nic_library, tmp_path.name, True)
    yield made
    made.close()


def test_frames_cross_and_are_logged(bench: Bench) -> None:
    bench.host.write_register(At.ECHO, 1)
    for size in (60, 61, 1514):
        frame = bytes([size & 0xFF]) * size
        bench.send(frame)
        assert bench.receive() == frame
    heads = [(head.sent, head.octets) for head in bench.host.frame_heads()]
    assert heads == [(sent, size) for size in (60, 61, 1514) for sent in (False, True)]


def test_the_times_of_host_and_device_are_one(bench: Bench) -> None:
    before = bench.host.now_us()
    told = bench.host.read_register(At.TIME)
    after = bench.host.now_us()
    # In the wall's time the device looks at its clock when it wakes.
    assert before & 0xFFFFFFFF <= told + 10_000
    assert told <= after & 0xFFFFFFFF


def test_a_deadline_wakes_who_waits_for_the_interrupt(bench: Bench) -> None:
    due = bench.host.now_us() + 300_000
    bench.host.write_register(At.DEADLINE, due & 0xFFFFFFFF)
    bench.host.write_register(At.ARMED, 1)
    bench.host.wait_network(None)
    assert bench.host.now_us() >= due
    assert bench.host.read_register(At.CAME_TIME) >= due & 0xFFFFFFFF


def test_time_jumps_to_the_deadline_to_the_cycle(paced: Bench) -> None:
    due = paced.host.now_us() + 3_000_000
    paced.host.write_register(At.DEADLINE, due)
    paced.host.write_register(At.ARMED, 1)
    begin = walltime.monotonic()
    paced.host.wait_network(None)
    assert walltime.monotonic() - begin < 60
    assert paced.host.read_register(At.CAME_TIME) == due
    assert paced.device.cycles < 10_000
    late = paced.time._now_ps() - due * PS_PER_US
    assert late < 1000 * CYCLE_PS


def test_a_wait_ends_at_its_time_and_by_a_wake(bench: Bench) -> None:
    until = bench.host.now_us() + 20_000
    bench.host.wait_network(until)
    assert bench.host.now_us() >= until
    bench.host.wake_network()
    bench.host.wait_network(None)
    waiter = threading.Thread(target=bench.host.wait_network, args=(None,))
    waiter.start()
    bench.host.wake_network()
    waiter.join(30)
    assert not waiter.is_alive()


def test_a_device_that_ends_ends_the_wait(nic_library: Path, tmp_path: Path) -> None:
    bench = Bench(nic_library, tmp_path.name, True)
    bench.close()
    with pytest.raises(DeviceClosed, match="the test is over"):
        bench.host.wait_network(None)


def test_frames_wait_in_the_wire_while_the_device_takes_none(paced: Bench) -> None:
    """More than fit into device and socket; all come, in order."""
    paced.host.write_register(At.ECHO, 1)
    paced.device.hold(transmit=True)
    frames = [number.to_bytes(2) * 700 for number in range(400)]
    left, got = deque(frames), []

    def exchange() -> bool:
        while left and paced.peer.send(left[0]):
            left.popleft()
        while (frame := paced.peer.receive()) is not None:
            got.append(frame)
        return len(got) == len(frames)

    with paced.time.lock:
        # So long that the wire would have carried all of them.
        assert not paced.time._block(exchange, paced.time._now_ps() + 5_000 * PS_PER_US)
        assert not got
        assert paced.card._channel.full
        paced.device.hold()
        paced._wait(exchange)
    assert got == frames
