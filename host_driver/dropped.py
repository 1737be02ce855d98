"""Objects that a program drops without closing them: a warning tells of each, and it is freed.

A finalizer may run in any thread and in the middle of any call, also in one that is giving the
device a command. So it closes its object only where that is safe: if the lock of the device is free
and the object was dropped by the last reference to it. Else the object is kept, and closed when the
call that has the lock ends, or when the next one begins.
"""

import logging
import sys
import threading
import warnings
import weakref
from collections import deque
from typing import Protocol, TypeVar

from stagecoach.host_driver.errors import ResourceError
from stagecoach.host_driver.transport.base import DeviceClosed

_LOG = logging.getLogger(__name__)


T = TypeVar("T")


def reference_to(opened: T) -> "weakref.ref[T]":
    """A reference that the garbage collector ends before it calls the finalizer of a circle.

    That of an object that was dropped by the last other reference to it is alive then.
    """
    return weakref.ref(opened, _nothing)


def _nothing(_: object) -> None:
    """A callback: references without one may live for longer."""


class Open(Protocol):
    """What is made from a context, and open."""

    def close(self) -> None:
        """Frees it; may be called again."""

    def _free_dropped(self) -> None:
        """The same, without a wait for a peer."""


class DroppedObjects:
    """Those that are to be closed; the caller of `free` holds the lock of their device.

    Adding to it takes no lock.
    """

    def __init__(self) -> None:
        self._objects: deque[Open] = deque()
        self._in_use: list[Open] = []  # by others of them, which come later

    def __bool__(self) -> bool:
        return bool(self._objects)

    def add(self, dropped: Open) -> None:
        """One more."""
        self._objects.append(dropped)

    def free(self) -> None:
        """Closes all of them; one that another one uses is closed after it, whatever their order.

        Nobody is there to raise an error to: it is logged.
        """
        while self._objects:
            each = self._objects.popleft()
            try:
                each._free_dropped()
            except ResourceError:
                self._in_use.append(each)
                continue
            except DeviceClosed:
                pass
            except Exception as error:
                _LOG.error("%r, which was dropped open, cannot be closed: %s", each, error)
            self._objects.extend(self._in_use)
            self._in_use.clear()


class Lock(Protocol):
    """What a finalizer needs of the lock of a device."""

    dropped: DroppedObjects

    @property
    def is_own(self) -> bool:
        """Whether this is the process that has opened the device."""

    def free_dropped(self) -> None:
        """Closes what was dropped, unless a call is under way."""


class Owner(Protocol):
    """What a finalizer needs of a context."""

    frees_at_once: bool
    _closed: bool

    @property
    def lock(self) -> Lock:
        """The lock of the device."""


class Droppable:
    """An object that warns, and is freed, when it is dropped open.

    `_opened` begins that, and `_closed` ends it.
    """

    _closed = True  # until it is open
    _owner: Owner
    _reference: "weakref.ref[Droppable]"

    def _opened(self, owner: Owner) -> None:
        """The object is open: it has something to free."""
        self._owner = owner
        self._reference = reference_to(self)
        self._closed = False

    def close(self) -> None:
        """Frees the object."""
        raise NotImplementedError

    def _free_dropped(self) -> None:
        self.close()

    def __del__(self) -> None:
        if self._closed or sys.is_finalizing():
            return
        owner = self._owner
        if not owner.lock.is_own or owner._closed:
            return
        words = told(self)
        owner.lock.dropped.add(self)
        # The garbage collector has ended the references to what is in a circle. It runs in the
        # middle of anything, also inside a transport.
        if owner.frees_at_once and self._reference() is not None:
            owner.lock.free_dropped()
        warn(words, self, 3)


def told(dropped: object) -> str:
    """What the warning says; before the object is closed."""
    return f"dropped open: {dropped!r}"


def warn(words: str, dropped: object, level: int) -> None:
    """The warning, of the line that dropped the object; `level`: frames up to that."""
    warnings.warn(words, ResourceWarning, stacklevel=level, source=dropped)


def is_current(thread: threading.Thread) -> bool:
    """Whether that is the thread of the caller: a finalizer may run in any."""
    return thread is threading.current_thread()
