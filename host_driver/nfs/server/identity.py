"""What tells a file from every other one, also from one that got the inode number of a dead one."""

import ctypes
import os
import struct

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
    if identity(fd) == wanted:
        return fd
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
