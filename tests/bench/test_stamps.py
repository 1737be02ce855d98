"""The steady state of a run."""

import pytest

from bench.stamps import Stamp, between, bounds, steady


def test_beginning_and_end_are_left_out():
    slow = [Stamp(1000 * number, 1, 1) for number in range(10)]
    regular = [Stamp(10_000 + 10 * number, 16, 1) for number in range(85)]
    late = [Stamp(20_000 + 1000 * number, 1, 1) for number in range(5)]
    assert steady(slow + regular + late) == {"octets": 84 * 16, "messages": 84, "cycles": 840}


def test_first_stamp_of_the_window_only_begins_it():
    stamps = [Stamp(100 + 4 * number, 8, number % 2) for number in range(8)]
    assert bounds(stamps) == (104, 128)
    assert steady(stamps) == {"octets": 6 * 8, "messages": 3, "cycles": 24}


def test_directions_are_summed_in_one_window():
    one = [Stamp(cycle, 8, 0) for cycle in range(10)]
    other = [Stamp(cycle, 100, 1) for cycle in range(5, 20)]
    assert between([one, other], 3, 7) == {"octets": 4 * 8 + 3 * 100, "messages": 3, "cycles": 4}


def test_too_few_stamps_are_an_error():
    with pytest.raises(ValueError, match="7 stamps; a steady state takes at least 8"):
        steady([Stamp(number, 8, 1) for number in range(7)])
