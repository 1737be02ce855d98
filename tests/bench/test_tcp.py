"""The rate of NICs, from the cycles of completions."""

import pytest

from bench.tcp import jain_index, rate, rate_from


def test_one_receiver_counts_from_its_first_completion_to_its_last():
    assert rate([[100, 200, 300]], 50) == 2 * 50 / 200


def test_two_receivers_count_while_both_receive():
    """From cycle 150 to 300: two of the first one, two of the second one."""
    assert rate([[100, 200, 300], [150, 250, 290, 400]], 60) == 4 * 60 / 150


def test_directions_that_were_never_under_way_at_once_have_no_rate():
    with pytest.raises(RuntimeError, match="one direction had ended"):
        rate([[100, 200], [200, 300]], 60)


def test_many_qps_count_from_when_they_begin():
    assert rate_from(100, [200, 300, 500], 60) == 3 * 60 / 400


def test_fairness_is_one_of_equals_and_a_share_of_one_that_has_all():
    assert jain_index([3.0, 3.0, 3.0]) == 1
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == 0.25
