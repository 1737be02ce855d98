"""What happens to a frame depends on seed, direction and number alone."""

from fractions import Fraction

import pytest

from stagecoach.sim.wire.impairments import Direction, Fate, Impairments

CYCLE_PS = 6400
FRAMES = 20_000

# Of probability 1/2 and seed 7: lost, duplicated, frames that overtake it, the bit that is wrong.
FIRST_TX = [Fate(False, False, 1, None), Fate(True, True, 3, 685), Fate(False, False, 3, 189)]
FIRST_RX = [Fate(True, True, 0, None), Fate(False, True, 2, 195), Fate(True, False, 4, None)]


def fates(impairments: Impairments, direction: Direction = Direction.TX, frames: int = FRAMES):
    return [impairments.fate(direction, number, 100) for number in range(frames)]


@pytest.mark.parametrize("octets", [60, 118, 1514, 9014])
def test_a_frame_takes_its_octets_and_24_more_at_8_a_cycle(octets):
    assert Impairments().wire_time_ps(octets) == Fraction(octets + 24, 8) * CYCLE_PS


def test_a_short_frame_is_padded():
    assert Impairments().wire_time_ps(54) == Fraction(84, 8) * CYCLE_PS


def test_the_rate_scales_the_time():
    assert Impairments(rate_gbps=1).wire_time_ps(1514) == 10 * Impairments().wire_time_ps(1514)
    # 12,304 bits at 3 Gbit/s are 4,101,333.3 ps.
    assert Impairments(rate_gbps=3).wire_time_ps(1514) == 4_101_334


def test_a_delay_is_exact():
    assert Impairments(delay_us=Fraction("2.5")).delay_ps == 2_500_000


def test_fates_stay_the_same_from_version_to_version():
    some = Fraction(1, 2)
    impairments = Impairments(some, some, some, some, seed=7)
    assert fates(impairments, frames=3) == FIRST_TX
    assert fates(impairments, Direction.RX, frames=3) == FIRST_RX


@pytest.mark.parametrize("name", ["loss", "duplicate", "reorder", "corrupt"])
def test_each_impairment_comes_as_often_as_asked(name):
    drawn = fates(Impairments(**{name: Fraction(1, 10)}, seed=1))
    clean = Fate(lost=False, duplicated=False, late_frames=0, flipped=None)
    impaired = [fate for fate in drawn if fate != clean]
    # 2,000 are expected; the standard deviation is 42.
    assert 1800 < len(impaired) < 2200
    assert {
        "loss": all(fate.lost for fate in impaired),
        "duplicate": all(fate.duplicated for fate in impaired),
        "reorder": {fate.late_frames for fate in impaired} == {1, 2, 3, 4},
        "corrupt": all(fate.flipped is not None for fate in impaired),
    }[name]


def test_any_bit_of_a_frame_can_be_wrong():
    drawn = fates(Impairments(corrupt=1, seed=2))
    assert {fate.flipped for fate in drawn} == set(range(800))


def test_probability_1_is_always():
    assert all(fate.lost for fate in fates(Impairments(loss=1), frames=100))


def test_seeds_directions_and_impairments_are_independent():
    half = Fraction(1, 2)
    one = Impairments(loss=half, duplicate=half)
    other = Impairments(loss=half, duplicate=half, seed=1)
    lost = [fate.lost for fate in fates(one)]
    for others in (
        [fate.lost for fate in fates(other)],
        [fate.lost for fate in fates(one, Direction.RX)],
        [fate.duplicated for fate in fates(one)],
        [*lost[1:], lost[0]],
    ):
        equal = sum(a == b for a, b in zip(lost, others, strict=True))
        # 10,000 are expected; the standard deviation is 71.
        assert 9600 < equal < 10400


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": 1.5}, "loss is 1.5; allowed: 0 to 1"),
        ({"loss": float("nan")}, "loss is nan; allowed: 0 to 1"),
        ({"delay_us": -1}, "delay_us is -1; allowed: 0 to 10000000"),
        ({"rate_gbps": 0}, "rate_gbps is 0; allowed: 0.001 to 1000"),
        ({"seed": -1}, "seed is -1; allowed: 0 to 18446744073709551615"),
    ],
)
def test_other_values_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Impairments(**values)
