"""Files that several processes share, and results that outlive an interrupt."""

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path


class BadResults(Exception):
    """A file of results cannot be read; the message names it."""


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Holds the lock file beside `path`, against other processes and other threads of this one.

    Raises `BlockingIOError` if another one holds it and this one is not to `wait`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


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
        raise BadResults(f"{path} is no JSON object; mend or remove it")
    return found


def write_results(path: Path, results: dict) -> None:
    """Writes what is known as JSON, in one step."""
    write_whole(path, json.dumps(results, indent=2) + "\n")
