"""Remote procedure calls without asyncio: an event loop in a thread does them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.program import Procedure, Program

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class LoopThread:
    """An event loop in a thread of its own, until `close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rpc", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there, returns or raises what it does; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the thread. Repeatable."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class BlockingRpcClient:
    """An `RpcClient` for programs without an event loop; its calls may come from many threads.

    Parameters
    ----------
    connect: makes the client, in the event loop.
    """

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, RpcClient]]):
        self._thread = LoopThread()
        try:
            self._client = self._thread.run(connect())
        except BaseException:
            self._thread.close()
            raise

    def call(
        self,
        program: Program,
        procedure: Procedure[A, R],
        arguments: A,
        *,
        into: Sequence[memoryview] = (),
        result_octets: int | None = None,
    ) -> R:
        """As `RpcClient.call`."""
        call = self._client.call(
            program, procedure, arguments, into=into, result_octets=result_octets
        )
        return self._thread.run(call)

    def close(self) -> None:
        """Closes the connection. Repeatable."""
        if not self._thread.loop.is_closed():
            self._thread.run(self._client.close())
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
