"""Calls the functions of a program with each asynchronous event of a device, in a thread."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from stagecoach.host_driver.events import AsyncEvent
from stagecoach.host_driver.watcher import Watcher

EventHandler = Callable[[AsyncEvent], None]

_LOG = logging.getLogger(__name__)


class EventHandlers:
    """The handlers of a device; `add`, `remove` and `tell` are called with its lock.

    The thread that calls them begins with the first one and ends with the last one. It holds no
    lock, so a handler may use the device, and may remove itself. Meanwhile `watcher` has a user.
    """

    def __init__(self, watcher: Watcher):
        self._watcher = watcher
        self._handlers: tuple[EventHandler, ...] = ()
        self._events: SimpleQueue[AsyncEvent | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        return bool(self._handlers)

    def add(self, handler: EventHandler) -> None:
        """Has a handler called with all that is told from now on.

        Raises `DeviceClosed` if the watcher is closed.
        """
        if self._thread is None:
            self._watcher.join()
            self._events = SimpleQueue()
            self._thread = threading.Thread(
                target=self._run, args=(self._events,), name="event handlers", daemon=True
            )
            self._thread.start()
        self._handlers += (handler,)

    def remove(self, handler: EventHandler) -> None:
        """Takes back an `add`. Raises `ValueError` if there was none."""
        if handler not in self._handlers:
            raise ValueError(f"{handler!r} is not a registered event handler")
        at = self._handlers.index(handler)
        self._handlers = self._handlers[:at] + self._handlers[at + 1 :]
        if not self._handlers:
            self._end()

    def tell(self, event: AsyncEvent) -> None:
        """Has the handlers called with an event."""
        self._events.put(event)

    def fail(self, error: Exception) -> None:
        """Nothing more is heard of the device."""
        if self._handlers:
            _LOG.error("event handlers hear no more of the device: %s", error)

    def _end(self) -> threading.Thread | None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._events.put(None)
            self._watcher.leave()
        return thread

    def _run(self, events: SimpleQueue[AsyncEvent | None]) -> None:
        while (event := events.get()) is not None:
            for handler in self._handlers:
                try:
                    handler(event)
                except Exception:
                    _LOG.exception("an event handler has failed: %s", event.describe())

    def close(self) -> None:
        """Removes all handlers and waits for one that runs; the caller does not hold the lock.

        The watcher is closed before: nobody adds one meanwhile.
        """
        self._handlers = ()
        thread = self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
