"""When frames arrive at the other end of one direction, and what arrives."""

import time
from fractions import Fraction

import pytest

from stagecoach.sim.wire.clock import CycleClock, WallClock
from stagecoach.sim.wire.impairments import Direction, Impairments
from stagecoach.sim.wire.line import Line

LENGTH = 118
WIRE_PS = 1775 * 64  # 17.75 cycles
FOREVER = 1 << 62
SOME = Fraction(1, 5)


def frames(count: int, length: int = LENGTH) -> list[bytes]:
    return [
        number.to_bytes(4, "big") * (length // 4) + bytes(length % 4) for number in range(count)
    ]


def arrivals(line: Line, now_ps: int = FOREVER) -> list[tuple[int, bytes]]:
    found = []
    while (arrival := line.first(now_ps)) is not None:
        line.pop()
        found.append(arrival)
    return found


def sent(impairments: Impairments, what: list[bytes], direction: Direction = Direction.TX):
    line = Line(impairments, direction)
    for frame in what:
        line.push(frame, 0)
    return arrivals(line)


def test_frames_follow_each_other_at_the_rate_of_the_wire():
    what = frames(5)
    assert sent(Impairments(), what) == [
        ((number + 1) * WIRE_PS, frame) for number, frame in enumerate(what)
    ]


def test_a_delay_is_added_once():
    first, second = sent(Impairments(delay_us=3), frames(2))
    assert (first[0], second[0]) == (3_000_000 + WIRE_PS, 3_000_000 + 2 * WIRE_PS)


def test_a_frame_after_a_pause_begins_at_once():
    line = Line(Impairments(), Direction.TX)
    (frame,) = frames(1)
    line.push(frame, 0)
    line.push(frame, 10 * WIRE_PS)
    assert [at for at, _ in arrivals(line)] == [WIRE_PS, 11 * WIRE_PS]


def test_a_frame_is_not_there_before_its_time():
    line = Line(Impairments(), Direction.TX)
    (frame,) = frames(1)
    assert line.next_arrival_ps is None
    line.push(frame, 0)
    assert line.next_arrival_ps == WIRE_PS
    assert arrivals(line, WIRE_PS - 1) == []
    assert arrivals(line, WIRE_PS) == [(WIRE_PS, frame)]


def test_a_lost_frame_takes_its_time():
    line = Line(Impairments(loss=1), Direction.TX)
    line.push(frames(1)[0], 0)
    assert line.lag_ps(0) == WIRE_PS
    assert arrivals(line) == []


def test_a_copy_comes_directly_after():
    what = frames(2)
    assert sent(Impairments(duplicate=1), what) == [
        (WIRE_PS, what[0]),
        (2 * WIRE_PS, what[0]),
        (3 * WIRE_PS, what[1]),
        (4 * WIRE_PS, what[1]),
    ]


def test_a_late_frame_is_overtaken_by_as_many_as_drawn():
    impairments = Impairments(reorder=Fraction(1, 50), seed=3)
    what = frames(500)
    order = [frame for _, frame in sent(impairments, what)]
    late = [impairments.fate(Direction.TX, number, LENGTH).late_frames for number in range(500)]
    alone = [
        number
        for number in range(8, 492)
        if late[number] and not any(late[number - 8 : number] + late[number + 1 : number + 9])
    ]
    assert len(alone) > 3
    for number in alone:
        assert order.index(what[number]) == number + late[number]
    assert sorted(order) == what


def test_one_bit_of_a_corrupted_frame_is_wrong():
    what = frames(100)
    for (_, arrived), frame in zip(sent(Impairments(corrupt=1), what), what, strict=True):
        difference = int.from_bytes(arrived, "big") ^ int.from_bytes(frame, "big")
        assert difference.bit_count() == 1


def test_it_counts_what_it_did():
    line = Line(Impairments(SOME, SOME, SOME, SOME), Direction.TX)
    what = frames(200)
    for frame in what:
        line.push(frame, 0)
    counts = line.counts
    came = [frame for _, frame in arrivals(line)]
    assert counts["sent"] == len(what)
    assert len(came) == counts["sent"] - counts["lost"] + counts["duplicated"]
    assert len({frame for frame in came if frame not in what}) == counts["corrupted"] > 0
    assert 0 < counts["reordered"] < counts["sent"]


@pytest.mark.parametrize("direction", Direction)
def test_a_run_repeats_to_the_digit(direction):
    impairments = Impairments(SOME, SOME, SOME, SOME, delay_us=1, seed=11)
    what = frames(300)
    assert sent(impairments, what, direction) == sent(impairments, what, direction)
    other = Direction(1 - direction)
    assert sent(impairments, what, direction) != sent(impairments, what, other)


def test_times_do_not_change_what_arrives():
    impairments = Impairments(SOME, SOME, 0, SOME, seed=5)
    what = frames(300)
    line = Line(impairments, Direction.TX)
    for number, frame in enumerate(what):
        line.push(frame, number * 1_000_003)
    assert [f for _, f in arrivals(line)] == [f for _, f in sent(impairments, what)]


def test_lag_tells_what_is_not_sent_and_what_is_not_taken():
    line = Line(Impairments(), Direction.TX)
    assert line.lag_ps(0) == 0
    for frame in frames(3):
        line.push(frame, 0)
    assert line.lag_ps(0) == 3 * WIRE_PS
    assert line.lag_ps(WIRE_PS) == 2 * WIRE_PS
    assert line.lag_ps(10 * WIRE_PS) == 9 * WIRE_PS
    arrivals(line)
    assert line.lag_ps(10 * WIRE_PS) == 0


def test_a_cycle_is_6_4_ns():
    clock = CycleClock()
    assert clock.now_ps() == 0
    clock.advance(5)
    assert clock.now_ps() == 32_000
    with pytest.raises(ValueError, match="cycles is -1; allowed: 0 and more"):
        clock.advance(-1)


def test_the_wall_clock_tells_the_date_and_does_not_go_back():
    clock = WallClock()
    times = [clock.now_ps() for _ in range(100)]
    assert times == sorted(times)
    assert abs(times[-1] / 1e12 - time.time()) < 60
