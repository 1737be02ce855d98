"""Completion channels: one place to wait for the notifications of several CQs."""

from collections import deque
from typing import Self
from weakref import WeakValueDictionary, ref

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.dropped import Droppable
from stagecoach.host_driver.errors import require_type
from stagecoach.host_driver.readable import Readable


class CompChannel(Droppable):
    """Gets the notifications that `CQ.req_notify` asks for, of the CQs that were made with it.

    `fileno()` makes it an object for `select`, `selectors` and `loop.add_reader`.

    Parameters
    ----------
    context: the open device; closing it closes the channel.
    """

    def __init__(self, context: Context):
        require_type("context", context, Context)
        self.context = context
        # A CQ has its channel, so this does not have its CQs.
        self._cqs: WeakValueDictionary[int, CQ] = WeakValueDictionary()
        self._events: deque[ref[CQ]] = deque()
        self._readable: Readable | None = None
        self._error: Exception | None = None
        with context.lock:
            context._require_open()
            context.channels[self] = None
            context._adopt(self)
            self._opened(context)

    def __repr__(self) -> str:
        numbers = ", ".join(map(str, self._cqs)) or "none"
        return f"<CompChannel of CQs: {numbers}{', closed' if self._closed else ''}>"

    def _require_open(self) -> None:
        """Raises `ValueError` if the channel is closed."""
        if self._closed:
            raise ValueError("the completion channel is closed; allowed: an open CompChannel")

    # For its CQs; the lock of the context is held

    def _bind(self, cq: CQ) -> None:
        """A new CQ notifies here."""
        self._require_open()
        if cq.context is not self.context:
            raise ValueError(
                "the channel belongs to another device; allowed: one of the CQ's device"
            )
        self._cqs[cq.number] = cq

    def _unbind(self, cq: CQ) -> None:
        """The CQ is closed: nothing of it is told any more."""
        self._cqs.pop(cq.number, None)
        self._events = deque(each for each in self._events if each() not in (cq, None))
        self._show()

    def _add(self, cq: CQ) -> None:
        """The CQ has what its `req_notify` asked for."""
        self._events.append(ref(cq))
        self._show()

    def _fail(self, error: Exception) -> None:
        """Nothing more is heard of the device."""
        self._error = error
        self._show()

    def _show(self) -> None:
        if self._readable is not None:
            self._readable.set(bool(self._events) or self._error is not None)

    # For the program

    def get_cq_event(self, expected_cq: CQ | None = None, timeout: float = 10.0) -> CQ:
        """Waits for the next notification and returns its CQ, for `CQ.poll` and `CQ.req_notify`.

        With `expected_cq` it is the next one of that CQ; those of others stay in the channel. With
        a timeout of 0 it takes one that is there.

        Raises `WaitTimeout` if none comes within `timeout` seconds, `ValueError` if the channel is
        closed, also while this waits, or `expected_cq` has another channel or is closed; and what
        went wrong with the device, if the channel has a file descriptor.
        """
        if expected_cq is not None:
            require_type("expected_cq", expected_cq, CQ)
        taken: list[CQ] = []

        def take() -> bool:
            if not taken:
                taken.extend(self._take(expected_cq))
            return bool(taken)

        self.context.wait_until(take, timeout, "completion channel")
        return taken[0]

    def _take(self, expected: CQ | None) -> list[CQ]:
        """The next event, if it is there."""
        with self.context.lock:
            self._require_open()
            if expected is not None and expected not in self._cqs.values():
                raise ValueError(
                    f"CQ {expected.number} does not notify here; allowed: an open CQ that was made "
                    "with this channel"
                )
            for at, each in enumerate(self._events):
                cq = each()
                if cq is not None and (expected is None or cq is expected):
                    del self._events[at]
                    self._show()
                    cq._event_taken()
                    return [cq]
            if self._error is not None:
                raise self._error
            return []

    def fileno(self) -> int:
        """A descriptor that is readable while a notification is in the channel, or an error.

        Take it with `get_cq_event(timeout=0)`; do not read from the descriptor. From the first call
        until the channel is closed a thread waits for the device. Unregister it before you close
        the channel. Not for a device in a cocotb test, which has no time of its own.

        Raises `ValueError` if the channel is closed.
        """
        with self.context.lock:
            self._require_open()
            if self._readable is None:
                readable = Readable()
                try:
                    self.context.watcher.join()
                except BaseException:
                    readable.close()
                    raise
                self._readable = readable
                self._show()
            return self._readable.fileno()

    def close(self) -> None:
        """Frees the channel. Its CQs stay open and notify nobody any more; may be called again."""
        with self.context.lock:
            if self._closed:
                return
            self._closed = True
            self.context._forget(self)
            self.context.channels.pop(self, None)
            for cq in self._cqs.values():
                cq._forget_notify()
            self._cqs.clear()
            self._events.clear()
            if self._readable is not None:
                self.context.watcher.leave()
                self._readable.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
