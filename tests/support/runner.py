"""Where tests of blocks find the runner; its documentation is in `sim/cosim/runner.py`."""

from pathlib import Path
from typing import Any

from stagecoach.sim.cosim import runner
from stagecoach.sim.cosim.runner import CocotbFailure, build, export_verilog, parameter

__all__ = ["CocotbFailure", "build", "export_verilog", "parameter", "run_cocotb"]


def run_cocotb(
    component: Any, test_module: str, *, ports_only: bool = True, **options: Any
) -> Path:
    """As the runner does it, but with the ports alone, which is what a block is tested at."""
    __tracebackhide__ = True
    return runner.run_cocotb(component, test_module, ports_only=ports_only, **options)
