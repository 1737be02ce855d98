"""The lock of a network, and threads that wait there for something; times are the port's."""

import itertools
import threading
from collections.abc import Callable

from stagecoach.host_driver.network.settings import SECOND_US
from stagecoach.host_driver.transport.base import DeviceClosed, TransportError
from stagecoach.host_driver.transport.network import NetworkPort


class Turn:
    """One lock, under which everything of a network happens.

    Attributes
    ----------
    failure: why there is no network any more.
    """

    def __init__(self, port: NetworkPort):
        self.port = port
        self.lock = port.new_lock()
        self.failure: TransportError | None = None
        self._changed = threading.Condition(self.lock)
        self._waits: dict[int, int | None] = {}  # until when
        self._numbers = itertools.count()

    def require_open(self) -> None:
        """Raises `DeviceClosed` after the end."""
        if self.failure is not None:
            raise DeviceClosed(str(self.failure)) from self.failure

    def explain(self, text: str) -> str:
        """The text of an error that something did not come, and why, if that is the wire."""
        return self.port.link().explain(text)

    def deadline(self, timeout: float | None) -> int | None:
        """Seconds from now as a time of the port."""
        return None if timeout is None else self.port.now_us() + round(timeout * SECOND_US)

    def wait(self, done: Callable[[], bool], until_us: int | None = None) -> bool:
        """Wait, under the lock, until `done`; `False` if it is too late before.

        Raises `DeviceClosed` if the network ends.
        """
        if done():
            return True
        number = next(self._numbers)
        self._waits[number] = until_us
        try:
            self.port.wake()
            while True:
                self.require_open()
                if until_us is not None and self.port.now_us() >= until_us:
                    return done()
                with self.port.pause():
                    self._changed.wait()
                if done():
                    return True
        finally:
            del self._waits[number]

    def notify(self) -> None:
        """Let all threads look again."""
        if self._waits:
            self._changed.notify_all()

    def end(self, failure: TransportError) -> None:
        """There is no network from now on."""
        with self.lock:
            self.failure = self.failure or failure
            self._changed.notify_all()

    def next_us(self, now_us: int) -> int | None:
        """When a thread has to look again; those that are late already have been notified."""
        ends = self._waits.values()
        return min((until for until in ends if until is not None and until > now_us), default=None)
