"""A thread that waits for a device's interrupt on behalf of callers without a thread."""

import threading
import weakref
from typing import Protocol

from stagecoach.host_driver.dropped import is_current
from stagecoach.host_driver.transport.base import DeviceClosed, TransportError

SLICE_SECONDS = 0.1
"""How long the thread waits at a time, and after which it sees that it is no longer wanted."""

_BESIDE_SECONDS = 0.005
"""How long another thread waits at a time beside it."""


class Watched(Protocol):
    """The device of a watcher."""

    def _wait_for_interrupt(self, seconds: float) -> bool:
        """Waits for the interrupt, so many seconds; whether there was one."""

    def _look(self, ask: bool) -> None:
        """Takes what came. With True it also asks the device for what it could not write."""

    def _fail(self, error: Exception) -> None:
        """Is told of an exception of either. The thread ends then; the next user begins another."""


class Watcher:
    """Watches a device for those who wait without a thread: in select, or in an event loop.

    The thread begins with its first user, and ends within 0.1 s when it has none. The device has
    one interrupt: while the thread runs, other threads wait beside it and not for the device.

    Parameters
    ----------
    watched: the device. The thread does not keep it alive, but for one wait.
    may_call: whether a thread of the driver may call the device.
    """

    def __init__(self, watched: Watched, may_call: bool = True):
        self._watched = weakref.ref(watched)
        self._may_call = may_call
        self._turn = threading.Condition()  # of what follows; no other lock is taken inside it
        self._users = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def join(self) -> None:
        """One more user.

        Raises `DeviceClosed` if the watcher is closed, `TransportError` if there can be no thread.
        """
        if not self._may_call:
            raise TransportError(
                "threads of the driver cannot call this device; allowed: wait, wait_event, "
                "get_cq_event and get_async_event"
            )
        with self._turn:
            if self._closed:
                raise DeviceClosed("the context is closed; allowed: an open Context")
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="device watcher", daemon=True)
                thread.start()
                self._thread = thread
            self._users += 1

    def leave(self) -> None:
        """Takes back a `join`."""
        with self._turn:
            self._users -= 1

    def wait_beside(self, seconds: float) -> bool | None:
        """Waits until the thread has looked, or a little; `None` at once if there is no thread.

        False only if nothing came in all of the time.
        """
        with self._turn:
            if self._thread is None:
                return None
            looked = self._turn.wait(min(seconds, _BESIDE_SECONDS))
        return looked or seconds > _BESIDE_SECONDS

    def _run(self) -> None:
        ask = False
        try:
            while True:
                with self._turn:
                    self._turn.notify_all()
                    if not self._users or self._closed:
                        # With the lock: who joins after this begins another thread.
                        self._thread = None
                        return
                watched = self._watched()
                if watched is None:
                    return
                watched._look(ask)
                with self._turn:
                    self._turn.notify_all()
                ask = not watched._wait_for_interrupt(SLICE_SECONDS)
                del watched
        except Exception as error:
            with self._turn:
                self._thread = None
                self._turn.notify_all()
            if (told := self._watched()) is not None:
                told._fail(error)

    def close(self) -> None:
        """Ends the thread and waits for that; the caller holds no lock that `look` takes."""
        with self._turn:
            self._closed = True
            thread = self._thread
        if thread is not None and not is_current(thread):
            thread.join()
