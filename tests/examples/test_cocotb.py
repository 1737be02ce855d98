"""The cocotb example runs as its README says, and leaves a waveform."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stagecoach.sim.cosim.runner import run_cocotb
from tests.support.pair import PAIR

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_programs_of_the_example_run():
    """Without a waveform, so that they need no simulator of their own."""
    run_cocotb(PAIR, "examples.cocotb.test_two_devices", ports_only=True)


@pytest.mark.slow
@pytest.mark.long  # its simulator, which leaves waveforms, takes minutes to build
@pytest.mark.timeout(1800)
def test_cocotb_example_passes_and_leaves_a_waveform():
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "examples/cocotb"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 1 passed" in result.stdout
    found = re.search(r"waveform: (.*)$", result.stdout, re.MULTILINE)
    assert found, result.stdout
    assert Path(found[1]).stat().st_size > 10_000
