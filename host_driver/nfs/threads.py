"""File operations in threads, which nobody can take the file or the buffer away from."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """As `asyncio.to_thread`, but returns only when the thread has ended, also if cancelled.

    Else a descriptor would be closed, and its number used for another file, before the thread has
    read or written.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # nobody asks for it any more
        raise
