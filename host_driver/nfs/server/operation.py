"""One call on its way: its files, and what their attributes were before (wcc_data)."""

import os
import stat
from collections.abc import Callable
from typing import Any

from host_driver.nfs import results as res
from host_driver.nfs.attributes import (
    FileAttributes,
    FileType,
    NfsTime,
    SpecData,
    WccAttributes,
    WccData,
)
from host_driver.nfs.server.export import Export
from host_driver.nfs.server.handles import Node
from host_driver.nfs.status import NfsError, NfsStatus
from host_driver.oncrpc.server import Request

_BLOCK = 512
"""Octets of a block in st_blocks."""

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
    """The files of a call, in the order in which they were found.

    All methods that take a handle raise `NfsError`: BADHANDLE, STALE, or what they say.
    """

    def __init__(self, export: Export, request: Request):
        self.export = export
        self.request = request
        self._files: list[tuple[Node, WccAttributes]] = []

    def node(self, handle: bytes) -> Node:
        """The file of a handle."""
        node = self.export.nodes.find(handle)
        status = self.stat(node)
        before = WccAttributes(
            status.st_size,
            NfsTime.from_ns(status.st_mtime_ns),
            NfsTime.from_ns(status.st_ctime_ns),
        )
        self._files.append((node, before))
        return node

    def directory(self, handle: bytes) -> Node:
        """The directory of a handle. Raises NOTDIR."""
        node = self.node(handle)
        if not stat.S_ISDIR(self.stat(node).st_mode):
            raise NfsError(NfsStatus.NOTDIR)
        return node

    def regular(self, handle: bytes) -> Node:
        """The regular file of a handle. Raises ISDIR for a directory, INVAL for other types."""
        node = self.node(handle)
        mode = self.stat(node).st_mode
        if not stat.S_ISREG(mode):
            raise NfsError(NfsStatus.ISDIR if stat.S_ISDIR(mode) else NfsStatus.INVAL)
        return node

    def place(self, handle: bytes) -> Node:
        """The directory of a handle, for a change in it. Raises NOTDIR, ROFS."""
        directory = self.directory(handle)
        self.writable()
        return directory

    def fd(self, node: Node) -> int:
        """A descriptor of the file, opened with O_PATH. It belongs to the table of handles."""
        return self.export.nodes.fd(node)

    def writable(self) -> None:
        """Raises ROFS if the export is read-only."""
        if self.export.read_only:
            raise NfsError(NfsStatus.ROFS)

    def stat(self, node: Node) -> os.stat_result:
        """Its status now."""
        return os.fstat(self.fd(node))

    def path(self, node: Node) -> str:
        """What the calls take that want no descriptor opened with O_PATH.

        It leads to the file itself, a symbolic link too: none is followed.
        """
        return f"/proc/self/fd/{self.fd(node)}"

    def after(self, number: int = 0) -> FileAttributes | None:
        """Attributes now of the call's file `number`; `None` if it is gone."""
        if number >= len(self._files):
            return None
        try:
            return attributes_of(self.stat(self._files[number][0]))
        except (NfsError, OSError):
            return None

    def wcc(self, number: int = 0) -> WccData:
        """Attributes of the call's file `number` before and now."""
        if number >= len(self._files):
            return WccData()
        return WccData(self._files[number][1], self.after(number))


Failure = Callable[[Operation], Any]


def no_failure(operation: Operation) -> None:
    """GETATTR's."""


def attributes(operation: Operation) -> res.Attributes:
    """Of procedures that change nothing."""
    return res.Attributes(operation.after())


def changed(operation: Operation) -> res.Changed:
    """Of procedures that change an object, or a directory."""
    return res.Changed(operation.wcc())
