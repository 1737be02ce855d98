"""Judges one change after the other on a copy of the project."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagecoach.hw.cache import FOLDER_VARIABLE, LIMIT_VARIABLE
from stagecoach.hw.files import locked, read_results, write_results
from tools.mutate.designs import designs_of
from tools.mutate.nearest import closure, imports, nearest, slow_tests
from tools.mutate.netlist import YosysError, flat_fingerprint, is_same
from tools.mutate.points import Change
from tools.mutate.verdict import VARIABLE

SLOWER = 5
"""How many times as long as without the change a test takes at least that counts as a hang: a busy
machine may be slower by less."""

ELABORATION_SECONDS = 300
# A file of tests and all that it builds; pytest has a limit for each test, and stops at the first.
FILE_SECONDS = 7200
CACHE_MIB = 2048
"""What the builds of changes may take."""

KILLED, SURVIVED, NOT_BUILT, SAME = "killed", "survived", "not built", "same netlist"


class PlainFailure(Exception):
    """A test fails without any change; the message says which."""


class RunFailure(Exception):
    """pytest did not come to a verdict; the message says why."""


@dataclass
class Result:
    """What came of a change.

    verdict: KILLED, SURVIVED, NOT_BUILT, SAME. by: the test that failed. reason: how. tests: files
    of tests that were run. skipped: those that the time did not allow.
    """

    verdict: str
    by: str = ""
    reason: str = ""
    tests: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Copy:
    """A copy of the project in which files are changed.

    root: the project. folder: where the copy is; what it has built is kept for the next run.
    minutes: how long the tests of one change may take.
    """

    def __init__(self, root: Path, folder: Path, plain: Path, minutes: float) -> None:
        self._root, self._tree, self._plain = root, folder.resolve(), plain.resolve()
        self._minutes = minutes
        self._stop = False
        self._process: subprocess.Popen[bytes] | None = None
        self._refresh()
        self._graph = imports(self._tree)
        self._slow = slow_tests(self._tree)
        self._designs: dict[str, dict[str, str]] = {}
        self._flat: dict[str, str] = {}

    def _refresh(self) -> None:
        """Makes the copy what the project is now, but for what was built."""
        self._tree.mkdir(parents=True, exist_ok=True)
        for entry in self._tree.iterdir():
            if entry.name != "build":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"],
            cwd=self._root,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = self._root / name, self._tree / name
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        (self._tree / "build").mkdir(exist_ok=True)

    def stop(self) -> None:
        """Ends what is running; `judge` then raises KeyboardInterrupt."""
        self._stop = True
        if self._process is not None:
            _end(self._process)

    def judge(self, change: Change, say: Callable[[str], None]) -> Result:
        """Tells what comes of a change; `say` is told what is under way."""
        start = time.monotonic()
        result = self._judge(change, say)
        result.seconds = round(time.monotonic() - start, 1)
        return result

    def _judge(self, change: Change, say: Callable[[str], None]) -> Result:
        try:
            compile(change.text, change.file, "exec")
        except SyntaxError as error:
            return Result(NOT_BUILT, reason=str(error))
        say("netlist")
        names = designs_of(change.file, self._graph)
        try:
            if all(self._same(name, change) for name in names):
                return Result(SAME)
        except (_NotElaborated, YosysError) as error:
            # Whatever Yosys says of both: the design without the change is built by all tests.
            return Result(NOT_BUILT, reason=str(error))
        result = Result(SURVIVED)
        until = time.monotonic() + self._minutes * 60
        files = nearest(self._graph, change.file, self._slow).all
        # Most are killed by the first file, which takes less time than the next look does.
        self._test(change, files[:1], until, result, say)
        if result.verdict == SURVIVED:
            say("netlist as a whole")
            try:
                if all(self._same(name, change, flat=True) for name in names):
                    return Result(SAME, reason="the same after optimisation across modules")
            except YosysError as error:
                return Result(NOT_BUILT, reason=str(error))
            self._test(change, files[1:], until, result, say)
        return result

    def _test(
        self,
        change: Change,
        files: Sequence[str],
        until: float,
        result: Result,
        say: Callable[[str], None],
    ) -> None:
        """Runs files of tests up to the first failure, and tells `result` what came of them."""
        for test in files:
            if time.monotonic() > until:
                result.skipped.append(test)
                continue
            say(Path(test).stem)
            with self._changed(change):
                verdict = self._run(test, self._own_cache)
            if verdict.kind == "build":
                result.verdict, result.reason = NOT_BUILT, verdict.reason
                return
            if verdict.kind:
                say(f"{Path(test).stem}, without the change")
                plain_seconds = self._plain_seconds(verdict.failed)
                if verdict.kind == "check" or verdict.seconds > SLOWER * plain_seconds:
                    result.verdict, result.by, result.reason = (
                        KILLED,
                        verdict.failed,
                        verdict.reason,
                    )
                    return
                result.skipped.append(test)  # it is slow without the change, too
                continue
            result.tests.append(test)

    # The design

    def _design(self, name: str) -> dict[str, str]:
        if name not in self._designs:
            self._designs[name] = self._export(name)
        return self._designs[name]

    def _same(self, name: str, change: Change, flat: bool = False) -> bool:
        """Whether a design is the same hardware with a change.

        flat: optimised across its modules. Raises `_NotElaborated`, `YosysError`.
        """
        plain, folder = self._design(name), self._tree / "build" / "netlist"
        with self._changed(change):
            other = self._export(name)
        if not flat:
            return is_same(plain, other, folder)
        if name not in self._flat:
            self._flat[name] = flat_fingerprint(plain, folder)
        return flat_fingerprint(other, folder) == self._flat[name]

    def _export(self, name: str) -> dict[str, str]:
        file = self._tree / "build" / f"{name}.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tools.mutate.designs", name, str(file)]
        log = self._tree / "build" / "elaboration.txt"
        status = self._call(command, ELABORATION_SECONDS, log, {})
        if status is None:
            raise _NotElaborated(f"not elaborated in {ELABORATION_SECONDS} s")
        if status or not file.exists():
            lines = log.read_text(errors="replace").strip().splitlines()
            raise _NotElaborated(lines[-1][:400] if lines else f"exit status {status}")
        found: dict[str, str] = json.loads(file.read_text())
        return found

    # The tests

    def _plain_seconds(self, test: str) -> float:
        """How long a test takes without a change. Raises `PlainFailure` if it fails."""
        file = test.partition("::")[0]
        digest = hashlib.sha256()
        for used in sorted(closure(self._graph, file)):
            digest.update(used.encode() + (self._tree / used).read_bytes())
        with locked(self._plain):
            known = read_results(self._plain).get(test, {})
        if known.get("digest") != digest.hexdigest():
            verdict = self._run(test)
            if verdict.kind:
                raise PlainFailure(f"{test} fails without a change: {verdict.reason}")
            known = {"digest": digest.hexdigest(), "seconds": verdict.seconds}
            with locked(self._plain):
                write_results(self._plain, {**read_results(self._plain), test: known})
        seconds: float = known["seconds"]
        return seconds

    @property
    def _own_cache(self) -> dict[str, str]:
        """Variables that keep what is built of a change out of the user's cache."""
        folder = self._tree / "build" / "cache"
        return {FOLDER_VARIABLE: str(folder), LIMIT_VARIABLE: str(CACHE_MIB)}

    def _run(self, test: str, variables: dict[str, str] | None = None) -> "_Verdict":
        """Runs a file of tests, or one test, up to the first failure."""
        file = self._tree / "build" / "verdict.json"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tools.mutate.verdict"]
        command += ["-p", "no:cacheprovider", test]
        log = self._tree / "build" / "tests.txt"
        variables = {VARIABLE: str(file)} | (variables or {})
        status = self._call(command, FILE_SECONDS, log, variables)
        if status not in (0, 1, 2) or not file.exists():
            # The interpreter itself ended, or was ended: neither a check nor a build says so.
            tail = log.read_text(errors="replace")[-400:]
            raise RunFailure(f"{test}: pytest ended with {status}: {tail}")
        found = json.loads(file.read_text())
        failed = found["failed"]
        seconds = found["seconds"].get(failed or test, 0.0)
        return _Verdict(failed or "", found["kind"], found["reason"], seconds)

    def _call(
        self, command: list[str], limit: float, log: Path, variables: dict[str, str]
    ) -> int | None:
        """The exit status of a command in the copy, None if it did not end in time."""
        # An editable installation would find the modules of the project.
        if self._stop:
            raise KeyboardInterrupt
        path = os.pathsep.join([str(self._tree / "src"), str(self._tree)])
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        for name in ("PYTEST_ADDOPTS", "WAVES", "MAKEFLAGS", "MAKELEVEL"):
            environment.pop(name, None)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self._tree,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                status: int | None = self._process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(self._process)
                self._process = None
        if self._stop:
            raise KeyboardInterrupt
        return status

    @contextlib.contextmanager
    def _changed(self, change: Change) -> Any:
        """Has the change in the copy for a while."""
        path = self._tree / change.file
        plain = path.read_text()
        try:
            self._write(path, change.text)
            yield
        finally:
            self._write(path, plain)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        # Python takes compiled code for current that is of the same second and the same size.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


@dataclass(frozen=True)
class _Verdict:
    """What a run of tests came to: the test that failed, how, and how long it took."""

    failed: str
    kind: str
    reason: str
    seconds: float


class _NotElaborated(Exception):
    """Amaranth refused a design, or took too long."""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
