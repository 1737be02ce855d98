"""The chunks of `make soak`, one test each; `sim.malformer.soak` runs them with pytest-xdist."""

import json
import os
from collections.abc import Callable

import pytest

from stagecoach.sim.malformer.chunk import run_chunk
from stagecoach.sim.malformer.soak import PLAN_VARIABLE, decode_plan

SEED, SIZES = decode_plan(os.environ[PLAN_VARIABLE])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(len(SIZES)))
def test_chunk(chunk: int, record_property: Callable[[str, object], None]):
    report = run_chunk(SEED, chunk, SIZES[chunk])
    record_property("malformer", json.dumps(report.to_dict()))
    assert not report.failures
