"""A number of things that tasks take and give back, in the order in which they ask."""

import asyncio
from collections import deque


class Budget:
    """So many of something; who asks for more than is left waits in the queue.

    Parameters
    ----------
    total: how many there are.
    """

    def __init__(self, total: int):
        self.total = self.left = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    async def take(self, count: int = 1) -> None:
        """Takes `count`, at most `total`; raises what `fail` was given."""
        if self._error is not None:
            raise self._error
        if not self._waiting and count <= self.left:
            self.left -= count
            return
        future = asyncio.get_running_loop().create_future()
        entry = (count, future)
        self._waiting.append(entry)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give(count)
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._serve()
            raise

    def give(self, count: int = 1) -> None:
        """Gives back."""
        self.left += count
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.left:
            count, future = self._waiting.popleft()
            if not future.done():
                self.left -= count
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Has all who wait, and all who ask later, raise `error`."""
        self._error = error
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
