"""READDIR and READDIRPLUS: as many entries as fit into what the client takes."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.arguments import VERIFIER
from stagecoach.ulp.nfs.attributes import FileAttributes
from stagecoach.ulp.nfs.server.entries import DirectoryEntry, entries
from stagecoach.ulp.nfs.server.export import OpenFile
from stagecoach.ulp.nfs.server.handle_format import HANDLE_OCTETS
from stagecoach.ulp.nfs.server.objects import DIRECTORY_TRANSFER
from stagecoach.ulp.nfs.server.operation import Operation, attributes_of
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.message import roundup
from stagecoach.ulp.oncrpc.records import Record

_COOKIE_VERIFIER = bytes(VERIFIER)
"""Always the same: cookies are positions that stay right when the directory changes."""

_WORD = 4
_ATTRIBUTES = _WORD + Record(FileAttributes).octets
_FIXED = _ATTRIBUTES + VERIFIER + 2 * _WORD
"""Bytes of a result without entries: attributes, verifier, end of the list, eof."""
_PLUS = _ATTRIBUTES + 2 * _WORD + HANDLE_OCTETS
"""Bytes that READDIRPLUS adds to an entry, with attributes and handle."""


def _entry_octets(name: bytes) -> int:
    """Of entry3: one that follows, fileid, name, cookie."""
    return _WORD + 8 + _WORD + roundup(len(name)) + 8


def _information_octets(name: bytes) -> int:
    """What counts for the dircount of READDIRPLUS: fileid, name, cookie."""
    return _entry_octets(name) - _WORD


@contextlib.contextmanager
def _opened(directory: OpenFile) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(".", flags, dir_fd=directory.fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _start(cookie: int, verifier: bytes) -> int:
    if cookie >= 1 << 63 or (cookie and verifier != _COOKIE_VERIFIER):
        raise NfsError(NfsStatus.BAD_COOKIE)
    return cookie


def _listed(
    op: Operation,
    directory: OpenFile,
    cookie: int,
    verifier: bytes,
    fits: Callable[[bytes], bool],
    make: Callable[[DirectoryEntry, int], Any],
) -> tuple[list[Any], bool]:
    """Entries from a cookie on as long as the next fits, and whether these are all.

    `make` takes the entry and its fileid. Raises TOOSMALL if not even one fits.
    """
    start = _start(cookie, verifier)
    found: list[Any] = []
    with _opened(directory) as fd:
        try:
            for entry in entries(fd, start):
                if not fits(entry.name):
                    if not found:
                        raise NfsError(NfsStatus.TOOSMALL)
                    return found, False
                # Nothing of what is above the export is told.
                above_root = entry.name == b".." and directory.node is op.export.root
                inode = directory.node.identity[1] if above_root else entry.inode
                found.append(make(entry, inode))
        except OSError as error:
            if start and not found:
                raise NfsError(NfsStatus.BAD_COOKIE) from error
            raise
    return found, True


def _room(octets: int) -> int:
    """What a reply may have for entries: no call reads more than that of a directory."""
    return min(octets, DIRECTORY_TRANSFER) - _FIXED


class _Budget:
    """Whether bytes still fit; takes them if so."""

    def __init__(self, octets: int):
        self._left = octets

    def take(self, octets: int) -> bool:
        if octets > self._left:
            return False
        self._left -= octets
        return True


def readdir(op: Operation, arguments: args.ReaddirArguments) -> res.ReaddirOk:
    """READDIR."""
    directory = op.directory(arguments.directory)
    room = _Budget(_room(arguments.count))
    found, eof = _listed(
        op,
        directory,
        arguments.cookie,
        arguments.verifier,
        lambda name: room.take(_entry_octets(name)),
        lambda entry, fileid: res.Entry(fileid, entry.name, entry.next),
    )
    op.check(directory)
    return res.ReaddirOk(op.after(), _COOKIE_VERIFIER, found, eof)


def readdirplus(op: Operation, arguments: args.ReaddirplusArguments) -> res.ReaddirplusOk:
    """READDIRPLUS."""
    directory = op.directory(arguments.directory)
    room = _Budget(_room(arguments.maxcount))
    information = _Budget(arguments.dircount)
    some = False

    def fits(name: bytes) -> bool:
        nonlocal some
        # dircount is a hint: one entry is sent in any case, if maxcount has room for it.
        enough = information.take(_information_octets(name)) or not some
        some = True
        return enough and room.take(_entry_octets(name) + _PLUS)

    def make(entry: DirectoryEntry, fileid: int) -> res.EntryPlus:
        attributes, handle = _plus(op, directory, entry.name)
        return res.EntryPlus(fileid, entry.name, entry.next, attributes, handle)

    found, eof = _listed(op, directory, arguments.cookie, arguments.verifier, fits, make)
    op.check(directory)
    return res.ReaddirplusOk(op.after(), _COOKIE_VERIFIER, found, eof)


def _plus(
    op: Operation, directory: OpenFile, name: bytes
) -> tuple[FileAttributes | None, bytes | None]:
    """Attributes and handle; neither for what is gone again or cannot be opened."""
    try:
        file = op.export.child(directory, name)
    except (NfsError, OSError):
        return None, None
    with contextlib.closing(file):
        return attributes_of(file.stat()), file.node.handle
