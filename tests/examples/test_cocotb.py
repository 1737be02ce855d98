"""The cocotb example runs as its README says, and leaves a waveform."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.long  # `make test-wheel` runs the example, too
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
