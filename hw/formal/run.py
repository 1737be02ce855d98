"""Proves properties side by side, in processes of their own, and remembers what passed."""

import importlib
import importlib.abc
import importlib.machinery
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from stagecoach.hw.cache import CacheError
from stagecoach.hw.formal.harness import GATEWARE
from stagecoach.hw.formal.property import Mutation, Property, Rebuilt
from stagecoach.hw.formal.prove import Mode, Outcome, ProofError, Task, cached, prove

BUILD = Path("build") / "formal"
Properties = Mapping[str, Sequence[Property]]
"""By the module of `hw.formal.properties` that has them."""

TIMEOUT_SECONDS = 300
"""Of one run of sby; the largest block takes 30 on an idle core."""


@dataclass(frozen=True)
class Result:
    """What came of a property.

    result: "proved", the cycles from the reset for which it holds, or "failed".
    seconds: of all that was run for it, when it was.
    reason: of a failure, in a few words, with what shows it.
    covers_total, covers_met: what was to be met from any state, and was (`Property.reached`).
    """

    block: str
    name: str
    result: str | int
    seconds: float
    reason: str = ""
    log: str = ""
    counterexample: dict[str, int] = field(default_factory=dict)
    covers_total: int = 0
    covers_met: int = 0

    @property
    def passed(self) -> bool:
        return self.result != "failed"


def tasks(proved: Property) -> list[Task]:
    """What sby has to do for a property, its proof first."""
    model = proved.build()
    if proved.netlist:
        return [Task(model, Mode.NETLIST, 0, "", proved.netlist)]
    mode = Mode.BOUNDED if proved.bounded else Mode.INDUCTION
    found = [Task(model, mode, proved.depth, proved.engine)]
    if proved.covered:
        found.append(Task(model, Mode.COVER, proved.covered, proved.engine))
    if proved.reached:
        found.append(Task(model, Mode.REACH, proved.reached, proved.engine))
    return found


def breaks(mutant: Property) -> Task:
    """What sby has to do with the mutant of a property, which fails if a claim of it is broken.

    From the reset if nothing else is known. Of an induction, from any state that its invariants
    allow: in it, and for as long, the claims of the good block never fail.
    """
    proof, *_ = tasks(mutant)
    if proof.mode is Mode.INDUCTION and proof.model.claims:
        return replace(proof, mode=Mode.BREAK, more=mutant.mutant_cycles)
    return proof


WORDS = {
    (Mode.INDUCTION, "FAIL"): "does not hold from the reset",
    (Mode.INDUCTION, "UNKNOWN"): "holds from the reset, but not from every state",
    (Mode.BOUNDED, "FAIL"): "does not hold",
    (Mode.NETLIST, "FAIL"): "the netlist breaks it",
    (Mode.COVER, "FAIL"): "the guarded event is not reached",
    (Mode.REACH, "FAIL"): "holds, but some of what it covers is not reached from any state",
    (Mode.BREAK, "FAIL"): "a claim fails",
    (Mode.BREAK, "PASS"): "no claim fails",
}


def attempt(proved: Property, timeout_seconds: int) -> Result:
    """Prove a property, or take the result from the cache if nothing changed."""
    folder = BUILD / _folder_name(proved)
    seconds, covers = 0.0, 0
    for task in tasks(proved):
        if task.mode is Mode.REACH:
            covers = len(task.model.covers)
        outcome = cached(task, folder / task.mode.value, timeout_seconds=timeout_seconds)
        seconds += outcome.seconds
        if not outcome.passed:
            return _failed(proved, task, outcome, seconds)
    result = proved.depth if proved.bounded else "proved"
    log = _shown(outcome.log)
    return Result(
        proved.block,
        proved.name,
        result,
        seconds,
        log=log,
        covers_total=covers,
        covers_met=covers,
    )


def _failed(proved: Property, task: Task, outcome: Outcome, seconds: float) -> Result:
    reason = WORDS.get((task.mode, outcome.status), outcome.status.lower())
    if outcome.trace:
        reason += f"; {_shown(outcome.trace)}"
    covers = len(task.model.covers) if proved.reached else 0
    missed = len(outcome.counterexample) if task.mode is Mode.REACH else covers
    return Result(
        proved.block,
        proved.name,
        "failed",
        seconds,
        reason,
        _shown(outcome.log),
        dict(outcome.counterexample),
        covers,
        covers - missed,
    )


def _folder_name(proved: Property) -> str:
    return re.sub(r"\W+", "_", proved.key).strip("_").lower()


def _shown(path: Path) -> str:
    return os.path.relpath(path)


def _find(module: str, key: str) -> Property:
    properties = importlib.import_module("stagecoach.hw.formal.properties")
    return next(each for each in properties.properties_of(module) if each.key == key)


def _work(module: str, key: str, timeout_seconds: int) -> Result:
    proved = _find(module, key)
    try:
        return attempt(proved, timeout_seconds)
    except (ProofError, CacheError, LookupError) as error:
        return Result(proved.block, proved.name, "failed", 0.0, str(error))


def _pool(jobs: int, tasks_each: int | None = None) -> ProcessPoolExecutor:
    # Spawned: a mutant replaces modules before they are imported.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=tasks_each)


def prove_all(
    properties: Properties, jobs: int, timeout_seconds: int = TIMEOUT_SECONDS
) -> Iterator[Result]:
    """Results as they come."""
    with _pool(jobs) as pool:
        pending = [
            pool.submit(_work, module, each.key, timeout_seconds)
            for module, those in properties.items()
            for each in those
        ]
        for done in as_completed(pending):
            yield done.result()


@dataclass(frozen=True)
class Killed:
    """Whether a property fails where it must: for a block with a mutation."""

    block: str
    name: str
    mutation: str
    killed: bool
    seconds: float
    reason: str
    counterexample: dict[str, int] = field(default_factory=dict)


class _Mutating(importlib.abc.MetaPathFinder):
    """Loads one module from a source that is changed in one place."""

    def __init__(self, mutation: Mutation):
        self._mutation = mutation

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None and spec.origin is not None
        source = Path(spec.origin).read_text()
        count = source.count(self._mutation.old)
        if count != 1:
            raise ProofError(f"{name} has {self._mutation.old!r} {count} times; allowed: once")
        code = compile(source.replace(self._mutation.old, self._mutation.new), name, "exec")

        class Loader(importlib.abc.Loader):
            def exec_module(self, module: ModuleType) -> None:
                exec(code, module.__dict__)

        return importlib.machinery.ModuleSpec(name, Loader(), origin=spec.origin)


def _work_mutant(
    module: str, key: str, number: int, mutation: Mutation | None, timeout_seconds: int
) -> Killed:
    """Attempt a property on the mutant of this number, which `mutation` makes if it is one."""
    if mutation:
        for name in [name for name in sys.modules if f"{name}.".startswith(GATEWARE)]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Mutating(mutation))
    block, name = key.split(": ", 1)
    shown = f"{mutation.old} -> {mutation.new}" if mutation else ""
    try:
        if mutation:
            importlib.import_module(mutation.module)
        broken = _find(module, key)
        change = broken.mutations[number]
        if isinstance(change, Rebuilt):
            shown = change.name
            broken = replace(broken, build=change.build)
        task = breaks(broken)
        folder = BUILD / "mutants" / _folder_name(broken) / str(number)
        outcome = prove(task, folder, timeout_seconds=timeout_seconds)
    except ProofError as error:
        return Killed(block, name, shown, False, 0.0, str(error))
    except Exception as error:  # of the changed source, whatever it is: it shows nothing
        reason = f"cannot be built: {type(error).__name__}: {error}"
        return Killed(block, name, shown, False, 0.0, reason)
    killed = outcome.status == "FAIL"
    reason = WORDS.get((task.mode, outcome.status), outcome.status.lower())
    values = dict(outcome.counterexample)
    return Killed(block, name, shown, killed, outcome.seconds, reason, values)


def break_all(
    properties: Properties, jobs: int, timeout_seconds: int = TIMEOUT_SECONDS
) -> Iterator[Killed]:
    """Attempt each property on each of its mutants."""
    with _pool(jobs, tasks_each=1) as pool:
        pending = [
            pool.submit(
                _work_mutant,
                module,
                each.key,
                number,
                change if isinstance(change, Mutation) else None,
                timeout_seconds,
            )
            for module, those in properties.items()
            for each in those
            for number, change in enumerate(each.mutations)
        ]
        for done in as_completed(pending):
            yield done.result()
