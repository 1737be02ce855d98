"""A lock whose waiting threads let simulated time pass."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Waiting(Protocol):
    """What the lock needs of a `CycleTime`."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Guards all that is in it."""
        ...

    def _block_always(self, ready: Callable[[], bool]) -> None: ...

    def _changed(self) -> None: ...


class CycleLock:
    """A re-entrant lock, also for a `threading.Condition`.

    Who has it may wait for something that takes cycles, such as a register. Threads that wait for
    it meanwhile are not waited for, and get it in the order in which they came.
    """

    def __init__(self, timeline: Waiting) -> None:
        self._timeline = timeline
        self._owner: threading.Thread | None = None
        self._depth = 0
        self._queue: deque[threading.Thread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Get it; `False` only if it is not to wait. There is no timeout."""
        if timeout >= 0:
            raise ValueError(f"timeout is {timeout}; allowed: none")
        return self._acquire(1, blocking)

    def _acquire(self, depth: int, blocking: bool) -> bool:
        me = threading.current_thread()
        with self._timeline.lock:
            if self._owner is me:
                self._depth += depth
                return True
            if self._owner is not None:
                if not blocking:
                    return False
                self._queue.append(me)
                self._timeline._block_always(lambda: self._owner is me)
            self._owner, self._depth = me, depth
            return True

    def release(self) -> None:
        """Give it back once."""
        with self._timeline.lock:
            self._require_owned()
            self._depth -= 1
            if not self._depth:
                self._hand_over()

    def _hand_over(self) -> None:
        self._owner = self._queue.popleft() if self._queue else None
        self._timeline._changed()

    def _require_owned(self) -> None:
        if not self._is_owned():
            raise RuntimeError("this thread does not have the lock")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # Of `threading.Condition`, as those of `threading.RLock`.

    def _is_owned(self) -> bool:
        return self._owner is threading.current_thread()

    def _release_save(self) -> int:
        with self._timeline.lock:
            self._require_owned()
            depth, self._depth = self._depth, 0
            self._hand_over()
            return depth

    def _acquire_restore(self, depth: int) -> None:
        self._acquire(depth, True)
