"""Combinational paths of a netlist: on which bits a bit depends in the same cycle."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_NUMBER = re.compile(r"\$\d+(?=\.)")
_BITWISE = {"$not", "$and", "$or", "$xor", "$xnor", "$pos", "$buf"}
_MULTIPLEXERS = {"$mux": ("A", "B"), "$pmux": ("A", "B"), "$bwmux": ("A", "B", "S")}


class Netlist:
    """The flat module of a JSON file that Yosys wrote.

    Every input bit of a cell counts for every output bit, but for cells that work bit by bit.
    Clocked cells end a path.
    """

    def __init__(self, path: Path, top: str):
        module = json.loads(path.read_text())["modules"][top]
        self._names: dict[str, list[Any]] = {
            name: net["bits"] for name, net in module["netnames"].items()
        }
        # Amaranth numbers a submodule that is named as a signal beside it.
        for name, bits in list(self._names.items()):
            self._names.setdefault(_NUMBER.sub("", name), bits)
        self._before: dict[Any, set[Any]] = {}
        self.drivers: dict[Any, tuple[str, list[Any]]] = {}
        """Of a bit that a cell drives in the same cycle: type of the cell, and its inputs."""
        for cell in module["cells"].values():
            for output, inputs in _arcs(cell):
                self.drivers[output] = cell["type"], inputs
                if isinstance(output, int):
                    driving = (bit for bit in inputs if isinstance(bit, int))
                    self._before.setdefault(output, set()).update(driving)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def bits(self, name: str) -> list[Any]:
        """The bits of a net; KeyError if there is none of that name."""
        return self._names[name]

    def reaches(self, source: Iterable[Any], target: Iterable[Any]) -> bool:
        """Whether a combinational path leads from one of the bits to one of the others."""
        sources = {bit for bit in source if isinstance(bit, int)}
        left = [bit for bit in target if isinstance(bit, int)]
        seen = set(left)
        while left:
            bit = left.pop()
            if bit in sources:
                return True
            for before in self._before.get(bit, ()):
                if before not in seen:
                    seen.add(before)
                    left.append(before)
        return False


def _arcs(cell: dict[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Each output bit of a cell with the input bits that it waits for."""
    kind, ports = cell["type"], cell["connections"]
    if "ff" in kind or "latch" in kind:
        return
    if kind == "$memrd_v2" and int(cell["parameters"]["CLK_ENABLE"], 2):
        return
    outputs = [
        bit
        for name, way in cell["port_directions"].items()
        if way == "output"
        for bit in ports[name]
    ]
    inputs = [
        bit
        for name, way in cell["port_directions"].items()
        if way == "input"
        for bit in ports[name]
    ]
    if kind in _BITWISE:
        names = [name for name in ("A", "B") if name in ports]
        for index, output in enumerate(outputs):
            yield output, [ports[name][min(index, len(ports[name]) - 1)] for name in names]
    elif kind in _MULTIPLEXERS:
        width = len(outputs)
        data = _MULTIPLEXERS[kind]
        shared = [] if "S" in data else ports["S"]
        for index, output in enumerate(outputs):
            yield output, [bit for name in data for bit in ports[name][index::width]] + shared
    else:
        for output in outputs:
            yield output, inputs
