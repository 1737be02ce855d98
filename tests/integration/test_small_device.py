"""The small configuration, which fits an LFE5U-45F, moves the same data as every other one."""

import json

import pytest

from stagecoach.hw.timing import CONFIGS
from stagecoach.sim.cosim.pair import RnicPair
from stagecoach.sim.cosim.runner import run_cocotb

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]


def test_random_operations_between_two_small_devices(tmp_path):
    result = tmp_path / "small.json"
    run_cocotb(
        RnicPair(CONFIGS["small"]),
        "tests.integration.test_pair",
        parameters={"MODE": "paused", "RESULT": str(result)},
        ports_only=True,
    )
    assert json.loads(result.read_text())["cycles"] > 1000
