"""The folder in which devices tell their state: who may look, and files that others may have left.

Nothing is believed of what stands there. A file is written under a name that nobody can guess, for
its owner alone, and then moved to its place, so that no link is followed; one is read only if it is
a regular file, without waiting.
"""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stagecoach.host_driver.errors import StagecoachError

FOLDER_VARIABLE = "STAGECOACH_TOP"

PRIVATE = "1"
"""Value of the variable that stands for the user's own folder."""

MOST_OCTETS = 4 << 20
"""Of a file that is read: 256 QPs take less than a tenth."""

_NAME = re.compile(r"(\d{1,9})-\d{1,9}\.json", re.ASCII)
_SERVER_NAME = re.compile(r"(\d{1,9})-nfs\.json", re.ASCII)


class FolderError(StagecoachError):
    """Nothing can be told in, or read from, a folder; the message says why."""


def private_folder() -> Path:
    """The folder of this user, which is made if it is not there; nobody else sees or changes it.

    Raises `FolderError` if what stands at its place is anything else, e.g. made by another user.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime:
        folder = Path(runtime) / "stagecoach-top"
    else:
        folder = Path(tempfile.gettempdir()) / f"stagecoach-top-{os.geteuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        raise FolderError(f"cannot make the folder {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise FolderError(
            f"{folder} has mode {stat.filemode(found.st_mode)} and belongs to user {found.st_uid}; "
            f"allowed: a folder (drwx------) of user {os.geteuid()}, or none"
        )
    return folder


def named_folder() -> Path | None:
    """The folder that the environment names, `None` if it names none.

    Raises `FolderError` for a private one that is not private.
    """
    named = os.environ.get(FOLDER_VARIABLE, "")
    if named == PRIVATE:
        return private_folder()
    return Path(named) if named else None


def file_of(folder: Path, process: int, number: int) -> Path:
    """Where a device is told of: the process that has it open, and its number there."""
    return folder / f"{process}-{number}.json"


def process_of(path: Path) -> int:
    """The process whose device a file is of."""
    return int(path.stem.partition("-")[0])


def files(folder: Path) -> Iterator[Path]:
    """All that have the name of a device's file, in order."""
    return (path for path in sorted(folder.glob("*.json")) if _NAME.fullmatch(path.name))


def server_file_of(folder: Path, process: int) -> Path:
    """Where a process tells of the clients of its NFS server."""
    return folder / f"{process}-nfs.json"


def server_files(folder: Path) -> Iterator[Path]:
    """All that have the name of such a file, in order."""
    return (path for path in sorted(folder.glob("*.json")) if _SERVER_NAME.fullmatch(path.name))


def lives(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


def remove_dead(folder: Path) -> None:
    """Removes the files of processes that have ended."""
    for path in [*files(folder), *server_files(folder)]:
        if not lives(process_of(path)):
            path.unlink(missing_ok=True)


def write_file(path: Path, text: str) -> None:
    """Replaces a file as a whole; only its owner reads it (mode 0600). Raises `FolderError`."""
    unfinished = ""
    try:
        # It makes the file, exclusively and with mode 0600, or fails.
        descriptor, unfinished = tempfile.mkstemp(prefix=".", dir=path.parent)
        with open(descriptor, "w") as file:
            file.write(text)
        os.replace(unfinished, path)
    except OSError as error:
        if unfinished:
            with suppress(OSError):
                os.unlink(unfinished)
        raise FolderError(f"cannot write {path}: {error.strerror}") from None


def read_file(path: Path) -> bytes:
    """The content of a file; never waits. Raises `FolderError` if it is too long or not regular."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FolderError("not a regular file")
            octets = file.read(MOST_OCTETS + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FolderError("it is a symbolic link") from None
        raise FolderError(error.strerror or str(error)) from None
    if len(octets) > MOST_OCTETS:
        raise FolderError(f"it has more than {MOST_OCTETS} bytes")
    return octets
