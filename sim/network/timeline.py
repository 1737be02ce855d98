"""The time of simulated network cards: that of the wall, or counted in cycles.

Both call their members to serve what is due, and hold the lock under which all of a network's
state is. What blocks does so here.
"""

import contextlib
import math
import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from stagecoach.sim.network.cycle_lock import CycleLock
from stagecoach.sim.wire.clock import CYCLE_PS, CycleClock, WallClock
from stagecoach.sim.wire.impairments import PS_PER_NS

PERIOD = 64
"""Cycles that devices run between two looks at what they sent."""

ROUNDS = 16
"""So often a card is served in wall time before other threads have their turn."""

NAP_SECONDS = 0.005
PATIENCE = 40
"""So many naps a thread may do something else before time goes on without it."""
IDLE_PATIENCE = 400
"""The same before time goes on although no thread waits for it."""


class Member(Protocol):
    """A network card on a timeline; all calls are under its lock."""

    def serve(self) -> bool:
        """Do what is due; whether there was anything."""
        ...

    def next_ps(self) -> int | None:
        """When `serve` has something to do."""
        ...

    def descriptors(self) -> list[tuple[int, bool]]:
        """What tells of something to do: files, and whether they have to be writable, too."""
        ...

    def busy(self) -> bool:
        """Whether the device has something to do in the next cycles."""
        ...

    def pace(self, cycles: int) -> None:
        """Let the device run."""
        ...


class Timeline(Protocol):
    """What a port needs of it."""

    lock: threading.Condition

    def _now_ps(self) -> int:
        """The time."""
        ...

    def _block(
        self, ready: Callable[[], bool], until_ps: int | None = None, *, server: object = None
    ) -> bool:
        """Wait, under the lock, until `ready`; `False` if it is too late before.

        `server` is that for whose threads in `_pause` this thread does something when it returns.
        """
        ...

    def _pause(self, server: object) -> AbstractContextManager[None]:
        """A thread waits in this block for something that the thread of `server` does."""
        ...

    def _new_lock(self) -> Any:
        """A re-entrant lock, for threads that wait for the time while they have it."""
        ...

    def _changed(self) -> None:
        """Something was done, under the lock, that others may wait for."""
        ...


class WallTime:
    """The wall's time, for one card; `_add` begins a thread that serves it."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.clock = WallClock()
        self._member: Member | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._thread: threading.Thread | None = None

    def _now_ps(self) -> int:
        """The time since 1970."""
        return self.clock.now_ps()

    def _add(self, member: Member) -> None:
        """Serve a card from now on."""
        self._member = member
        self._thread = threading.Thread(target=self._run, name="stagecoach wire", daemon=True)
        self._thread.start()

    def _remove(self, member: Member) -> None:
        """Serve it no more."""
        with self.lock:
            self._closed = True
            self._changed()
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake)

    def _block(
        self, ready: Callable[[], bool], until_ps: int | None = None, *, server: object = None
    ) -> bool:
        """Wait, under the lock, until `ready`; `False` if it is too late before."""
        while not ready():
            left = None if until_ps is None else (until_ps - self._now_ps()) / (PS_PER_NS * 1e9)
            if left is not None and left <= 0:
                return False
            self.lock.wait(left)
        return True

    def _pause(self, server: object) -> AbstractContextManager[None]:
        """The wall's time goes on anyway."""
        return contextlib.nullcontext()

    def _new_lock(self) -> Any:
        """The wall's time goes on anyway."""
        return threading.RLock()

    def _changed(self) -> None:
        """Serve the card soon, and let all look again that wait."""
        if threading.current_thread() is not self._thread:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self._wake, 1)
        self.lock.notify_all()

    def _run(self) -> None:
        assert self._member is not None
        while True:
            with self.lock:
                if self._closed:
                    return
                # A card may always have something to do; a thread that takes what came must not
                # wait for the end of it.
                for _ in range(ROUNDS):
                    if not self._member.serve():
                        break
                    self.lock.notify_all()
                else:
                    os.eventfd_write(self._wake, 1)
                due = self._member.next_ps()
                files = self._member.descriptors()
            poller = select.poll()
            poller.register(self._wake, select.POLLIN)
            for file, writable in files:
                poller.register(file, select.POLLIN | (select.POLLOUT if writable else 0))
            wait = None
            if due is not None:
                wait = max(0, math.ceil((due - self._now_ps()) / (PS_PER_NS * 10**6)))
            poller.poll(wait)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)


class _Waiter:
    """A thread in `block`."""

    def __init__(self, ready: Callable[[], bool], until_ps: int | None, server: object) -> None:
        self.thread = threading.current_thread()
        self.ready = ready
        self.until_ps = until_ps
        self.server = server
        self.over = False
        self.result = False


class CycleTime:
    """Time in cycles, for all cards that are joined by wires in this process.

    What happens depends on cycles alone, so that a run repeats exactly: devices run in turn,
    `PERIOD` cycles at a time, and only while all threads wait that were seen to wait before. While
    all devices rest, time jumps to when the next thing is due. A thread that does something else
    for `patience`, or has ended, is not waited for until it is seen again. Time stands still while
    no thread of a program waits for anything, as long as one is seen every two seconds. Timeouts
    are of this time.

    Parameters
    ----------
    patience: seconds of the wall's time, a fifth if `None`. A machine that does other things at
        once may need more; but a thread that waits for another one elsewhere costs as much.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._patience = PATIENCE if patience is None else round(patience / NAP_SECONDS)
        self.lock = threading.Condition()
        self.clock = CycleClock()
        self._members: list[Member] = []
        self._waiters: list[_Waiter] = []
        # Threads that do something, with the naps that they were waited for.
        self._running: dict[threading.Thread, int] = {}
        # Threads in `_pause`, with whose it is; of these, those that are to look again.
        self._paused: dict[threading.Thread, object] = {}
        self._expected: dict[threading.Thread, int] = {}
        # Threads that were in `_block` for others.
        self._servers: dict[threading.Thread, object] = {}
        self._thread: threading.Thread | None = None
        self._idle = 0

    def __repr__(self) -> str:
        return f"<CycleTime: {self.cycles} cycles, {len(self._members)} cards>"

    @property
    def cycles(self) -> int:
        """Cycles that have passed, those in which all devices rested among them."""
        return self.clock.now_ps() // CYCLE_PS

    def _now_ps(self) -> int:
        """The time since the first cycle."""
        return self.clock.now_ps()

    def _add(self, member: Member) -> None:
        """Serve a card from now on."""
        with self.lock:
            self._members.append(member)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="stagecoach cycles", daemon=True
                )
                self._thread.start()
            self.lock.notify_all()

    def _remove(self, member: Member) -> None:
        """Serve it no more; without any the thread ends."""
        with self.lock:
            self._members.remove(member)
            self.lock.notify_all()

    def _block(
        self, ready: Callable[[], bool], until_ps: int | None = None, *, server: object = None
    ) -> bool:
        """Wait, under the lock, until `ready`; `False` if it is too late before."""
        thread = threading.current_thread()
        if ready():
            self._running[thread] = 0
            self._expect(thread, server)
            return True
        waiter = _Waiter(ready, until_ps, server)
        self._waiters.append(waiter)
        self._running.pop(thread, None)
        self._expected.pop(thread, None)
        self.lock.notify_all()
        while not waiter.over:
            self.lock.wait()
        return waiter.result

    def _block_always(self, ready: Callable[[], bool]) -> None:
        """As `_block`, also when no card is there any more."""
        while not ready():
            if self._thread is not None:
                self._block(ready)
            else:
                self.lock.wait()

    def _new_lock(self) -> Any:
        """A lock that is waited for as in `_block`."""
        return CycleLock(self)

    def _expect(self, server_thread: threading.Thread, server: object) -> None:
        """The thread of a server goes on: those that wait for what it does look again."""
        if server is not None:
            self._servers[server_thread] = server
            for thread, paused in self._paused.items():
                if paused is server:
                    self._expected[thread] = 0

    @contextlib.contextmanager
    def _pause(self, server: object) -> Iterator[None]:
        """A thread waits in this block for something that the thread of `server` does."""
        thread = threading.current_thread()
        with self.lock:
            self._running.pop(thread, None)
            self._paused[thread] = server
            self.lock.notify_all()
        try:
            yield
        finally:
            with self.lock:
                del self._paused[thread]
                self._expected.pop(thread, None)
                self._running[thread] = 0

    def _changed(self) -> None:
        """Something was done that others may wait for; they are looked at before time goes on."""
        self.lock.notify_all()

    def _run(self) -> None:
        with self.lock:
            while self._members:
                if self._all_wait():
                    self._advance()
            self._thread = None
            # Nobody is left to let time pass: what waits for it is too late.
            for waiter in self._waiters:
                self._end(waiter)
            self.lock.notify_all()

    def _all_wait(self) -> bool:
        """Wakes those that have what they wait for; whether time may go on."""
        woken = False
        now = self._now_ps()
        for waiter in list(self._waiters):
            late = waiter.until_ps is not None and now >= waiter.until_ps
            if waiter.ready() or late:
                self._end(waiter)
                woken = True
        if woken:
            self._idle = 0
            self.lock.notify_all()
        if self._running or self._is_expected():
            self._idle = 0
            if not self.lock.wait(NAP_SECONDS):
                for threads in (self._running, self._expected):
                    self._lose_patience(threads)
            return False
        if self._paused or any(waiter.server is None for waiter in self._waiters):
            self._idle = 0
            return True
        if self._idle < IDLE_PATIENCE:
            self._idle += not self.lock.wait(NAP_SECONDS)
            return False
        return True

    def _is_expected(self) -> bool:
        """Whether a thread is to look again at what a server has done, or is doing.

        One that waits in the middle of it, for a register for example, has not done it yet.
        """
        waiting = {self._servers.get(each.thread) for each in self._waiters if each.server is None}
        return any(self._paused[thread] not in waiting for thread in self._expected)

    def _end(self, waiter: _Waiter) -> None:
        waiter.over, waiter.result = True, waiter.ready()
        self._waiters.remove(waiter)
        self._running[waiter.thread] = 0
        self._expect(waiter.thread, waiter.server)

    def _lose_patience(self, threads: dict[threading.Thread, int]) -> None:
        for thread in list(threads):
            threads[thread] += 1
            if threads[thread] > self._patience or not thread.is_alive():
                del threads[thread]

    def _advance(self) -> None:
        """A period if a device does something, else up to when the next thing is due."""
        busy = [member for member in self._members if member.busy()]
        if busy:
            for member in busy:
                member.pace(PERIOD)
            self.clock.advance(PERIOD)
        else:
            times = [member.next_ps() for member in self._members]
            times += [waiter.until_ps for waiter in self._waiters]
            due = min((time for time in times if time is not None), default=None)
            if due is None:
                self.lock.wait(NAP_SECONDS)
                return
            # Something that is late, such as a peer without room, does not stop the time.
            self.clock.advance(max(1, -(-due // CYCLE_PS) - self.cycles))
        # What one sends may be there for the other one at once.
        while sum(member.serve() for member in self._members):
            pass
