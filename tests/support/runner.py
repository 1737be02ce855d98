"""Where tests of blocks find the runner; its documentation is in `sim/cosim/runner.py`."""

import re
from pathlib import Path
from typing import Any

from stagecoach.sim.cosim import runner
from stagecoach.sim.cosim.runner import CocotbFailure, build, export_verilog, parameter
from tests.support.fast import chosen_check

__all__ = ["CocotbFailure", "build", "export_verilog", "parameter", "run_cocotb"]


def run_cocotb(
    component: Any, test_module: str, *, ports_only: bool = True, **options: Any
) -> Path:
    """As the runner does it, but with the ports alone, which is what a block is tested at.

    With `--fast` one cocotb test of the module is run.
    """
    __tracebackhide__ = True
    check = chosen_check(test_module)
    if check is not None and "test_filter" not in options:
        options["test_filter"] = re.escape(check) + "$"
    return runner.run_cocotb(component, test_module, ports_only=ports_only, **options)
