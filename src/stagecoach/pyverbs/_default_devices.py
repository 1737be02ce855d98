"""The devices of ids that are given none."""

import os
import threading

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

    def take(self, name: str) -> tuple[Context, PD]:
        """The device of that name, opened if it is not; for `give`, with the same name."""
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
            if key not in self._users:
                return
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._open.pop(key)[0].close()


DEFAULT_DEVICES = DefaultDevices()
