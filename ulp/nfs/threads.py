"""File operations in threads, which nobody can take the file or the buffer away from."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """As `asyncio.to_thread`, but returns only when the thread has ended, also if cancelled.

    Else a descriptor would be closed, and its number used for another file, before the thread has
    read or written.
    """
    return await finished(asyncio.get_running_loop().run_in_executor(None, work, *arguments))


async def finished(future: "asyncio.Future[T]", give_up: Callable[[], object] = lambda: None) -> T:
    """What a thread returns; the thread has ended when this ends, also if it is cancelled.

    `give_up` is called if it is: what has not begun need not begin.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        give_up()
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # nobody asks for it any more
        raise


def called_in(loop: asyncio.AbstractEventLoop, work: Callable[..., T], *arguments: Any) -> T:
    """From a thread: what `work` returns or raises in an event loop, which must be running."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:
            future.set_exception(error)

    loop.call_soon_threadsafe(call)
    return future.result()
