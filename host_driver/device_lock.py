"""The lock of a device, which only the process that opened the device can take."""

import os
import threading

from stagecoach.host_driver.dropped import DroppedObjects
from stagecoach.host_driver.transport.base import DeviceClosed


class DeviceLock:
    """A re-entrant lock. In a child that was forked it raises in place of waiting.

    The threads of the parent are not there in a child, so that nobody would ever release what one
    of them held, nor hear of the device.

    What was dropped open is closed by who takes it or releases it, see `dropped.Droppable`.

    Attributes
    ----------
    dropped: what is to be closed.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0  # how often its thread has it
        self.dropped = DroppedObjects()
        self._process = os.getpid()

    @property
    def is_own(self) -> bool:
        """Whether this is the process that has opened the device."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raises `DeviceClosed` in another process than that which has opened the device."""
        if not self.is_own:
            raise DeviceClosed(
                f"the device was opened by process {self._process}, this is process {os.getpid()}, "
                "forked from it; allowed: calls in the process that opened it"
            )

    def __enter__(self) -> None:
        self.check()
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1 and self.dropped:
            try:
                self.dropped.free()
            except BaseException:
                self._release()
                raise

    def __exit__(self, *_: object) -> None:
        is_outermost = self._depth == 1
        try:
            if is_outermost and self.dropped:
                self.dropped.free()
        finally:
            self._release()
        # What came after that look and before the release found the lock taken.
        if is_outermost:
            self.free_dropped()

    def _release(self) -> None:
        self._depth -= 1
        self._lock.release()

    def free_dropped(self) -> None:
        """Closes what was dropped, unless a call is under way: then that does it as it ends."""
        if self.dropped and self._lock.acquire(blocking=False):
            self._depth += 1
            self.__exit__()
