"""Whether a netlist that was refined is the logic that nextpnr has placed.

`refine.py` writes the netlist that is routed. It may change where cells are, and it may let an
input of the logic take a net from before its global buffer (`Placement.globals_to_logic`); all else
has to be equal.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from stagecoach.hw.placer.placement import LOGIC_INPUTS, top_module

WHERE = "NEXTPNR_BEL"
"""The attribute that says where a cell is."""


class OtherLogic(Exception):
    """A netlist is not the logic that it was; the message names the first difference."""


def check_same_logic(before: Path, after: Path) -> None:
    """Raises `OtherLogic` if there is a difference, or if a file is not a netlist."""
    try:
        one, other = (json.loads(path.read_text()) for path in (before, after))
        _move_back(one, other)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OtherLogic(f"{before} and {after} are not netlists: {error!r}") from error
    difference = next(_differences(one, other, ""), None)
    if difference is not None:
        raise OtherLogic(f"{after} is not the logic of {before}: {difference}")


def _move_back(one: dict, other: dict) -> None:
    """Takes back in `other` what refining may do to `one`."""
    before, cells = top_module(one)["cells"], top_module(other)["cells"]
    to_buffer = _buffers(before)
    for name in before.keys() & cells.keys():
        was, now = before[name], cells[name]
        if WHERE in was["attributes"] and WHERE in now["attributes"]:
            now["attributes"][WHERE] = was["attributes"][WHERE]
        for port in LOGIC_INPUTS & was["connections"].keys():
            nets = was["connections"][port]
            if now["connections"].get(port) == [to_buffer.get(net, net) for net in nets]:
                now["connections"][port] = nets


def _buffers(cells: dict) -> dict[int, int]:
    """The net before each global buffer that is always enabled, by the net after it."""
    ones = {bit for cell in cells.values() if _is_one(cell) for bit in cell["connections"]["F"]}
    return {
        nets["CLKO"][0]: nets["CLKI"][0]
        for nets in (cell["connections"] for cell in cells.values() if cell["type"] == "DCCA")
        if ones.issuperset(nets.get("CE", ()))
    }


def _is_one(cell: dict) -> bool:
    """Whether a cell is a LUT that gives 1 whatever its inputs are."""
    parameters = cell["parameters"]
    logic = cell["type"] == "TRELLIS_COMB" and parameters.get("MODE", "LOGIC") == "LOGIC"
    return logic and set(parameters.get("INITVAL", "")) == {"1"}


def _differences(one: object, other: object, path: str) -> Iterator[str]:
    """Where two JSON values differ, as `cells/<name>/connections/A: [3]; before: [2]`."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                yield f"{path}{key} is in one of them only"
            else:
                yield from _differences(one[key], other[key], f"{path}{key}/")
    elif type(one) is not type(other) or one != other:
        yield f"{path.removesuffix('/')}: {other}; before: {one}"
