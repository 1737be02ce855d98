"""Runs cases, each on a device with as many QPs as it takes; every device is built once."""

import functools
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.catalogue import Case
from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rnic import Rnic
from stagecoach.sim.cosim.runner import run_cocotb

_results: dict[tuple[str, str], dict[str, int]] = {}


def config_of(case: Case) -> RnicConfig:
    """The default configuration, with more QPs if the case has more."""
    config, options = RnicConfig(), case.options
    qps = options["qps"] + (options["slow"] is not None)
    return replace(config, qps=max(config.qps, 1 << (qps - 1).bit_length()))


@functools.cache
def device_of(config: RnicConfig) -> Rnic:
    """A device; its translation, which takes seconds, is kept."""
    return Rnic(config)


def run_case(case: Case, simulator: str = "verilator") -> Mapping[str, int]:
    """The result of a case, which is run once; `CocotbFailure` if it fails."""
    key = (case.identity, simulator)
    if key not in _results:
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
            _results[key] = json.loads(result.read_text())
    return _results[key]
