"""Runs cases on one device that is built once."""

import functools
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.catalogue import Case
from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rnic import Rnic
from stagecoach.sim.cosim.runner import run_cocotb

_results: dict[tuple[str, str], dict[str, int]] = {}


@functools.cache
def default_device() -> Rnic:
    """The device in its default configuration; its translation, which takes seconds, is kept."""
    return Rnic(RnicConfig())


def run_case(case: Case, simulator: str = "verilator") -> Mapping[str, int]:
    """The result of a case, which is run once; `CocotbFailure` if it fails."""
    key = (case.identity, simulator)
    if key not in _results:
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            run_cocotb(
                default_device(),
                f"bench.{case.module}",
                test_filter=f"{case.check}$",
                parameters={"OPTIONS": json.dumps(case.options), "RESULT": str(result)},
                simulator=simulator,
                ports_only=True,
                name=hashlib.sha256(case.identity.encode()).hexdigest()[:8],
            )
            _results[key] = json.loads(result.read_text())
    return _results[key]
