"""The delay of a wire follows from its distance, by figures that can be found again from wires."""

import re

import numpy as np
import pytest

from stagecoach.hw.placer import wires
from stagecoach.hw.placer.delays import Delays
from stagecoach.sim.cosim.streams import seeded_random
from tests.hw.placer.cells import cell, lut

SIZE = 131
"""Columns and rows of the chip: as many as `DISTANCES` covers."""

ADDED = {"A": 0.2, "B": 0.1, "C": 0.0}
"""ns of the inputs of LUTs here; there are not enough C for a figure of their own."""


def test_wires_get_slower_with_the_distance():
    table = wires.by_distance(100, 80)
    assert table.shape == (100, 80)
    assert table[0, 0] == wires.SHORTEST_NS
    assert (np.diff(table, axis=0) >= -0.02).all() and (np.diff(table, axis=1) >= -0.02).all()


@pytest.mark.parametrize("number", range(len(wires.DISTANCES)))
def test_the_figures_are_those_of_their_distances(number):
    table, distance = wires.by_distance(SIZE, SIZE), wires.DISTANCES[number]
    assert table[distance, 0] == pytest.approx(wires.SHORTEST_NS + wires.COLUMNS_NS[number])
    assert table[0, distance] == pytest.approx(wires.SHORTEST_NS + wires.ROWS_NS[number])
    assert table[distance, 1] == pytest.approx(table[distance, 0] + wires.ROWS_NS[1])


def test_between_two_figures_is_a_straight_line():
    assert wires.by_distance(1, 6)[0, 5] == pytest.approx(
        wires.SHORTEST_NS + (wires.ROWS_NS[4] + wires.ROWS_NS[5]) / 2
    )


@pytest.mark.parametrize("port", ["ADA0", "ADA13", "ADA"])
def test_the_number_of_a_bit_is_no_kind(port):
    assert wires.kind("DP16KD", port) == ("DP16KD", "ADA")


@pytest.fixture
def routed(placement):
    """Cells all over a chip, and wires between them with the delays that the figures say."""
    rng = seeded_random()
    cells = {
        f"l{number}": lut(f"X{rng.randrange(SIZE)}/Y{rng.randrange(SIZE)}/SLICEA.K0", number)
        for number in range(60)
    }
    cells["ram"] = cell("TRELLIS_RAMW", "X1/Y1/SLICEC.RAMW", {"WDO"}, {"WDO": 90})
    placed = placement(**cells)
    delays, table = Delays(), wires.by_distance(SIZE, SIZE)
    luts = [name for name in cells if name != "ram"]
    for number in range(2 * wires.FEW + 200):
        source, target = rng.choice(luts), rng.choice(luts)
        if number < 100:
            target = source  # of the same tile
        port = "A" if number < wires.FEW else "B" if number < 2 * wires.FEW else "C"
        here, there = (placed.tile(placed.number[name]) for name in (source, target))
        distance = abs(here[0] - there[0]), abs(here[1] - there[1])
        # Pins are told apart by the numbers of their bits.
        delays.wires[f"{target}/{port}{number}"] = f"{source}/F", table[distance] + ADDED[port]
    return placed, delays


def test_the_figures_are_found_again(routed):
    placement, delays = routed
    # None of these is a wire that is routed over a distance.
    delays.wires |= {
        "l1/DI": ("l0/F", 70.0),
        "l1/D": ("l0/F", 0.0),
        "l2/D": ("ram/WDO", 70.0),
        "l3/D": ("nowhere/F", 70.0),
        "nowhere/D": ("l0/F", 70.0),
    }
    figures, added, left = wires.fit(placement, delays)
    expected = [wires.SHORTEST_NS, *wires.COLUMNS_NS[1:], *wires.ROWS_NS[1:]]
    assert figures == pytest.approx(expected, abs=1e-6)
    assert added == {
        ("TRELLIS_COMB", port): pytest.approx(ADDED[port], abs=1e-6) for port in ("A", "B")
    }
    assert left == pytest.approx(0, abs=1e-6)


def test_the_command_prints_the_figures(routed, tmp_path, capsys):
    placement, delays = routed
    placement.write(tmp_path / "refined.json")
    lines = [
        f"    (INTERCONNECT {source} {pin} (1:1:{1000 * delay:.0f}) (1:1:1))"
        for pin, (source, delay) in delays.wires.items()
    ]
    (tmp_path / "sdf").write_text("\n".join(["(DELAYFILE", *lines, ")"]))
    assert wires.main([str(tmp_path / "refined.json"), str(tmp_path / "sdf")]) == 0
    printed = dict(
        re.split(" = |: ", line, maxsplit=1) for line in capsys.readouterr().out.splitlines()
    )
    for name in ("COLUMNS_NS", "ROWS_NS"):
        figures = [float(one) for one in printed[name].strip("()").split(", ")]
        assert figures == pytest.approx(getattr(wires, name), abs=0.01)
    assert float(printed["SHORTEST_NS"].strip("()")) == pytest.approx(wires.SHORTEST_NS, abs=0.01)
    assert printed["('TRELLIS_COMB', 'A')"] == "0.20"
    assert printed["left over"] == "standard deviation 0.000 ns"


def test_the_command_refuses_what_it_cannot_read(tmp_path, capsys):
    assert wires.main([str(tmp_path / "none.json"), str(tmp_path / "none.sdf")]) == 1
    assert "none.json" in capsys.readouterr().err
