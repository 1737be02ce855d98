"""What tells a file from every other one, also from one that got the inode number of a dead one."""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

O_NODE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a file of any type for what it is: nothing is read, no link followed, nobody disturbed."""

Identity = tuple[int, int, int]
"""Device, inode number, and time of birth in nanoseconds, 0 if the file system keeps none."""

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_OCTETS = 256
_MASK = struct.Struct("=I")
_BTIME = struct.Struct("=qI")
_BTIME_OFFSET = 80  # of stx_btime

_libc = ctypes.CDLL(None, use_errno=True)
_libc.statx.argtypes = (
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_void_p,
)


def identity(fd: int) -> Identity:
    """That of an open file."""
    status = os.fstat(fd)
    buffer = ctypes.create_string_buffer(_STATX_OCTETS)
    birth = 0
    if _libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) == 0:
        if _MASK.unpack_from(buffer)[0] & _STATX_BTIME:
            seconds, nanoseconds = _BTIME.unpack_from(buffer, _BTIME_OFFSET)
            birth = seconds * 1_000_000_000 + nanoseconds
    return status.st_dev, status.st_ino, birth


def names_below(root: int, fd: int) -> list[bytes] | None:
    """Names that lead from one open directory to an open file, as the kernel tells them now.

    `None` for a file that is not below it, or so deep that the kernel has no room for its path.
    They say where to look and prove nothing: meanwhile the file may have been renamed, a name may
    end in " (deleted)" by chance, and a file that left the directory of a bind mount may seem to be
    below another one.
    """
    try:
        start = os.readlink(b"/proc/self/fd/%d" % root)
        path = os.readlink(b"/proc/self/fd/%d" % fd)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise
    if path == start:
        return []
    start = start.rstrip(b"/") + b"/"
    return path[len(start) :].split(b"/") if path.startswith(start) else None


def walk(root: int, names: Sequence[bytes]) -> int:
    """Opens a file by its names below an open directory, one at a time: no link is followed.

    Raises `OSError`.
    """
    fd = os.open(".", O_NODE, dir_fd=root)
    for name in names:
        try:
            if name in (b"", b".", b".."):
                raise FileNotFoundError
            below = os.open(name, O_NODE, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def identity_of(directory: int, name: bytes) -> Identity:
    """That of a file in an open directory. Raises `OSError`."""
    fd = os.open(name, O_NODE, dir_fd=directory)
    try:
        return identity(fd)
    finally:
        os.close(fd)


def open_identity(directory: int, name: bytes, wanted: Identity) -> int:
    """Opens the file under its last name, or else under whatever name the directory has it.

    Raises `OSError`.
    """
    try:
        return _open_checked(directory, name, wanted)
    except FileNotFoundError:
        return _open_checked(directory, name_of(directory, wanted), wanted)


def _open_checked(directory: int, name: bytes, wanted: Identity) -> int:
    fd = os.open(name, O_NODE, dir_fd=directory)
    try:
        if identity(fd) == wanted:
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    raise FileNotFoundError


def name_of(directory: int, wanted: Identity) -> bytes:
    """A name of the file in an open directory. Raises `FileNotFoundError` if it has none."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.inode() == wanted[1]:
                    return os.fsencode(entry.name)
    finally:
        os.close(fd)
    raise FileNotFoundError
