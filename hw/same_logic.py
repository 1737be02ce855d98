"""Whether two placed netlists are the same logic, wherever their cells are.

`hw/refine.py` writes the netlist that is routed anew. What it may change is where cells are, and
whether an input takes a net before or behind its global buffer.
"""

import json
from pathlib import Path
from typing import Any

from hw.placement import top_module

BUFFER = "DCCA"
"""Of a global net: CLKO is CLKI."""

WHERE = ("NEXTPNR_BEL", "BEL_STRENGTH")
"""Attributes that say where a cell is."""


class OtherLogic(Exception):
    """Two netlists are not the same logic; the message names the first cell that differs."""


def check_same_logic(before: Path, after: Path) -> None:
    """Raises `OtherLogic` if a cell is new, gone, of another kind or driven by another cell."""
    one, other = _logic(before), _logic(after)
    if one.keys() != other.keys():
        name = min(one.keys() ^ other.keys())
        raise OtherLogic(f"only {before if name in one else after} has the cell {name}")
    for name, cell in one.items():
        for what in sorted({*cell, *other[name]}):
            was, now = cell.get(what), other[name].get(what)
            if was != now:
                raise OtherLogic(f"{after}: {what} of the cell {name}: {now}; before: {was}")


def _logic(path: Path) -> dict[str, dict[str, Any]]:
    """What each cell of a netlist is, and what drives its inputs, by its name."""
    cells = top_module(json.loads(path.read_text()))["cells"]
    drivers: dict[int | str, tuple[str, str]] = {}
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                drivers |= {bit: (name, f"{port}[{at}]") for at, bit in enumerate(bits)}

    def driver(bit: int | str) -> str:
        """Cell and port; a constant or the bit of a pin is itself."""
        if bit not in drivers:
            return str(bit)
        name, port = drivers[bit]
        if cells[name]["type"] == BUFFER:
            return driver(cells[name]["connections"]["CLKI"][0])
        return f"{name}/{port}"

    return {
        name: {
            "the type": cell["type"],
            "the parameters": cell["parameters"],
            "the attributes": {
                key: value for key, value in cell["attributes"].items() if key not in WHERE
            },
        }
        | {
            f"the driver of {port}": [driver(bit) for bit in cell["connections"].get(port, ())]
            for port, direction in cell["port_directions"].items()
            if direction != "output"
        }
        for name, cell in cells.items()
    }
