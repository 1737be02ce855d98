"""Runs cases, each on a device with as many QPs as it takes; every device is built once."""

import functools
import hashlib
import json
import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.catalogue import Case
from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rnic import Rnic
from stagecoach.sim.cosim.runner import run_cocotb

VERILATOR = "verilator"

_results: dict[tuple[str, str], dict[str, int]] = {}
_ahead: dict[tuple[str, str], Future[dict[str, int]]] = {}


def config_of(case: Case) -> RnicConfig:
    """The default configuration, with more QPs if the case has more."""
    config, options = RnicConfig(), case.options
    qps = options["qps"] + (options["slow"] is not None)
    return replace(config, qps=max(config.qps, 1 << (qps - 1).bit_length()))


@functools.cache
def device_of(config: RnicConfig) -> Rnic:
    """A device; its translation, which takes seconds, is kept."""
    return Rnic(config)


def run_case(case: Case, simulator: str = VERILATOR) -> Mapping[str, int]:
    """The result of a case, which is run once; `CocotbFailure` if it fails."""
    key = (case.identity, simulator)
    if key not in _results:
        ahead = _ahead.get(key)
        _results[key] = ahead.result() if ahead else _run(case, simulator)
    return _results[key]


@contextmanager
def running_ahead(cases: Iterable[Case], jobs: int) -> Iterator[None]:
    """Runs cases in so many processes; `run_case` waits for those that it is asked for.

    With one job each case is run when it is asked for. On leaving, those that have not begun are
    given up.
    """
    if jobs == 1:
        yield
        return
    # Spawned: this process has threads, which a fork would not take along.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    try:
        for case in cases:
            key = (case.identity, VERILATOR)
            if key not in _results and key not in _ahead:
                _ahead[key] = pool.submit(_run, case, VERILATOR)
        yield
    finally:
        pool.shutdown(cancel_futures=True)
        _ahead.clear()


def _run(case: Case, simulator: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run_cocotb(
            device_of(config_of(case)),
            f"bench.{case.module}",
            test_filter=f"{case.check}$",
            parameters={"OPTIONS": json.dumps(case.options), "RESULT": str(result)},
            simulator=simulator,
            ports_only=True,
            name=hashlib.sha256(case.identity.encode()).hexdigest()[:8],
        )
        found: dict[str, int] = json.loads(result.read_text())
        return found
