"""A fake device whose interrupt is waited for, as that of a real one: opened, with a QP."""

import threading
import time

from stagecoach.host_driver import registers
from stagecoach.host_driver.transport.base import DeviceClosed
from tests.host_driver.fake_device import FakeDevice


class WaitingDevice(FakeDevice):
    """A `FakeDevice` whose interrupt has a level; it may end by itself.

    Attributes
    ----------
    waits: the names of the threads that called `wait_interrupt`. ended: why the device has ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.ended: str | None = None
        self._changed = threading.Condition()

    def _check(self) -> None:
        if self.ended is not None:
            raise DeviceClosed(self.ended)

    def end(self, why: str) -> None:
        with self._changed:
            self.ended = why
            self._changed.notify_all()

    def write_register(self, address: int, value: int) -> None:
        self._check()
        super().write_register(address, value)
        with self._changed:
            self._changed.notify_all()

    def _interrupt(self, ring: int) -> None:
        super()._interrupt(ring)
        with self._changed:
            self._changed.notify_all()

    def _is_high(self) -> bool:
        return any(registers.INTERRUPT_STATUS.unpack(self._status()).values())

    def _status(self) -> int:
        return self.words[registers.INTERRUPT_STATUS.address]

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        with self._changed:
            self.waits.append(threading.current_thread().name)
            self._changed.wait_for(lambda: self._is_high() or self.ended is not None, timeout)
        self._check()
        return self._is_high()


def watchers() -> list[threading.Thread]:
    """The threads that wait for a device."""
    return [each for each in threading.enumerate() if each.name == "device watcher"]


def no_watcher_is_left(seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while watchers() and time.monotonic() < end:
        time.sleep(0.01)
    return not watchers()
