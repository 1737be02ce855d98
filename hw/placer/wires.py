"""Delay of a wire before it is routed, by the distance between its cells.

nextpnr estimates 76 ps for each tile from the sixth on; routed wires take about half of that, so
what is far away seems worse than it is, and what is near better. The figures here were fitted to
the routed wires of the device; others by `python -m stagecoach.hw.placer.wires PLACED SDF`.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console

from stagecoach.hw.placer.delays import Delays, NotSdf
from stagecoach.hw.placer.placement import DIRECT, NotPlaced, Placement

DISTANCES = (0, 1, 2, 3, 4, 6, 9, 13, 20, 30, 50, 130)
"""Columns or rows between two cells for which `COLUMNS_NS` and `ROWS_NS` are given."""

SHORTEST_NS = 0.292
"""Between cells of the same tile."""

COLUMNS_NS = (0, 0.119, 0.170, 0.262, 0.322, 0.326, 0.477, 0.591, 0.814, 1.161, 1.801, 4.845)
ROWS_NS = (0, 0.147, 0.197, 0.313, 0.396, 0.382, 0.580, 0.701, 0.978, 1.360, 2.154, 6.811)

INPUTS_NS = {
    ("DP16KD", "ADA"): 0.20,
    ("DP16KD", "ADB"): 0.16,
    ("DP16KD", "DIA"): 0.18,
    ("DP16KD", "DIB"): 0.17,
    ("TRELLIS_COMB", "A"): 0.20,
    ("TRELLIS_COMB", "B"): 0.17,
    ("TRELLIS_COMB", "C"): 0.13,
    ("TRELLIS_COMB", "D"): 0.09,
    ("TRELLIS_COMB", "M"): 0.04,
    ("TRELLIS_COMB", "WRE"): -0.12,
    ("TRELLIS_FF", "CE"): 0.03,
    ("TRELLIS_FF", "LSR"): -0.07,
    ("TRELLIS_FF", "M"): 0.09,
    ("TRELLIS_RAMW", "A"): 0.26,
    ("TRELLIS_RAMW", "B"): 0.26,
    ("TRELLIS_RAMW", "C"): 0.16,
    ("TRELLIS_RAMW", "D"): 0.02,
}
"""What the last step to an input adds, by the type of the cell and the name of the port."""

FEW = 500
"""Inputs of a kind that a device must have for a figure of their own."""

Values = npt.NDArray[np.float64]


def by_distance(columns: int, rows: int) -> Values:
    """Delay in ns between cells that are so many columns and rows apart, of a chip of that size."""
    of_columns = np.interp(np.arange(columns), DISTANCES, COLUMNS_NS)
    of_rows = np.interp(np.arange(rows), DISTANCES, ROWS_NS)
    found: Values = SHORTEST_NS + of_columns[:, None] + of_rows[None, :]
    return found


def kind(cell_type: str, port: str) -> tuple[str, str]:
    """Key in `INPUTS_NS` of a port, which may have the number of a bit."""
    return cell_type, port.rstrip("0123456789")


def _hats(distance: Values) -> Values:
    """Share of each figure of `COLUMNS_NS`, but the first, in the delay of a distance."""
    one = np.eye(len(DISTANCES))
    return np.stack([np.interp(distance, DISTANCES, row) for row in one[1:]], axis=1)


def fit(placement: Placement, delays: Delays) -> tuple[Values, dict[tuple[str, str], float], float]:
    """Fits the figures to routed wires, by least squares.

    Returns the shortest delay with those of the columns and of the rows, what the inputs add, and
    the standard deviation of what is left, all in ns.
    """
    across, along, routed, kinds = [], [], [], []
    for pin, (source, delay) in delays.wires.items():
        cell, port = pin.rsplit("/", 1)
        there, here = placement.number.get(cell), placement.number.get(source.rsplit("/", 1)[0])
        if there is None or here is None or port in DIRECT or delay == 0:
            continue
        if placement.type(here) == "TRELLIS_RAMW":
            continue
        across.append(abs(placement.column[here] - placement.column[there]))
        along.append(abs(placement.row[here] - placement.row[there]))
        routed.append(delay)
        kinds.append(kind(placement.type(there), port))
    frequent = sorted(one for one, count in Counter(kinds).items() if count >= FEW)
    number = {one: place for place, one in enumerate(frequent)}
    is_kind = np.zeros((len(routed), len(frequent)))
    for row, one in enumerate(kinds):
        if one in number:
            is_kind[row, number[one]] = 1
    # What inputs add is 0 on average over all wires.
    share = is_kind.mean(axis=0)
    of_distance = [_hats(np.array(one, dtype=float)) for one in (across, along)]
    table = np.hstack([np.ones((len(routed), 1)), *of_distance, is_kind - share])
    figures, *_ = np.linalg.lstsq(table, np.array(routed), rcond=None)
    count = 1 + 2 * (len(DISTANCES) - 1)
    left = np.array(routed) - table @ figures
    figures[0] -= share @ figures[count:]
    return figures[:count], dict(zip(frequent, figures[count:], strict=True)), float(left.std())


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m stagecoach.hw.placer.wires", description=__doc__
    )
    parser.add_argument("placed", type=Path, help="netlist that was routed: `.refined`")
    parser.add_argument("sdf", type=Path, help="its delays")
    options = parser.parse_args(arguments)
    try:
        figures, added, left = fit(Placement(options.placed), Delays.read(options.sdf))
    except (NotPlaced, NotSdf) as error:
        print(f"wires: {error}", file=sys.stderr)
        return 1
    console = Console()
    count = len(DISTANCES) - 1
    for name, row in (
        ("SHORTEST_NS", figures[:1]),
        ("COLUMNS_NS", np.append(0, figures[1 : count + 1])),
        ("ROWS_NS", np.append(0, figures[count + 1 :])),
    ):
        console.print(f"{name} = ({', '.join(f'{value:.3f}' for value in row)})", soft_wrap=True)
    for what, value in added.items():
        console.print(f"{what}: {value:.2f}")
    console.print(f"left over: standard deviation {left:.3f} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
