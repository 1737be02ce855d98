"""The compiled stub that stands for the device."""

from pathlib import Path

import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.sim.build import NIC_PARTS, compile_verilog
from stagecoach.sim.resting import split_clocks
from tests.sim.nic_stand_in import stand_in_verilog

STUB = Path(__file__).resolve().parent / "stub.v"
STUB_CONFIG = RnicConfig(qps=4)


@pytest.fixture(scope="session")
def stub_library() -> Path:
    """The stub as a shared library."""
    return compile_verilog(STUB.read_text(), STUB_CONFIG.qps)


@pytest.fixture(scope="session", params=["one clock", "split clocks"])
def nic_library(request: pytest.FixtureRequest) -> Path:
    """The stand-in for a NIC as a shared library."""
    verilog, clocks = stand_in_verilog(), 0
    if request.param == "split clocks":
        verilog, clocks = split_clocks(verilog, "nic")
    return compile_verilog(verilog, STUB_CONFIG.qps, parts=NIC_PARTS, clocks=clocks)
