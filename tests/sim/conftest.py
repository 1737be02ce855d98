"""The compiled stub that stands for the device."""

from pathlib import Path

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.sim.build import compile_verilog

STUB = Path(__file__).resolve().parent / "stub.v"
STUB_CONFIG = RnicConfig(qps=4)


@pytest.fixture(scope="session")
def stub_library() -> Path:
    """The stub as a shared library."""
    return compile_verilog(STUB.read_text(), STUB_CONFIG.qps)
