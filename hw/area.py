"""What each block of a synthesized device takes, by the names of its cells."""

import json
from collections import Counter, defaultdict
from pathlib import Path

from stagecoach.hw.placer.placement import top_module

LUT4 = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}
"""LUT4 of a cell after packing; the ends of a carry chain take about five more."""


def by_block(netlist: Path, device: str = "device") -> dict[str, dict[str, int]]:
    """`lut4`, `lut4_of_memories`, `ff` and `dp16kd` of each block of a device, largest first.

    What a block consists of is its own. Cells between blocks are left out: those of the device
    itself and of its streams, whose names have `__`.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, cell in top_module(json.loads(netlist.read_text()))["cells"].items():
        parts = name.split(".")
        if parts[0] == device and len(parts) > 2 and "__" not in parts[1]:
            counts[parts[1]][cell["type"]] += 1
    rows = {
        block: {
            "lut4": sum(lut4 * cells[kind] for kind, lut4 in LUT4.items()),
            "lut4_of_memories": LUT4["TRELLIS_DPR16X4"] * cells["TRELLIS_DPR16X4"],
            "ff": cells["TRELLIS_FF"],
            "dp16kd": cells["DP16KD"],
        }
        for block, cells in counts.items()
    }
    return dict(sorted(rows.items(), key=lambda row: -row[1]["lut4"]))
