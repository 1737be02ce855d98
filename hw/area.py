"""What a part of a synthesized device takes, and each of its blocks, by the names of its cells."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path

from stagecoach.hw.placer.placement import top_module

LUT4 = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}
"""LUT4 of a cell after packing; the ends of a carry chain take about five more."""


def by_block(
    netlist: Path, device: str = "device", opened: Collection[str] = ()
) -> dict[str, dict[str, int]]:
    """`lut4`, `lut4_of_memories`, `ff` and `dp16kd` of each block of a device, largest first.

    What a block consists of is its own. Cells between blocks are left out: those of the device
    itself and of its streams, whose names have `__`. Of a block that is `opened`, such as
    `receive.path`, the blocks within stand beside it, and cells between them are its own; signals
    with parts have a row there, too. What follows `$` in a name is left out.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for parts, kind in _cells(netlist, device):
        if len(parts) < 2 or "__" in parts[0]:
            continue
        block = parts[0].partition("$")[0]
        for part in parts[1:-1]:
            if block not in opened or "__" in part:
                break
            block = f"{block}.{part.partition('$')[0]}"
        counts[block][kind] += 1
    rows = {block: _row(cells) for block, cells in counts.items()}
    return dict(sorted(rows.items(), key=lambda row: -row[1]["lut4"]))


def of_part(netlist: Path, part: str) -> dict[str, int]:
    """The same of one part, such as `device.framer`, with all cells whose names begin so."""
    return _row(Counter(kind for _, kind in _cells(netlist, part)))


def _cells(netlist: Path, part: str) -> list[tuple[list[str], str]]:
    """The rest of the name and the type of each cell of a part."""
    cells = top_module(json.loads(netlist.read_text()))["cells"]
    start = f"{part}."
    return [
        (name.removeprefix(start).split("."), cell["type"])
        for name, cell in cells.items()
        if name.startswith(start)
    ]


def _row(cells: Counter[str]) -> dict[str, int]:
    return {
        "lut4": sum(lut4 * cells[kind] for kind, lut4 in LUT4.items()),
        "lut4_of_memories": LUT4["TRELLIS_DPR16X4"] * cells["TRELLIS_DPR16X4"],
        "ff": cells["TRELLIS_FF"],
        "dp16kd": cells["DP16KD"],
    }
