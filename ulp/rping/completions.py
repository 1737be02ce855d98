"""The completions of all links of a device: one CQ, from which any waiter takes for all."""

import math
import time
from collections import deque
from contextlib import suppress
from threading import Condition

from stagecoach.host_driver import CQ, QP, WC, Context, WaitTimeout

_SLICE = 1.0
"""Seconds after which a thread that waits for the device looks whether it is still to wait."""


class Completions:
    """Keeps completions apart by QP. Threads share it, each waiting for those of its own QPs.

    One of the threads that wait asks the device; the others wait for it, and one of them goes on
    when it has got its own.

    Parameters
    ----------
    context: the open device. entries: of the CQ, for all QPs together.
    """

    def __init__(self, context: Context, entries: int):
        self.cq = CQ(context, entries)
        self._turn = Condition()
        self._led = False  # a thread asks the device
        self._queues: dict[int, deque[WC]] = {}

    def add(self, qp: QP) -> None:
        """Keeps completions of a QP from now on; those of an earlier one of its number are gone."""
        with self._turn:
            self._take()
            self._queues[qp.qp_num] = deque()

    def remove(self, qp: QP) -> None:
        """The inverse of `add`."""
        with self._turn:
            self._queues.pop(qp.qp_num, None)
            self._turn.notify_all()

    def next(self, qp: QP, seconds: float = math.inf) -> WC | None:
        """The next completion of a QP that was added; `None` if there is none in time.

        Raises `ValueError` or `StagecoachError` if the QP, or the device, is closed meanwhile.
        """
        end = time.monotonic() + seconds
        with self._turn:
            while True:
                if not (queue := self._queue(qp)):
                    self._take()
                if queue:
                    return queue.popleft()
                left = end - time.monotonic()
                if left <= 0:
                    return None
                if self._led:
                    self._turn.wait(min(left, _SLICE))
                else:
                    self._lead(queue, min(left, _SLICE))

    def _queue(self, qp: QP) -> deque[WC]:
        try:
            return self._queues[qp.qp_num]
        except KeyError:
            raise ValueError(f"QP {qp.qp_num} is closed; allowed: one that was added") from None

    def _take(self) -> None:
        found = self.cq.poll(self.cq.cqe)
        for each in found:
            queue = self._queues.get(each.qp_num)
            if queue is not None:
                queue.append(each)
        if found:
            self._turn.notify_all()

    def _lead(self, queue: deque[WC], seconds: float) -> None:
        """Waits for the device, without the lock, until something is completed."""
        self._led = True
        try:
            self.cq.req_notify()
            self._take()
            if queue:
                return
            self._turn.release()
            try:
                with suppress(WaitTimeout):
                    self.cq.wait_event(seconds)
            finally:
                self._turn.acquire()
        finally:
            self._led = False
            self._turn.notify_all()

    def close(self) -> None:
        """Frees the CQ, when the QPs are closed."""
        self.cq.close()
