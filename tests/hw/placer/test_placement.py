"""Cells of a tile stay within what the tile has, and what belongs together moves together."""

import json

import pytest

from stagecoach.hw.placer.placement import NotPlaced, Placement, bel_of, place_of
from stagecoach.hw.placer.same_logic import check_same_logic
from tests.hw.placer.cells import RESET, cell, flip_flop, lut


@pytest.mark.parametrize("bel", ["X3/Y4/SLICEA.K0", "X3/Y4/SLICED.FF1", "X3/Y4/SLICEC.RAMW"])
def test_a_place_has_the_name_of_its_bel(bel):
    assert bel_of((3, 4), place_of(bel)) == bel


def test_a_bel_without_logic_has_no_place():
    assert place_of("X4/Y22/EBR0") is None


def test_a_flip_flop_moves_with_the_lut_before_it(placement):
    placed = placement(
        lut=lut("X3/Y4/SLICEB.K1", 11, 5),
        flop=flip_flop("X3/Y4/SLICEB.FF1", 12, DI=11, M=None),
        other=flip_flop("X3/Y4/SLICEC.FF0", 13),
    )
    lut_unit, flop_unit, other_unit = placed.unit
    assert lut_unit == flop_unit != other_unit
    new = placed.places(lut_unit, (7, 8))
    assert new == {("K", 0): 0, ("FF", 0): 1}
    placed.move(lut_unit, (7, 8), new)
    assert placed.tile(0) == placed.tile(1) == (7, 8)
    assert placed.tile(2) == (3, 4)
    # And from where it is now to the next one that is free.
    placed.move(other_unit, (7, 8), placed.places(other_unit, (7, 8)))
    assert placed.places(lut_unit, (7, 8)) == {("K", 0): 0, ("FF", 0): 1}
    assert placed.tile(2) == (7, 8)


def test_a_multiplexer_of_two_luts_starts_at_the_first_lut_of_a_slice(placement):
    placed = placement(
        low=lut("X3/Y4/SLICEB.K0", 11, 5, F1=12, M=6, OFX=13),
        high=lut("X3/Y4/SLICEB.K1", 12, 5),
        taken=lut("X7/Y8/SLICEA.K1", 20, 5),
    )
    unit = placed.unit[0]
    assert placed.unit[1] == unit
    assert placed.places(unit, (7, 8)) == {("K", 2): 0, ("K", 3): 1}


def test_a_carry_chain_over_two_tiles_stays(placement):
    placed = placement(
        one=lut("X3/Y4/SLICED.K1", 11, 5, FCO=12),
        two=lut("X4/Y4/SLICEA.K0", 13, 5, FCI=12),
    )
    assert list(placed.unit) == [-1, -1]


@pytest.mark.parametrize(
    ("other", "bel"),
    [
        (flip_flop("X7/Y8/SLICEA.FF0", 20, LSR=3), None),
        (flip_flop("X7/Y8/SLICEA.FF0", 20, CLK=3), None),
        # Another enable needs another slice, nothing else another place.
        (flip_flop("X7/Y8/SLICEA.FF0", 20, CE=3), ("FF", 2)),
        (flip_flop("X7/Y8/SLICEA.FF0", 20), ("FF", 1)),
        # A multiplexer takes the input M of the first half of its slice.
        (lut("X7/Y8/SLICEA.K0", 20, 5, M=6, F1=7), ("FF", 1)),
        (lut("X7/Y8/SLICEA.K0", 20, 5), ("FF", 0)),
    ],
)
def test_a_flip_flop_finds_a_place_that_it_can_share(placement, other, bel):
    placed = placement(flop=flip_flop("X3/Y4/SLICEA.FF0", 12), other=other)
    found = placed.places(placed.unit[0], (7, 8))
    assert found == (None if bel is None else {bel: 0})


def test_what_may_not_be_together_is_named(placement):
    placed = placement(
        one=flip_flop("X3/Y4/SLICEA.FF0", 12),
        two=flip_flop("X3/Y4/SLICED.FF0", 13, LSR=3),
    )
    with pytest.raises(NotPlaced, match=r"one, two cannot be together in the tile \(3, 4\)"):
        placed.check()


def test_logic_takes_a_global_reset_from_before_its_buffer(placement, tmp_path):
    placed = placement(
        reset=flip_flop("X60/Y2/SLICEA.FF0", 30, LSR=None),
        buffer=cell("DCCA", "X67/Y0/TDCC0", {"CLKO"}, {"CLKI": 30, "CLKO": RESET}),
        lut=lut("X3/Y4/SLICEA.K0", 11, RESET, 5),
        flop=flip_flop("X3/Y4/SLICEB.FF0", 12),
    )
    assert placed.globals_to_logic() == {"buffer/CLKO": "reset/Q"}
    path = tmp_path / "changed.json"
    placed.write(path)
    cells = json.loads(path.read_text())["modules"]["top"]["cells"]
    assert cells["lut"]["connections"]["A"] == [30]
    assert cells["lut"]["connections"]["B"] == [5]
    assert cells["flop"]["connections"]["LSR"] == [RESET]
    check_same_logic(tmp_path / "placed.json", path)


@pytest.mark.parametrize("text", ["", "{}", '{"modules": {}}', "[]"])
def test_what_is_no_placed_netlist_is_named(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(NotPlaced, match=r"other\.json"):
        Placement(path)
