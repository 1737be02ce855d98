"""Packages of Debian 12: which versions there are, and their files. Nothing is installed."""

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.interop.errors import InteropError

Versions = dict[str, str]
"""Packages and their versions."""

_INSTALLED = re.compile(r"^Inst (\S+) \((\S+) ", re.MULTILINE)
_SECONDS = 1200


def run(*command: str, folder: Path | None = None) -> str:
    """What a command prints. Raises `InteropError` with its last line if it fails."""
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except FileNotFoundError as error:
        raise InteropError(
            f"{command[0]} is not installed; make interop needs Debian 12"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InteropError(f"{command[0]} did not end in {_SECONDS} s") from error
    if ran.returncode:
        lines = (ran.stderr or ran.stdout).strip().splitlines() or [f"status {ran.returncode}"]
        raise InteropError(f"{command[0]}: {lines[-1]}")
    return ran.stdout


def with_dependencies(names: Sequence[str]) -> Versions:
    """The newest versions of packages and of all that they depend on, whatever is installed here.

    Raises `InteropError`.
    """
    with tempfile.NamedTemporaryFile() as nothing:
        options = (
            "-qq",
            "-s",
            "--no-install-recommends",
            "-o",
            f"Dir::State::status={nothing.name}",
        )
        return parse_simulation(run("apt-get", *options, "install", *names))


def parse_simulation(printed: str) -> Versions:
    """What `apt-get -s install` would install. Raises `InteropError` if it names nothing."""
    found = dict(_INSTALLED.findall(printed))
    if not found:
        raise InteropError("apt-get -s install names no packages")
    return found


def download(versions: Versions, folder: Path) -> None:
    """Downloads packages into a folder. Raises `InteropError`."""
    names = [f"{name}={version}" for name, version in versions.items()]
    try:
        run("apt-get", "-qq", "download", *names, folder=folder)
    except InteropError as error:
        raise InteropError(f"{error} (run: apt-get update)") from error


def unpack(folder: Path, root: Path) -> None:
    """Unpacks all packages of a folder as if `root` were /, and removes them."""
    for package in sorted(folder.glob("*.deb")):
        run("dpkg-deb", "-x", str(package), str(root))
        package.unlink()


def fetch(versions: Versions, root: Path) -> None:
    """Downloads packages and unpacks them as if `root` were /. Raises `InteropError`."""
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        download(versions, Path(folder))
        unpack(Path(folder), root)


def find_file(root: Path, folders: Iterable[str], name: str) -> Path:
    """The file of that name. Raises `InteropError`."""
    for folder in folders:
        if (path := root / folder / name).exists():
            return path
    raise InteropError(f"no package has {name}")
