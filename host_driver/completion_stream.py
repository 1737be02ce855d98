"""Completions for an event loop: `async for wc in cq.stream()`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.wr import WC

Waker = Callable[[Exception | None], None]
"""Is called once, from any thread, when there may be something to poll, or with what went wrong."""

_TURN = 64
"""Completions after which the other tasks of the loop have a turn."""


class StreamedCQ(Protocol):
    """The CQ of a stream."""

    context: Context

    def poll(self, num_entries: int = ..., /) -> list[WC]:
        """Completions that are there."""

    def _add_waker(self, waker: Waker) -> None:
        """Calls it when a completion is there."""

    def _remove_waker(self, waker: Waker) -> None:
        """Takes back `_add_waker`."""


class CompletionStream:
    """An asynchronous iterator over the completions of a CQ, which ends with the CQ or an error.

    Nothing is held between two steps: it can be left, and its task cancelled, at any time. What
    was not returned is in the CQ. So `aclose` has nothing to free: no step begins after it.
    """

    def __init__(self, cq: StreamedCQ):
        self._cq = cq
        self._taken = 0
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        """Ends the iteration, as that of a generator; a step that waits goes on."""
        self._closed = True

    async def __anext__(self) -> WC:
        if self._closed:
            raise StopAsyncIteration
        # Before it takes one: a task that is cancelled here has taken none.
        if self._taken >= _TURN:
            self._taken = 0
            await asyncio.sleep(0)
        while not (found := self._cq.poll(1)):
            self._taken = 0
            await _completion(self._cq)
        self._taken += 1
        return found[0]


async def _completion(cq: StreamedCQ) -> None:
    """Returns when there may be something to poll; takes nothing."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if there.done():
            return
        if error is None:
            there.set_result(None)
        else:
            there.set_exception(error)

    def wake(error: Exception | None) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(tell, error)

    watcher = cq.context.watcher
    watcher.join()
    try:
        cq._add_waker(wake)
        try:
            await there
        finally:
            cq._remove_waker(wake)
    finally:
        watcher.leave()
