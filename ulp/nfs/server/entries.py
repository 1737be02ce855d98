"""Entries of a directory with the positions that the kernel gives them (getdents64)."""

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = struct.Struct("=QqHB")
"""linux_dirent64: inode, offset of the next entry, length of this one, type; then the name."""
_BUFFER = 1 << 15

_libc = ctypes.CDLL(None, use_errno=True)
_libc.getdents64.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_libc.getdents64.restype = ctypes.c_ssize_t


@dataclass(frozen=True)
class DirectoryEntry:
    """A name, `.` and `..` among them.

    next: where the directory goes on after it. It stays right while other names come and go,
    which an index into a list does not.
    """

    inode: int
    name: bytes
    next: int


def entries(fd: int, start: int) -> Iterator[DirectoryEntry]:
    """Entries of an open directory from a position on: 0, or `next` of an entry.

    Raises `OSError`, also for a position that the file system does not know.
    """
    os.lseek(fd, start, os.SEEK_SET)
    buffer = ctypes.create_string_buffer(_BUFFER)
    while True:
        octets = _libc.getdents64(fd, buffer, _BUFFER)
        if octets < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        if not octets:
            return
        yield from _parse(buffer.raw[:octets])


def _parse(octets: bytes) -> Iterator[DirectoryEntry]:
    at = 0
    while at < len(octets):
        inode, following, length, _ = _HEAD.unpack_from(octets, at)
        name = octets[at + _HEAD.size : at + length].split(b"\0", 1)[0]
        yield DirectoryEntry(inode, name, following)
        at += length
