"""What is built is kept by content: compiled devices, exported Verilog, block simulators, proofs.

The cache is the user's (`platformdirs`: ~/.cache/stagecoach on Linux), or the folder that
STAGECOACH_CACHE names. It may grow to STAGECOACH_CACHE_MIB, 4096 if that is not set; then what
was not used for the longest time is removed, but never what was used within the last hour.

`root/KIND/KEY` is an entry, a folder; its modification time is when it was used last. An entry is
changed and removed by who holds its lock, `root/KIND/KEY.lock`.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from stagecoach.hw.files import locked

FOLDER_VARIABLE = "STAGECOACH_CACHE"
LIMIT_VARIABLE = "STAGECOACH_CACHE_MIB"
DEFAULT_LIMIT_MIB = 4096

KEPT_SECONDS = 3600
"""What was used within this time stays, whatever the limit: it may be in use."""

KINDS = {
    "device": "compiled devices",
    "verilog": "exported Verilog",
    "cocotb": "block simulators",
    "objects": "objects of Verilator's library",
    "proof": "proofs that passed",
    "guest": "Linux guests of `make interop`",
}
"""Kinds of entries, and what they are."""

_REMOVED = ".removed"
_SIZE = ".size"


class CacheError(RuntimeError):
    """The cache cannot be used; the message says why, and what to do."""


@dataclass(frozen=True)
class Entry:
    """One entry: its folder, its size in bytes, and when it was used last (`time.time()`)."""

    path: Path
    size: int
    used: float

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return self.path.parent.name


def root() -> Path:
    """The folder of the cache; it need not exist yet."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return platformdirs.user_cache_path("stagecoach", appauthor=False)


def limit() -> int:
    """Bytes that the cache may have. Raises `CacheError`."""
    text = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT_MIB)
    if not text.isdecimal():
        raise CacheError(f"{LIMIT_VARIABLE} is {text!r}; allowed: a whole number of MiB")
    return int(text) << 20


def kept(
    kind: str,
    key: str,
    name: str,
    make: Callable[[Path], None],
    waits: Callable[[], None] | None = None,
) -> Path:
    """Returns the file `name` of an entry; `make(folder)` makes it if it is not there.

    `make` is called with the empty folder of the entry, by one thread of one process at a time:
    the others wait, and say so by `waits()` before. The last thing that it makes is `name`, in one
    step: an entry with that file is whole. Raises `CacheError` if the entry has to be made and the
    cache cannot be written.
    """
    folder = root() / kind / key
    if _is_whole(folder, name):
        return folder / name
    most = limit()
    with ExitStack() as stack:
        try:
            if not stack.enter_context(locked(folder, wait=False)):
                if waits is not None:
                    waits()
                stack.enter_context(locked(folder))
        except OSError as error:
            raise _not_written(error) from error
        if _is_whole(folder, name):
            return folder / name
        try:
            # A build that was interrupted has left files that may be half written.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        except OSError as error:
            raise _not_written(error) from error
        make(folder)
        # Counted once: there may be thousands of files, and each build asks for all sizes.
        (folder / _SIZE).write_text(str(_count(folder)))
        with suppress(OSError):
            os.utime(folder)
    # Who waits for the entry need not wait for this, too.
    _trim(root(), entries(), most)
    return folder / name


def _is_whole(folder: Path, name: str) -> bool:
    """Whether an entry is there, which is used now."""
    if not (folder / name).exists():
        return False
    with suppress(OSError):
        os.utime(folder)
    return True


def _not_written(error: OSError) -> CacheError:
    reason = error.strerror or str(error)
    return CacheError(
        f"the cache {root()} cannot be written: {reason}; name another folder in {FOLDER_VARIABLE}"
    )


def entries() -> list[Entry]:
    """All entries, those that were not used for the longest time first.

    Raises `CacheError` if what should be the folder of the cache is none.
    """
    if root().exists() and not root().is_dir():
        raise CacheError(f"the cache {root()} is no folder; name one in {FOLDER_VARIABLE}")
    return _entries(path for kind in KINDS for path in _folders(root() / kind))


def _entries(paths: Iterable[Path]) -> list[Entry]:
    found = []
    for path in paths:
        with suppress(FileNotFoundError):  # another process removes it
            found.append(Entry(path, _size(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def _folders(parent: Path) -> Iterator[Path]:
    """The folders of entries, and of those that are half removed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from (path for path in parent.iterdir() if path.is_dir())


def _size(path: Path) -> int:
    try:
        return int((path / _SIZE).read_text())
    except (OSError, ValueError):  # it is not whole, or no program of Python made it
        return _count(path)


def _count(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def trim_results(folder: Path) -> None:
    """Keeps the folders in `folder`, which is not of the cache, to the limit of the cache.

    As in the cache, those that were not used for the longest time go first, and what was used
    within the last hour stays. A folder is used when a file is made in it. Raises `CacheError`.
    """
    _trim(folder, _entries(_folders(folder)), limit())


def _trim(folder: Path, found: list[Entry], most: int) -> None:
    """Removes what was not used for the longest time until all that was found has `most` bytes."""
    with locked(folder / "trim", wait=False) as mine:
        if not mine:
            return  # another process does it
        total = sum(entry.size for entry in found)
        for entry in found:
            half = entry.path.name.endswith(_REMOVED)
            if not half and (total <= most or entry.used > time.time() - KEPT_SECONDS):
                continue
            with suppress(OSError):  # another user's file in a shared cache
                total -= entry.size if _remove(entry) else 0


def clear() -> tuple[list[Entry], list[Entry]]:
    """Removes everything; returns what was removed, and what was not: others are making it.

    Raises `CacheError`.
    """
    found = entries()
    try:
        removed = [entry for entry in found if _remove(entry)]
    except OSError as error:
        raise _not_written(error) from error
    return removed, [entry for entry in found if entry not in removed]


def _remove(entry: Entry) -> bool:
    """Removes an entry; False if another process holds it."""
    if entry.path.name.endswith(_REMOVED):
        shutil.rmtree(entry.path, ignore_errors=True)
        return True
    with locked(entry.path, wait=False, remove=True) as mine:
        if not mine:
            return False
        # At once: an entry is there as a whole or not at all, also if this is interrupted.
        aside = entry.path.with_name(f"{entry.path.name}.{os.getpid()}{_REMOVED}")
        with suppress(FileNotFoundError):
            entry.path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    return True
