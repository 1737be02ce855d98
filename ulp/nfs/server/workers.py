"""Threads in which file operations are done, shared fairly among clients."""

import asyncio
import ctypes
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from stagecoach.ulp.nfs.threads import finished

T = TypeVar("T")

THREADS = 8
_CLONE_FS = 0x200

_libc = ctypes.CDLL(None, use_errno=True)
_libc.unshare.argtypes = (ctypes.c_int,)


class Workers:
    """A few threads; a client that wants much waits for itself, and for nobody else.

    Clients take turns, and no client has more than half of the threads at a time. The threads have
    a umask of their own, 0, as far as the system lets them: files are made with the rights that
    were asked for, and the rest of the process keeps its umask.

    Parameters
    ----------
    threads: at most so many, 2 or more.

    Attributes
    ----------
    umask: of the process when this was made.
    """

    def __init__(self, threads: int = THREADS):
        if threads < 2:
            raise ValueError(f"threads is {threads}; allowed: 2 or more")
        self.umask = _umask()
        self._most, self._most_each = threads, threads // 2
        self._threads: list[threading.Thread] = []
        self._idle = self._pending = 0
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = (
            OrderedDict()
        )
        self._busy: dict[Hashable, int] = {}
        self._closed = False

    async def run(self, client: Hashable, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns. If cancelled, it ends when the thread has, or never began."""
        future = self._submit(client, lambda: work(*arguments))
        return await finished(asyncio.wrap_future(future), future.cancel)

    def _submit(self, client: Hashable, work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the threads are closed; allowed: an export that is open")
            self._waiting.setdefault(client, deque()).append((future, work))
            self._pending += 1
            if self._pending > self._idle and len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name="nfs files", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return future

    def _next(self) -> tuple[Hashable, "Future[Any]", Callable[[], Any]] | None:
        """What is to be done next: that of the client whose turn is the longest ago."""
        for client, queue in self._waiting.items():
            if self._busy.get(client, 0) < self._most_each:
                future, work = queue.popleft()
                if queue:
                    self._waiting.move_to_end(client)
                else:
                    del self._waiting[client]
                self._busy[client] = self._busy.get(client, 0) + 1
                self._pending -= 1
                return client, future, work
        return None

    def _run(self) -> None:
        if _libc.unshare(_CLONE_FS) == 0:
            os.umask(0)
        while True:
            with self._changed:
                self._idle += 1
                while (found := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait()
                self._idle -= 1
            client, future, work = found
            _do(future, work)
            with self._changed:
                self._busy[client] -= 1
                if not self._busy[client]:
                    del self._busy[client]
                self._changed.notify()

    def close(self) -> None:
        """Ends the threads when they have done what was asked for. Repeatable."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()


def _do(future: "Future[Any]", work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def _umask() -> int:
    """The umask of the process, which only Linux tells without a change of it."""
    with open("/proc/self/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o077
