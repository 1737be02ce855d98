"""The lock of a device, which only the process that opened the device can take."""

import os
import threading

from stagecoach.host_driver.transport.base import DeviceClosed


class DeviceLock:
    """A re-entrant lock. In a child that was forked it raises in place of waiting.

    The threads of the parent are not there in a child, so that nobody would ever release what one
    of them held, nor hear of the device.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
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

    def __exit__(self, *_: object) -> None:
        self._lock.release()
