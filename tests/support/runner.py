"""Where tests of blocks find the runner; its documentation is in `sim/cosim/runner.py`."""

from stagecoach.sim.cosim.runner import CocotbFailure, build, export_verilog, parameter, run_cocotb

__all__ = ["CocotbFailure", "build", "export_verilog", "parameter", "run_cocotb"]
