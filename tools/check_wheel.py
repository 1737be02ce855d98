"""Builds the wheel, installs it into a fresh environment, and uses it in another folder.

`make test-wheel` (`PYTHON=python3.12`; `LOWEST=1`: with the lowest versions that pyproject.toml
allows). First without extras: what is in the wheel, how large its base is, what a missing extra
says. Then with the simulator: every command that uses a device, and a cocotb test. Whole devices
come from the cache of the user. Leaves the wheel in build, and build/wheel.json.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import Requirement

from stagecoach.hw.files import write_results
from stagecoach.hw.interface.registers import registers

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
RESULT = Path("build") / "wheel.json"
TOP_LEVEL = "stagecoach"
ROOMS = sorted(path.name for path in (ROOT / "src" / TOP_LEVEL).iterdir() if path.is_symlink())
EXTRAS = "cocotb,plot"
COMMANDS = sorted(
    path.parent.name.replace("_", "-") for path in (ROOT / "cli").glob("*/options.py")
)
LARGEST_BASE = 20_000_000
"""Bytes that the base may take on disk, with all that it depends on."""

EXAMPLES = ("atomic_counter/atomic_counter.py", "cocotb/test_two_devices.py")

BOARD = ("--device", "serial:///dev/no_such_port")

NO_BOARD = """
from stagecoach import SerialDevice, TransportError
try:
    SerialDevice("/dev/no_such_port")
except TransportError as error:
    assert "no_such_port" in str(error)
else:
    raise SystemExit("it is open")
"""

NO_GATEWARE = """
import stagecoach
import stagecoach.pyverbs.cmid
from stagecoach import *
assert Context and SerialDevice and SimulatedDevice
try:
    stagecoach.Rnic
except MissingExtra as error:
    assert str(error).endswith("run: pip install 'stagecoach[sim]'"), error
else:
    raise SystemExit("it is there")
"""

OWN_PACKAGES = ("bench", *ROOMS)
OWN = f"""
import {", ".join(OWN_PACKAGES)}
import stagecoach
from stagecoach import *
assert [one.MINE for one in ({", ".join(OWN_PACKAGES)})] == {list(OWN_PACKAGES)}
assert Context.__module__.startswith("stagecoach.")
"""
"""A program beside which packages stand that have the names of folders of ours."""

COCOTB_TEST = """
import cocotb
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from cocotb.triggers import ClockCycles

from stagecoach.sim.cosim.runner import run_cocotb
from stagecoach.sim.cosim.streams import start_clock_and_reset


class Counter(wiring.Component):
    count: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.count.eq(self.count + 1)
        return m


def test_counter():
    run_cocotb(Counter(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_counter(dut):
    await start_clock_and_reset(dut)
    before = int(dut.count.value)
    await ClockCycles(dut.clk, 5)
    assert int(dut.count.value) == (before + 5) % 256
"""


class Failure(Exception):
    """The wheel is not as it should be; the message says why."""


def check(condition: bool, why: str) -> None:
    """Raises `Failure` unless a condition holds."""
    if not condition:
        raise Failure(why)


def tracked() -> list[str]:
    """Files of the project, those that are not committed yet among them."""
    command = ["git", "ls-files", "-coz", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def build_wheel(folder: Path) -> Path:
    """Builds the wheel from a copy: setuptools would leave files among the sources."""
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps"]
    subprocess.run([*pip, "-w", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    """Everything of the packages is in the wheel but Markdown for readers, and nothing else."""
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    check({name.split("/")[0] for name in names} == {TOP_LEVEL}, f"top level of {sorted(names)}")
    files = [name for name in tracked() if not name.endswith(".md")]
    wanted = {f"{TOP_LEVEL}/{name}" for name in files if name.split("/")[0] in ROOMS}
    own = [name for name in files if not (ROOT / name).is_symlink()]
    wanted |= {name.removeprefix("src/") for name in own if name.startswith("src/")}
    check(not wanted - names, f"not in the wheel: {sorted(wanted - names)}")
    check(not names - wanted, f"in the wheel only: {sorted(names - wanted)}")


def lowest() -> str:
    """Constraints: the lower bound of each requirement of a user."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    texts = [*project["dependencies"]]
    for extra in ("cli", "sim", *EXTRAS.split(",")):
        texts += project["optional-dependencies"][extra]
    lines = []
    for requirement in map(Requirement, texts):
        bounds = [one.version for one in requirement.specifier if one.operator == ">="]
        lines += [f"{requirement.name}=={bound}\n" for bound in bounds]
    return "".join(lines)


class Environment:
    """A virtual environment with the wheel, and an empty folder in which its commands run."""

    def __init__(self, folder: Path, python: str, wheel: Path, constraints: Path) -> None:
        self._wheel, self._constraints = wheel, constraints
        self.folder = folder / "user"
        self.folder.mkdir()
        environment = folder / "environment"
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        self.bin = environment / "bin"
        self._variables = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        # What make and a developer's shell say is not for the user.
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "YOSYS", "MAKEFLAGS", "MAKELEVEL", "WAVES"):
            self._variables.pop(name, None)
        self.packages = Path(self.python("import site; print(site.getsitepackages()[0])").strip())
        self._empty = self.files()

    def install(self, extras: str = "", *others: str) -> None:
        """Installs the wheel with extras."""
        what = f"{self._wheel}[{extras}]" if extras else str(self._wheel)
        pip = [str(self.bin / "python"), "-m", "pip", "install", "-q", "-c"]
        subprocess.run([*pip, str(self._constraints), what, *others], check=True)

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of all files of packages."""
        files = (path for path in self.packages.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.packages)): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in files
        }

    @property
    def size(self) -> int:
        """Bytes of all that was installed."""
        return sum(size for name, (size, _) in self.files().items() if name not in self._empty)

    def python(self, program: str) -> str:
        """What a Python program prints."""
        return self.run(str(self.bin / "python"), "-c", program)

    def stagecoach(self, *arguments: str, status: int = 0) -> str:
        """What a command prints, standard error after it."""
        return self.run(str(self.bin / "stagecoach"), *arguments, status=status)

    def run(self, *command: str, status: int = 0) -> str:
        """What a command prints. Raises `Failure` if it ends with another status."""
        ran = subprocess.run(
            command, cwd=self.folder, env=self._variables, capture_output=True, text=True
        )
        said = ran.stdout + ran.stderr
        words = " ".join(Path(word).name for word in command[:4])
        check(ran.returncode == status, f"{words} ended with {ran.returncode}:\n{said[-3000:]}")
        check("Traceback" not in said, f"{words}:\n{said[-3000:]}")
        return said

    @contextmanager
    def server(self, pattern: str, *arguments: str) -> Iterator[str]:
        """What a server says that matches the pattern; it is ended at the end."""
        with subprocess.Popen(
            [str(self.bin / "stagecoach"), *arguments],
            cwd=self.folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if found := re.search(pattern, line):
                        yield found[1]
                        break
                else:
                    raise Failure(f"{arguments[0]} does not listen")
            finally:
                process.send_signal(signal.SIGTERM)


def check_base(user: Environment) -> int:
    """Without extras: a board can be driven, the rest says what is missing. Returns the size."""
    size = user.size
    print(f"    {size / 1e6:.1f} MB installed without extras, of {LARGEST_BASE / 1e6:.0f} allowed")
    check(size < LARGEST_BASE, f"the base takes {size} bytes; allowed: {LARGEST_BASE}")
    said = user.stagecoach("--version")
    check(re.fullmatch(r"stagecoach \d+\.\d+\.\d+\n", said) is not None, said)
    user.python("from stagecoach import nfs, rpc")
    for command in COMMANDS:
        user.stagecoach(command, "--help")
    user.python(NO_BOARD)
    user.python(NO_GATEWARE)
    check_own_packages(user)
    _check_missing(user, "cli", "info", *BOARD)
    _check_missing(user, "sim", "verilog")
    return size


def check_own_packages(user: Environment) -> None:
    """Packages of a program with the names of folders of ours change nothing."""
    for name in OWN_PACKAGES:
        (user.folder / name).mkdir()
        (user.folder / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    try:
        user.python(OWN)
    finally:
        for name in OWN_PACKAGES:
            shutil.rmtree(user.folder / name)


def check_cli(user: Environment) -> None:
    """With tables: commands drive a board, and say what else they lack."""
    said = user.stagecoach("info", *BOARD, status=1)
    check("no_such_port" in said and said.count("\n") == 1, said)
    user.stagecoach("devices")
    capture = str(next((ROOT / "tests" / "data" / "captures").glob("*.pcap")))
    for words in (["demo"], ["info"], ["perf", "write"], ["decode", capture]):
        _check_missing(user, "sim", *words)


def _check_missing(user: Environment, extra: str, *words: str) -> None:
    said = user.stagecoach(*words, status=1)
    wanted = f"run: pip install 'stagecoach[{extra}]'\n"
    check(said.endswith(wanted) and said.count("\n") == 1, said)


def check_commands(user: Environment) -> None:
    """With the simulator: commands leave what they say in the current folder, nowhere else."""
    before = user.files()
    user.stagecoach("demo", "--size", "64KiB")
    check("RDMA Write" in user.stagecoach("decode", "build/demo.pcapng"), "decode shows no Write")
    check("max_qp" in user.stagecoach("info"), "info shows no max_qp")
    user.stagecoach("perf", "write", "--sizes", "64", "--messages", "32")
    check((user.folder / "build" / "perf_write.svg").exists(), "no plot")
    rping = ("rping", "-s", "-d", "-p", "0", "-a", "127.0.0.1")
    with user.server(r"listening at port (\d+)", *rping) as port:
        user.stagecoach("rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", "3", "-V")
    (user.folder / "export").mkdir()
    (user.folder / "file").write_bytes(bytes(range(256)) * 40)
    nfs = ("nfs", "serve", "export", "--export", "/data", "-a", "127.0.0.1", "--no-root-squash")
    with user.server(r"serving (\S+)", *nfs, "--rdma-port", "0", "--no-tcp") as url:
        user.stagecoach("nfs", "put", "file", url)
        check("file" in user.stagecoach("nfs", "ls", url), "nfs ls")
    user.stagecoach("verilog")
    check((user.folder / "build" / "verilog" / "stagecoach_rnic.v").exists(), "no Verilog")
    check("compiled devices" in user.stagecoach("cache"), "cache")
    # The device was exported before: nothing has read the register description yet.
    source = "from stagecoach.hw.interface.registers import registers; print(registers())"
    found = user.python(source)
    check(found == f"{registers()}\n", "other registers than here")
    said = user.run(str(user.bin / "python"), "-m", "stagecoach.hw.reference", status=1)
    check(said.endswith("run: pip install 'stagecoach[docs]'\n") and said.count("\n") == 1, said)
    said = user.run(str(user.bin / "python"), "-m", "stagecoach.hw.states", status=1)
    check(said.endswith("needs the project's repository\n") and said.count("\n") == 1, said)
    check_untouched(user, before)


def check_untouched(user: Environment, before: dict[str, tuple[int, int]]) -> None:
    """Nothing was written among the packages but compiled Python, which is the interpreter's."""
    changed = [name for name, found in user.files().items() if before.get(name) != found]
    written = [name for name in changed if "__pycache__" not in name]
    check(not written, f"written among the packages: {written}")


def check_cocotb(user: Environment) -> None:
    """A cocotb test of a user runs, and what the examples import is there."""
    before = user.files()
    (user.folder / "test_counter.py").write_text(COCOTB_TEST)
    user.run(str(user.bin / "python"), "-m", "pytest", "-q", "test_counter.py")
    check(any((user.folder / "build" / "cocotb").iterdir()), "no results of cocotb")
    for example in EXAMPLES:
        shutil.copy(ROOT / "examples" / example, user.folder)
        user.python(f"import {Path(example).stem}")
    check_untouched(user, before)


def check_wheel(folder: Path, python: str, constraints: Path) -> dict[str, int]:
    """Does all of it in an empty folder; returns what was measured."""
    result = {}
    start = time.monotonic()

    def step(what: str) -> None:
        print(f"{time.monotonic() - start:4.0f} s  {what}", flush=True)

    step("build the wheel")
    wheel = build_wheel(folder)
    check_content(wheel)
    result["wheel_bytes"] = wheel.stat().st_size
    step("install it without extras")
    user = Environment(folder, python, wheel, constraints)
    user.install()
    step("what works without extras")
    result["base_bytes"] = check_base(user)
    step("what works with [cli]")
    user.install("cli")
    check_cli(user)
    step(f"install [{EXTRAS}] and pytest")
    user.install(EXTRAS, "pytest")
    result["with_extras_bytes"] = user.size
    step("the commands")
    check_own_packages(user)
    check_commands(user)
    step("a cocotb test, and the imports of the examples")
    check_cocotb(user)
    RESULT.parent.mkdir(exist_ok=True)
    shutil.copy2(wheel, RESULT.parent)
    step(f"passed: {RESULT.parent / wheel.name}")
    return result


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.check_wheel", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="of the environment (this one)")
    parser.add_argument("--lowest", action="store_true", help="with the lowest versions allowed")
    options = parser.parse_args()
    if shutil.which(options.python) is None:
        parser.error(f"there is no {options.python}")
    with tempfile.TemporaryDirectory(prefix="stagecoach-wheel-") as name:
        folder = Path(name)
        constraints = folder / "constraints.txt"
        constraints.write_text(lowest() if options.lowest else CONSTRAINTS.read_text())
        try:
            result = check_wheel(folder, options.python, constraints)
        except Failure as failure:
            print(f"test-wheel: {failure}", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            print(f"test-wheel: {' '.join(error.cmd[:5])} failed", file=sys.stderr)
            return 1
    write_results(RESULT, {"python": options.python, "lowest": options.lowest, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
