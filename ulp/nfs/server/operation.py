"""One call on its way: its files, and what their attributes were before (wcc_data)."""

import contextlib
import os
import stat
from collections.abc import Callable
from typing import Any

from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.attributes import (
    FileAttributes,
    FileType,
    NfsTime,
    SpecData,
    WccAttributes,
    WccData,
)
from stagecoach.ulp.nfs.server.export import Export, OpenFile
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.server import Request

_BLOCK = 512
"""Bytes of a block in st_blocks."""

_TYPES = {
    stat.S_IFREG: FileType.REG,
    stat.S_IFDIR: FileType.DIR,
    stat.S_IFBLK: FileType.BLK,
    stat.S_IFCHR: FileType.CHR,
    stat.S_IFLNK: FileType.LNK,
    stat.S_IFSOCK: FileType.SOCK,
    stat.S_IFIFO: FileType.FIFO,
}


def attributes_of(status: os.stat_result) -> FileAttributes:
    """fattr3 of what `os.stat` found."""
    return FileAttributes(
        type=_TYPES[stat.S_IFMT(status.st_mode)],
        mode=stat.S_IMODE(status.st_mode),
        nlink=min(status.st_nlink, (1 << 32) - 1),
        uid=status.st_uid,
        gid=status.st_gid,
        size=status.st_size,
        used=status.st_blocks * _BLOCK,
        rdev=SpecData(os.major(status.st_rdev), os.minor(status.st_rdev)),
        fsid=status.st_dev,
        fileid=status.st_ino,
        atime=NfsTime.from_ns(status.st_atime_ns),
        mtime=NfsTime.from_ns(status.st_mtime_ns),
        ctime=NfsTime.from_ns(status.st_ctime_ns),
    )


class Operation:
    """The files of a call, in the order in which they were found, open until it is answered.

    All methods that take a handle raise `NfsError`: BADHANDLE, STALE, or what they say.

    Parameters
    ----------
    request: whose call it is. buffer: memory for the data of the reply; may be called in a thread.
    """

    def __init__(self, export: Export, request: Request, buffer: Callable[[int], memoryview]):
        self.export = export
        self.request = request
        self.buffer = buffer
        self._found: list[tuple[OpenFile, WccAttributes]] = []
        self._open = contextlib.ExitStack()

    def node(self, handle: bytes) -> OpenFile:
        """The file of a handle."""
        file = self.held(self.export.find(handle))
        status = file.stat()
        before = WccAttributes(
            status.st_size,
            NfsTime.from_ns(status.st_mtime_ns),
            NfsTime.from_ns(status.st_ctime_ns),
        )
        self._found.append((file, before))
        return file

    def held(self, file: OpenFile) -> OpenFile:
        """Keeps a file open until the call is answered."""
        self._open.callback(file.close)
        return file

    def child(self, directory: OpenFile, name: bytes) -> OpenFile:
        """The file of a name, as `Export.child`."""
        return self.held(self.export.child(directory, name))

    def directory(self, handle: bytes) -> OpenFile:
        """The directory of a handle. Raises NOTDIR."""
        file = self.node(handle)
        if not stat.S_ISDIR(file.stat().st_mode):
            raise NfsError(NfsStatus.NOTDIR)
        return file

    def regular(self, handle: bytes) -> OpenFile:
        """The regular file of a handle. Raises ISDIR for a directory, INVAL for other types."""
        file = self.node(handle)
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            raise NfsError(NfsStatus.ISDIR if stat.S_ISDIR(mode) else NfsStatus.INVAL)
        return file

    def place(self, handle: bytes) -> OpenFile:
        """The directory of a handle, for a change in it. Raises NOTDIR, ROFS."""
        directory = self.directory(handle)
        self.writable()
        return directory

    def check(self, file: OpenFile) -> None:
        """Raises STALE unless a file is in the export now: what was read may be told then."""
        self.export.check(file)

    def writable(self) -> None:
        """Raises ROFS if the export is read-only."""
        if self.export.read_only:
            raise NfsError(NfsStatus.ROFS)

    def close(self) -> None:
        """Closes the files."""
        self._open.close()

    def after(self, number: int = 0) -> FileAttributes | None:
        """Attributes now of the call's file `number`; `None` if it is gone."""
        if number >= len(self._found):
            return None
        try:
            status = self._found[number][0].stat()
        except OSError:
            return None
        return attributes_of(status) if status.st_nlink else None

    def wcc(self, number: int = 0) -> WccData:
        """Attributes of the call's file `number` before and now."""
        if number >= len(self._found):
            return WccData()
        return WccData(self._found[number][1], self.after(number))


Failure = Callable[[Operation], Any]


def no_failure(operation: Operation) -> None:
    """GETATTR's."""


def attributes(operation: Operation) -> res.Attributes:
    """Of procedures that change nothing."""
    return res.Attributes(operation.after())


def changed(operation: Operation) -> res.Changed:
    """Of procedures that change an object, or a directory."""
    return res.Changed(operation.wcc())
