"""Finds the files of handles that an earlier run of the server has given out."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress

from stagecoach.ulp.nfs.server.identity import O_NODE
from stagecoach.ulp.nfs.status import NfsError, NfsStatus

Recover = Callable[[int, Collection[bytes]], bytes | None]
"""Given an open file, and the handles that are sought: that of the file, if it is one of them."""

_PATIENCE = 2.0
"""Seconds that a call waits for its file. Then its client is told to try again later."""
_SPARE = 4.0
"""Times that a walk took until the next one: walks take a fifth of the time of a processor."""
_IDLE = 10.0
"""Seconds without work after which the thread ends."""
_MOST_SOUGHT = 10_000
_MOST_GONE = 100_000
"""Handles whose file was not found that are remembered, so that nobody looks for them again."""
_DEEPEST = 256
"""Directories above a file."""

_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LostFiles:
    """Walks through the export in a thread and looks for all files that are sought at that time.

    No memory of an earlier run is needed: a handle has the inode number, by which a file is seen
    in its directory. The thread has the rights of the caller of `find`.

    Parameters
    ----------
    root: the exported directory, which stays open. recover: is called for every file that has the
        inode number of a sought one.
    """

    def __init__(self, root: int, recover: Recover):
        self._root = root
        self._recover = recover
        self._changed = threading.Condition()  # around what follows
        self._sought: dict[bytes, int] = {}
        self._gone: OrderedDict[bytes, None] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.walks = 0

    def find(self, handle: bytes, inode: int) -> None:
        """Returns when the file of a handle was recovered.

        Raises `NfsError`: STALE if it is not below the export, JUKEBOX if that is not known in
        some seconds; the search goes on, and the client tries again (RFC 1813, 2.6).
        """
        end = time.monotonic() + _PATIENCE
        with self._changed:
            if handle not in self._gone and handle not in self._sought:
                self._seek(handle, inode)
            while handle in self._sought:
                left = end - time.monotonic()
                if left <= 0 or self._closed:
                    raise NfsError(NfsStatus.JUKEBOX)
                self._changed.wait(left)
            if handle in self._gone:
                raise NfsError(NfsStatus.STALE)

    def _seek(self, handle: bytes, inode: int) -> None:
        if len(self._sought) >= _MOST_SOUGHT:
            raise NfsError(NfsStatus.JUKEBOX)
        self._sought[handle] = inode
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nfs lost files", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def gone(self, handle: bytes) -> None:
        """Notes that the file of a handle is not there: nobody has to look for it."""
        with self._changed:
            self._gone[handle] = None
            self._gone.move_to_end(handle)
            if len(self._gone) > _MOST_GONE:
                self._gone.popitem(last=False)

    def back(self, handle: bytes) -> None:
        """Takes that back, for a file that was found by its name."""
        with self._changed:
            self._gone.pop(handle, None)
            if self._sought.pop(handle, None) is not None:
                self._changed.notify_all()

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            begun = time.monotonic()
            self.walks += 1
            self._walk(wanted)
            with self._changed:
                for handle in wanted:
                    if self._sought.pop(handle, None) is not None:
                        self.gone(handle)
                self._changed.notify_all()
                pause = _SPARE * (time.monotonic() - begun)
                self._changed.wait_for(lambda: self._closed, pause)

    def _next(self) -> dict[bytes, int] | None:
        """What is sought, as soon as something is; `None` if the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._sought or self._closed, _IDLE)
            if self._closed or not self._sought:
                self._thread = None
                return None
            return dict(self._sought)

    def _walk(self, wanted: dict[bytes, int]) -> None:
        inodes = frozenset(wanted.values())
        with suppress(OSError):
            above = [(os.open(".", _LISTED, dir_fd=self._root), [b"."])]
            try:
                while above and self._is_sought(wanted):
                    directory, names = above[-1]
                    if not names:
                        os.close(above.pop()[0])
                        continue
                    with suppress(OSError):  # gone, or nobody may list it
                        fd = os.open(names.pop(), _LISTED, dir_fd=directory)
                        if len(above) > _DEEPEST:
                            os.close(fd)
                            continue
                        above.append((fd, []))
                        above[-1] = (fd, self._look(fd, inodes, wanted))
            finally:
                for fd, _ in above:
                    os.close(fd)

    def _is_sought(self, wanted: Collection[bytes]) -> bool:
        with self._changed:
            return not self._closed and any(handle in self._sought for handle in wanted)

    def _look(self, fd: int, inodes: Collection[int], wanted: Collection[bytes]) -> list[bytes]:
        """Looks at an open directory and what is in it; returns the directories there."""
        # Of another file system its number here is not that in the directory above.
        if os.fstat(fd).st_ino in inodes:
            self._found(fd, wanted)
        below: list[bytes] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below.append(os.fsencode(entry.name))
                elif entry.inode() in inodes:
                    self._look_at(fd, entry.name, wanted)
        return below

    def _look_at(self, directory: int, name: str, wanted: Collection[bytes]) -> None:
        with suppress(OSError):
            fd = os.open(name, O_NODE, dir_fd=directory)
            try:
                self._found(fd, wanted)
            finally:
                os.close(fd)

    def _found(self, fd: int, wanted: Collection[bytes]) -> None:
        handle = self._recover(fd, wanted)
        if handle is not None:
            self.back(handle)

    def close(self) -> None:
        """Ends the thread, for which it waits, and all that wait for a file."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()
