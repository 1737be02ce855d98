"""Runs the generators of LiteX cores, each in a process of its own, cached by content.

LiteX counts the names that it gives within a process, and its core is in Migen: here the same
Verilog comes every time, and nothing of either is loaded beside Amaranth.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from stagecoach.hw import cache

PACKAGES = ("litex", "liteeth", "litedram", "migen")
"""What decides, with a generator's source, what is generated."""


class NotGenerated(RuntimeError):
    """A core cannot be generated; the message says why."""


def generated(module: str, name: str, argument: str) -> Path:
    """Return the file `name` that a generator leaves in the folder that it is started in.

    module: of the generator, which is run with `argument`. Raises `NotGenerated` and `CacheError`.
    """
    try:
        versions = [f"{package} {importlib.metadata.version(package)}" for package in PACKAGES]
    except importlib.metadata.PackageNotFoundError as missing:
        raise NotGenerated(
            f"the package {missing.name} is not installed; install the extra: "
            "pip install 'stagecoach[boards]'"
        ) from None
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise NotGenerated(f"there is no generator {module!r}")
    sources = [Path(path).read_text() for path in (found.origin, __file__)]
    text = "\n".join([module, argument, *sources, *versions])

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            _run(module, argument, Path(work))
            files = [path for path in Path(work).iterdir() if path.is_file()]
            # What is asked for comes last: with it the entry is whole.
            for path in sorted(files, key=lambda path: path.name == name):
                partial = folder / f"{path.name}.partial"
                partial.write_text(path.read_text())
                partial.rename(folder / path.name)

    return cache.kept("verilog", hashlib.sha256(text.encode()).hexdigest()[:20], name, make)


def _run(module: str, argument: str, folder: Path) -> None:
    # Where this package is found may be relative to the current folder.
    places = [str(Path(place).absolute()) for place in sys.path if place]
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-m", module, argument]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        end = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
        raise NotGenerated(f"{module} failed with status {result.returncode}:\n{end}")


def without_comments(verilog: str) -> str:
    """Return Verilog without its blocks and lines of comment, for generators before they write.

    They have a date, a Git revision and lists in the order of addresses in them.
    """
    text = re.sub(r"/\*.*?\*/", "", verilog, flags=re.DOTALL)
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.startswith("//")) + "\n"
