"""Takes completions from the device and hands them to the event loops of their connections."""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import ClassVar, Protocol, Self

from stagecoach.host_driver import CQ, QP, WC, Context, QPState, StagecoachError, WaitTimeout

_EVENT_SECONDS = 0.1
"""How long the thread waits for an event before it looks whether it is to end."""


class Receiver(Protocol):
    """A connection that completions are for; both methods are called in its loop."""

    qp: QP
    loop: asyncio.AbstractEventLoop

    def deliver(self, completions: list[WC]) -> None:
        """Completions of its QP, in their order."""

    def lost(self, why: str) -> None:
        """The QP has stopped, or the device is gone; may come more than once."""


class CompletionPump:
    """One CQ and one thread for all connections of a device.

    Attributes
    ----------
    cq: of the QPs whose connections are added.
    """

    _pumps: ClassVar[dict[Context, "CompletionPump"]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, context: Context, cq: CQ):
        self.cq = cq
        self._context = context
        self._users = 0
        self._receivers: dict[int, Receiver] = {}
        self._taking = threading.Lock()  # held from the CQ to the receivers
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="rpcrdma completions", daemon=True)

    @classmethod
    def acquire(cls, context: Context) -> "CompletionPump":
        """The pump of a device, which runs until every user has called `release`."""
        with cls._lock:
            pump = cls._pumps.get(context)
            if pump is None or not pump._thread.is_alive():
                pump = cls._pumps[context] = cls(context, CQ(context))
                pump._thread.start()
            pump._users += 1
            return pump

    def release(self) -> None:
        """The last one ends the thread, for which it waits, and closes the CQ."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if self._pumps.get(self._context) is self:
                del self._pumps[self._context]
        self._stopping = True
        self._thread.join()
        with suppress(StagecoachError):  # the device is closed
            self.cq.close()

    def add(self, receiver: Receiver) -> None:
        """Hands the completions of this connection's QP to it, which has none posted before.

        Those that are in the CQ are of an earlier QP of its number. Raises what `CQ.poll` does.
        """
        with self._taking:
            try:
                self._take_all()
            except (StagecoachError, ValueError) as error:
                self._lose(error)
                raise
            self._receivers[receiver.qp.qp_num] = receiver

    def remove(self, receiver: Receiver) -> None:
        """The inverse of `add`, before the QP is closed."""
        with self._taking:
            self._receivers.pop(receiver.qp.qp_num, None)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.cq.req_notify()
                if not self._take():
                    with suppress(WaitTimeout):
                        self.cq.wait_event(_EVENT_SECONDS)
                    self._take()
                self._look_for_stopped()
        except (StagecoachError, ValueError) as error:
            # The device, or its CQ, is closed or does not do what it must.
            with self._taking:
                self._lose(error)

    def _lose(self, error: Exception) -> None:
        for receiver in self._receivers.values():
            _call(receiver, receiver.lost, f"{type(error).__name__}: {error}")

    def _take(self) -> bool:
        with self._taking:
            return self._take_all()

    def _take_all(self) -> bool:
        some = False
        while found := self.cq.poll(64):
            some = True
            for number, completions in groupby(found, attrgetter("qp_num")):
                receiver = self._receivers.get(number)
                if receiver is not None:
                    _call(receiver, receiver.deliver, list(completions))
        return some

    def _look_for_stopped(self) -> None:
        receivers = list(self._receivers.values())
        stopped = [each for each in receivers if each.qp.state is QPState.ERR]
        if stopped:
            # What came before the end is told before it.
            self._take()
        for receiver in stopped:
            # Without receives posted nothing is flushed that would tell.
            _call(receiver, receiver.lost, "the QP has stopped")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _call(receiver: Receiver, method: object, argument: str | Iterable[WC]) -> None:
    with suppress(RuntimeError):  # its loop is closed
        receiver.loop.call_soon_threadsafe(method, argument)  # type: ignore[arg-type]
