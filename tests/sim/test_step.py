"""Two devices that keep in step: what they do depends on cycles, not on how fast anything runs."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver.transport.base import DeviceClosed, TransportError
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.transport import SimulatedDevice
from tests.sim.conftest import STUB_CONFIG

ANEW, IRQ, CYCLES = 0x24, 0x20, 0x2C
PERIOD = 32

pytestmark = pytest.mark.timeout(120)


def pair(connect: Callable[[SimulatedDevice, SocketStream], None], *devices) -> None:
    for device, end in zip(devices, socket.socketpair(), strict=True):
        connect(device, SocketStream(end))


@pytest.fixture
def devices(stub_library: Path) -> Iterator[tuple[SimulatedDevice, SimulatedDevice]]:
    with (
        SimulatedDevice(STUB_CONFIG, library=stub_library) as here,
        SimulatedDevice(STUB_CONFIG, library=stub_library) as there,
    ):
        yield here, there


@pytest.fixture
def in_step(devices):
    pair(SimulatedDevice.run_in_step, *devices)
    return devices


class Waiting:
    """A call in a thread of its own, which the end of its device may end."""

    def __init__(self, call: Callable[[], object]):
        self._call = call
        self.error: TransportError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except DeviceClosed as error:
            self.error = error

    def is_over(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


def test_no_cycle_passes_while_nobody_waits(in_step):
    for device in in_step:
        before = device.cycles
        time.sleep(0.05)
        assert device.cycles == before


def test_neither_is_ahead_by_more_than_a_period(in_step):
    here, there = in_step
    before = here.cycles
    waiting = Waiting(lambda: here.run_cycles(10 * PERIOD))
    assert not waiting.is_over(0.2)
    # It has come to the end of its first period: the other one has not begun.
    assert here.cycles == before
    there.run_cycles(4 * PERIOD)
    assert not waiting.is_over(0.2)
    assert 3 * PERIOD <= here.cycles - before <= 4 * PERIOD
    there.run_cycles(6 * PERIOD)
    assert waiting.is_over(10)
    assert here.cycles == before + 10 * PERIOD


def test_a_register_access_takes_the_same_cycles_each_time(in_step):
    here, there = in_step
    company = Waiting(lambda: there.run_cycles(2000))
    read = []
    for pause in (0.0, 0.01, 0.0, 0.02):
        time.sleep(pause)
        read.append(here.read_register(CYCLES))
    assert len({after - before for before, after in itertools.pairwise(read)}) == 1
    here.run_freely()
    assert company.is_over(10)


def test_an_interrupt_stops_the_time(in_step):
    here, there = in_step
    company = Waiting(lambda: there.run_cycles(100_000))
    here.write_register(IRQ, 1)
    assert here.wait_interrupt(5)
    before = here.cycles
    time.sleep(0.05)
    assert here.cycles == before
    here.write_register(IRQ, 0)
    # Now the time passes until the wait is over.
    assert not here.wait_interrupt(0.05)
    after = here.cycles
    assert after > before
    time.sleep(0.05)
    assert here.cycles == after
    here.run_freely()
    assert company.is_over(10)


def round_trips(library: Path, pauses: list[float]) -> list[int]:
    """Cycles until octets that a device echoes are echoed by the other one, for ever."""
    with (
        SimulatedDevice(STUB_CONFIG, library=library) as here,
        SimulatedDevice(STUB_CONFIG, library=library) as there,
    ):
        for device in (here, there):
            device.write_register(ANEW, 1)
        ends = socket.socketpair()
        ends[1].sendall(b"round and round and round")  # for `here`
        for device in (here, there):
            device.run_cycles(1000)
        pair(SimulatedDevice.run_in_step, here, there)
        for device, end in zip((here, there), ends, strict=True):
            device.attach(1, SocketStream(end))
        company = Waiting(lambda: there.run_cycles(1 << 40))
        seen = []
        for pause in pauses:
            time.sleep(pause)
            here.run_cycles(200)
            seen.append(here.statistics()["connections"][0]["tx_octets"])
        here.run_freely()
        there.close()
        assert company.is_over(10)
    return seen


def test_what_is_received_depends_on_cycles_alone(stub_library):
    found = [
        round_trips(stub_library, pauses)
        for pauses in ([0.0] * 12, [0.0, 0.01, 0.0, 0.02] * 3, [0.0] * 12)
    ]
    assert found[0] == found[1] == found[2]
    # An echo crosses once in one or two periods.
    assert found[0][-1] > found[0][0] > 0


@pytest.mark.parametrize("end", ["run_freely", "close", "detach"])
def test_it_ends_at_both_ends(in_step, end):
    here, there = in_step
    if end == "detach":
        ours, theirs = socket.socketpair()
        with ours:
            here.attach(1, SocketStream(theirs))
            here.detach(1)
    else:
        getattr(here, end)()
    there.run_cycles(10 * PERIOD)


def test_a_device_that_waits_for_the_other_can_be_closed(devices):
    pair(SimulatedDevice.run_in_step, *devices)
    here, _ = devices
    waiting = Waiting(lambda: here.run_cycles(10 * PERIOD))
    assert not waiting.is_over(0.1)
    here.close()
    assert waiting.is_over(10)
    assert "the device is closed" in str(waiting.error)


def test_a_second_time_is_refused(in_step):
    here, _ = in_step
    ours, theirs = socket.socketpair()
    with ours, SocketStream(theirs) as stream:
        with pytest.raises(TransportError, match="keeps in step already"):
            here.run_in_step(stream)
