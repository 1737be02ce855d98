"""A netlist as nextpnr placed it: what moves together, where it may go, and the file to route.

In a tile of logic there are eight LUTs and eight flip-flops, a pair in each half of slices A to D,
and one write port of a distributed RAM in slice C. nextpnr routes what it is given without looking
whether the cells of a tile may be together, so that is kept here, by the rules of its packer.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Tile = tuple[int, int]
"""Column and row."""

Place = tuple[str, int]
"""In a tile: `K` (LUT), `FF` or `RAMW`, and which: 0 to 7, two for each slice."""

DIRECT = ("DI", "F1", "FXA", "FXB", "FCI")
"""Inputs that only a cell at a certain place beside them can drive, by a wire of its own."""

OF_RAM = ("DPRAM", "RAMW_BLOCK")
LOGIC_INPUTS = {"A", "B", "C", "D", "M"}
TILE_MODES = ("CLKMUX", "LSRMUX", "SRMODE")
SLICE_MODES = ("CEMUX", "GSR")

_LOCATION = re.compile(r"X(\d+)/Y(\d+)/")
_LOGIC = re.compile(r"X\d+/Y\d+/SLICE([ABCD])\.(K|FF|RAMW)(\d?)$")


class NotPlaced(Exception):
    """A file is not a placed netlist; the message names it."""


def location(bel: str) -> Tile:
    """Column and row of a BEL of nextpnr, `X4/Y22/EBR0`."""
    found = _LOCATION.match(bel)
    if found is None:
        raise ValueError(f"BEL {bel!r}; allowed: X<column>/Y<row>/<name>")
    return int(found[1]), int(found[2])


def top_module(design: dict) -> dict:
    """The module of a JSON netlist that holds the design; the others are empty."""
    module: dict = max(design["modules"].values(), key=lambda one: len(one["cells"]))
    return module


def bels(design: dict) -> dict[str, str]:
    """BELs of the placed cells of a design that nextpnr wrote, by the cells' names."""
    return {
        name: cell["attributes"]["NEXTPNR_BEL"]
        for name, cell in top_module(design)["cells"].items()
        if "NEXTPNR_BEL" in cell["attributes"]
    }


def constrain(placed: Path, constrained: Path) -> int:
    """Writes a placed netlist as one whose cells are still to be placed, each where it is now.

    nextpnr places it by its own rules then, or refuses to. Returns how many cells have a place.
    """
    design = json.loads(placed.read_text())
    module = top_module(design)
    count = 0
    for cell in module["cells"].values():
        cell["attributes"].pop("BEL_STRENGTH", None)
        if bel := cell["attributes"].pop("NEXTPNR_BEL", None):
            cell["attributes"]["BEL"] = bel
            count += 1
    # This placer keeps cells where they are told to be; none is left for it to place.
    module["settings"] |= {"placer": "sa"}
    constrained.write_text(json.dumps(design))
    return count


def place_of(bel: str) -> Place | None:
    """Place in its tile of a BEL of logic, None for others."""
    found = _LOGIC.match(bel)
    if found is None:
        return None
    return found[2], "ABCD".index(found[1]) * 2 + int(found[3] or 0)


def bel_of(tile: Tile, place: Place) -> str:
    """Name of a BEL of logic."""
    kind, number = place
    half = "" if kind == "RAMW" else str(number % 2)
    return f"X{tile[0]}/Y{tile[1]}/SLICE{'ABCD'[number // 2]}.{kind}{half}"


class Placement:
    """Cells, by number, and where they are; `column` and `row` are arrays over all of them.

    `units` are cells that are moved together, by wires that only exist within a tile. A cell that
    stays where it is has the unit -1 in `unit`.
    """

    def __init__(self, path: Path):
        """Reads what nextpnr wrote after placing. Raises `NotPlaced`."""
        try:
            self._design = json.loads(path.read_text())
            placed = bels(self._design)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotPlaced(f"{path}: {error}") from error
        if not placed:
            raise NotPlaced(f"{path} has no placed cell; `nextpnr-ecp5 --no-route --write` adds it")
        cells = top_module(self._design)["cells"]
        self.names = list(placed)
        self.number = {name: number for number, name in enumerate(self.names)}
        self.cells: list[dict[str, Any]] = [cells[name] for name in self.names]
        self.column, self.row = np.array([location(bel) for bel in placed.values()]).T.copy()
        self._place = [place_of(bel) for bel in placed.values()]
        self._driver = {
            bit: number
            for number, cell in enumerate(self.cells)
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "output"
            for bit in bits
        }
        self._tiles: dict[Tile, dict[Place, int]] = defaultdict(dict)
        for number, place in enumerate(self._place):
            if place is not None:
                self._tiles[self.tile(number)][place] = number
        self.columns = np.array(sorted({column for column, _ in self._tiles}))
        self.rows = np.array(sorted({row for _, row in self._tiles}))
        self._mode = [cell["parameters"].get("MODE", "LOGIC") for cell in self.cells]
        self._uses_m = [self._takes_m(cell) for cell in self.cells]
        self._clocking = [self._control(cell, ("CLK", "LSR"), TILE_MODES) for cell in self.cells]
        self._enabling = [self._control(cell, ("CE",), SLICE_MODES) for cell in self.cells]
        self._join()

    def type(self, number: int) -> str:
        """Type of a cell, `TRELLIS_COMB`."""
        kind: str = self.cells[number]["type"]
        return kind

    def tile(self, number: int) -> Tile:
        """Where a cell is."""
        return int(self.column[number]), int(self.row[number])

    def globals_to_logic(self) -> dict[str, str]:
        """Takes a global wire from the inputs of logic, and gives each what drives its buffer.

        Returns the pins that drive now, by those of the buffers. nextpnr routes a global net to a
        LUT before all other nets, and then finds no way to the other inputs of some of these LUTs.
        """
        found = {}
        before = {}
        for number, cell in enumerate(self.cells):
            if cell["type"] == "DCCA":
                source = self._driver.get(cell["connections"]["CLKI"][0])
                if source is not None and self.type(source) == "TRELLIS_FF":
                    before[cell["connections"]["CLKO"][0]] = cell["connections"]["CLKI"]
                    found[f"{self.names[number]}/CLKO"] = f"{self.names[source]}/Q"
        for cell in self.cells:
            for port, bits in cell["connections"].items():
                if bits and bits[0] in before and port in LOGIC_INPUTS:
                    cell["connections"][port] = list(before[bits[0]])
        return found

    def places(self, unit: int, tile: Tile) -> dict[Place, int] | None:
        """Places for a unit in a tile where it may be with what is there, or None."""
        there = self._tiles.get(tile, {})
        others = {place: cell for place, cell in there.items() if self.unit[cell] != unit}
        now = [(cell, *self._known_place(cell)) for cell in self.units[unit]]
        lowest = min(number for _, _, number in now)
        for start in self._starts[unit]:
            new = {(kind, number - lowest + start): cell for cell, kind, number in now}
            if not new.keys() & others.keys() and self.fits(others | new):
                return new
        return None

    def move(self, unit: int, tile: Tile, places: Mapping[Place, int]) -> None:
        """Puts a unit where `places` found room for it."""
        for cell in self.units[unit]:
            del self._tiles[self.tile(cell)][self._known_place(cell)]
        for place, cell in places.items():
            self._place[cell] = place
            self.column[cell], self.row[cell] = tile
            self._tiles[tile][place] = cell

    def fits(self, tile: Mapping[Place, int]) -> bool:
        """Whether cells may be together in a tile: one clock and reset, one enable for a slice."""
        clocking = set()
        enabling: dict[int, set] = defaultdict(set)
        carries: dict[int, set] = defaultdict(set)
        m_inputs = []
        for (kind, number), cell in tile.items():
            if self._uses_m[cell]:
                m_inputs.append(number)
            if kind == "FF":
                clocking.add(self._clocking[cell])
                enabling[number // 2].add(self._enabling[cell])
            elif kind == "K":
                carries[number // 2].add(self._mode[cell] == "CCU2")
        return (
            len(clocking) <= 1
            and all(len(one) == 1 for one in enabling.values())
            and all(len(one) == 1 for one in carries.values())
            and len(m_inputs) == len(set(m_inputs))
        )

    def check(self) -> None:
        """Raises `NotPlaced` where cells are together that may not be."""
        for tile, cells in self._tiles.items():
            if not self.fits(cells):
                names = ", ".join(self.names[cell] for cell in cells.values())
                raise NotPlaced(f"{names} cannot be together in the tile {tile}")

    def write(self, path: Path) -> None:
        """Writes the netlist for nextpnr to route."""
        for number, place in enumerate(self._place):
            if place is not None:
                bel = bel_of(self.tile(number), place)
                self.cells[number]["attributes"]["NEXTPNR_BEL"] = bel
        path.write_text(json.dumps(self._design))

    def _known_place(self, cell: int) -> Place:
        place = self._place[cell]
        assert place is not None
        return place

    @staticmethod
    def _takes_m(cell: dict) -> bool:
        """Whether a cell needs the input M of its half slice: a multiplexer or a flip-flop."""
        if cell["type"] == "TRELLIS_FF":
            return str(cell["parameters"].get("SD", "0")).strip() == "0"
        return any(cell["connections"].get(port) for port in ("M", "F1", "FXA"))

    @staticmethod
    def _control(cell: dict, ports: Iterable[str], modes: Iterable[str]) -> tuple:
        nets = (tuple(cell["connections"].get(port, ())) for port in ports)
        return (*nets, *(cell["parameters"].get(mode) for mode in modes))

    def _join(self) -> None:
        """Finds the units and what each may be shifted by within a tile."""
        leader = list(range(len(self.cells)))

        def find(cell: int) -> int:
            while leader[cell] != cell:
                leader[cell] = leader[leader[cell]]
                cell = leader[cell]
            return cell

        for number, cell in enumerate(self.cells):
            if self._place[number] is not None:
                for port in DIRECT:
                    for bit in cell["connections"].get(port, ()):
                        if bit in self._driver:
                            leader[find(number)] = find(self._driver[bit])
        for there in self._tiles.values():
            ram = [
                cell
                for (kind, _), cell in there.items()
                if kind == "RAMW" or self._mode[cell] in OF_RAM
            ]
            for part in ram[1:]:
                leader[find(part)] = find(ram[0])
        groups = defaultdict(list)
        for number in range(len(self.cells)):
            groups[find(number)].append(number)
        self.units: list[list[int]] = []
        self._starts: list[tuple[int, ...]] = []
        self.unit = np.full(len(self.cells), -1)
        for members in groups.values():
            starts = self._starts_of(members)
            if starts:
                self.unit[members] = len(self.units)
                self.units.append(members)
                self._starts.append(starts)

    def _starts_of(self, cells: list[int]) -> tuple[int, ...]:
        """Numbers that the first place of a unit may have; none if the unit stays where it is."""
        places = [self._place[cell] for cell in cells]
        if None in places or len({self.tile(cell) for cell in cells}) > 1:
            return ()
        numbers = sorted({number for _, number in map(self._known_place, cells)})
        first, last = numbers[0], numbers[-1]
        if any(self._mode[cell] != "LOGIC" for cell in cells) or first // 4 != last // 4:
            return (first,)
        if first // 2 != last // 2:
            step = 4  # a function of six inputs: slices A and B, or C and D
        elif first != last or any(
            self.type(cell) == "TRELLIS_COMB" and self._uses_m[cell] for cell in cells
        ):
            step = 2
        else:
            step = 1
        return tuple(range(first % step, 8, step))
