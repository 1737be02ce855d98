"""Files that several processes share, and results that outlive an interrupt."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path


class BadResults(Exception):
    """A file of results cannot be read; the message names it."""


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, remove: bool = False) -> Iterator[bool]:
    """Holds the lock file beside `path`, against other processes and other threads of this one.

    Yields True. Without `wait` it yields False, at once, if another holds the lock.
    `remove`: the lock file goes away at the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f"{path.name}.lock")
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        with name.open("w") as lock:
            try:
                fcntl.flock(lock, how)
            except BlockingIOError:
                yield False
                return
            if not _is(lock.fileno(), name):
                continue  # its holder has removed it: a lock on that file excludes no one
            yield True
            if remove:
                name.unlink(missing_ok=True)
            return


def _is(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def write_whole(path: Path, text: str) -> None:
    """Writes a file in one step: it is as it was before, or whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text)
    unfinished.rename(path)


def read_results(path: Path) -> dict:
    """What is known by a file of JSON, nothing if it is not there. Raises `BadResults`."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadResults(f"{path} cannot be read: {error}; mend or remove it") from error
    if not isinstance(found, dict):
        raise BadResults(f"{path} is not a JSON object; mend or remove it")
    return found


def write_results(path: Path, results: dict) -> None:
    """Writes what is known as JSON, in one step."""
    write_whole(path, json.dumps(results, indent=2) + "\n")
