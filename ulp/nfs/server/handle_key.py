"""The key of file handles, kept in a private folder, so that handles outlive the server."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from stagecoach.host_driver import StagecoachError
from stagecoach.ulp.nfs.server.handle_format import KEY_OCTETS

KEY_FILE = "handle.key"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = 0o077


class HandleKeyError(StagecoachError):
    """The key of file handles is not kept where only its user can read it."""


def handle_key(folder: Path) -> bytes:
    """The key in a folder, which are made if they are not there: with modes 0600 and 0700.

    No symbolic link is followed, neither for the folder nor for the file. Of several processes
    that make one at the same time all have the same.

    Raises `HandleKeyError` if others may read or change it, or it is not a key; `OSError`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    with _opened(folder) as directory:
        _require_private(directory, folder, "folder")
        try:
            return _read(directory, folder)
        except FileNotFoundError:
            _make(directory)
        return _read(directory, folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        fd = os.open(folder, _FOLDER)
    except NotADirectoryError as error:
        raise HandleKeyError(f"{folder} is a file or a link; allowed: a folder") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _read(directory: int, folder: Path) -> bytes:
    path = folder / KEY_FILE
    try:
        fd = os.open(KEY_FILE, _READ, dir_fd=directory)
    except OSError as error:
        if os.path.islink(path):
            raise HandleKeyError(f"{path} is a link; allowed: a file") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise HandleKeyError(f"{path} is not a regular file")
        _require_private(fd, path, "file")
        key = os.read(fd, KEY_OCTETS + 1)
    finally:
        os.close(fd)
    if len(key) != KEY_OCTETS:
        count = "more" if len(key) > KEY_OCTETS else len(key)
        raise HandleKeyError(f"{path} has {count} bytes; allowed: {KEY_OCTETS}")
    return key


def _require_private(fd: int, path: Path, what: str) -> None:
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        raise HandleKeyError(
            f"{path} belongs to uid {status.st_uid}; allowed: a {what} of uid {os.geteuid()}"
        )
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise HandleKeyError(
            f"{path} has mode {mode:04o}; allowed: a {what} that its user alone may use"
        )


def _make(directory: int) -> None:
    """Makes the file, all of it at once; another process may have been faster."""
    name = f".{KEY_FILE}.{secrets.token_hex(8)}"
    fd = os.open(name, _MAKE, 0o600, dir_fd=directory)
    try:
        try:
            os.fchmod(fd, 0o600)  # whatever the umask
            os.write(fd, secrets.token_bytes(KEY_OCTETS))
            os.fsync(fd)
        finally:
            os.close(fd)
        with contextlib.suppress(FileExistsError):
            os.link(name, KEY_FILE, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    finally:
        os.unlink(name, dir_fd=directory)
