"""The devices of ids that are given none."""

import os
import threading
from collections import deque

from stagecoach.pyverbs.device import Context
from stagecoach.pyverbs.pd import PD


class DefaultDevices:
    """The default devices that ids have opened: each once in a process, with one PD.

    As in librdmacm, ids share them; the last one closes them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, str], tuple[Context, PD]] = {}
        self._users: dict[tuple[int, str], int] = {}
        self._dropped: deque[tuple[int, str]] = deque()  # by ids that nobody refers to any more

    def take(self, name: str) -> tuple[Context, PD]:
        """The device of that name, opened if it is not; for `give`, with the same name."""
        self._give_dropped()
        key = os.getpid(), name
        with self._lock:
            if key not in self._open:
                context = Context(name=name)
                self._open[key] = context, PD(context)
            self._users[key] = self._users.get(key, 0) + 1
            return self._open[key]

    def give(self, name: str) -> None:
        """Takes back `take`; in a child that was forked since, nothing is its own to close."""
        key = os.getpid(), name
        with self._lock:
            device = self._give(key)
            if device is not None:
                device[0].close()
        self._give_dropped()

    def give_dropped(self, name: str) -> None:
        """As `give`, for the finalizer of an id, which may run inside a call of this.

        It closes nothing: a device that nobody refers to any more closes itself.
        """
        self._dropped.append((os.getpid(), name))
        self._give_dropped()

    def _give_dropped(self) -> None:
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                given = [self._give(self._dropped.popleft())]
            finally:
                self._lock.release()
            given.clear()  # without the lock

    def _give(self, key: tuple[int, str]) -> tuple[Context, PD] | None:
        """The device, if that was its last user; the lock is held."""
        if key not in self._users:
            return None
        self._users[key] -= 1
        if self._users[key]:
            return None
        del self._users[key]
        return self._open.pop(key)


DEFAULT_DEVICES = DefaultDevices()
