"""Parts of the reference TCP, each held to known answers."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.challenge import ChallengeLimit
from stagecoach.sim.model.tcp.reassembly import Reassembly
from stagecoach.sim.model.tcp.rto import RetransmissionTimeout
from stagecoach.sim.model.tcp.window import field_for, receiver_edge, shift_for
from tests.sim.model.tcp.vectors import vectors

requirement = pytest.mark.requirement


@requirement("TCP-3.4-03")
@pytest.mark.parametrize("vector", vectors("window"))
def test_acceptability_is_table_6_of_rfc9293(vector):
    numbers = int(vector["seg_seq"], 16), vector["seg_len"], int(vector["rcv_nxt"], 16)
    assert sequence.acceptable(*numbers, vector["rcv_wnd"]) == vector["acceptable"]


@requirement("TCP-3.4-01")
@given(st.integers(0, sequence.SPACE - 1), st.integers(-(1 << 31), (1 << 31) - 1))
def test_order_holds_across_the_wrap(number, count):
    moved = sequence.add(number, count)
    assert sequence.distance(moved, number) == count
    assert sequence.before(moved, number) == (count < 0)
    if count > -(1 << 31):
        assert sequence.before(number, moved) == (count > 0)
        assert sequence.latest(number, moved) == (moved if count > 0 else number)


@requirement("RTO-2.1-01", "RTO-2.2-01", "RTO-2.3-01", "RTO-2.3-02", "RTO-4-01", "RTO-5.5-01")
@pytest.mark.parametrize("vector", vectors("rto"))
def test_rto_takes_the_steps_of_its_vector(vector):
    rto = RetransmissionTimeout(vector["G_us"], vector["min_us"], vector["max_us"])
    for event, step in zip(vector["samples"], vector["steps"], strict=True):
        if event == "timeout":
            rto.expire()
        else:
            rto.sample(event)
        srtt8 = rto.srtt8 or 0
        assert [srtt8 >> 3, rto.rttvar4 >> 2, rto.microseconds, srtt8, rto.rttvar4] == step


@requirement("TCP-SHLD-31", "SACK-4-04")
def test_ranges_join_and_sack_names_the_last_one_first():
    data = Reassembly()
    assert data.take(10, b"k") == b""
    assert data.take(20, b"u") == b""
    assert data.blocks() == [(20, 21), (10, 11)]
    assert data.take(11, b"l") == b""
    assert data.blocks() == [(10, 12), (20, 21)]
    assert data.take(0, b"abcdefghij") == b"abcdefghijkl"
    assert data.blocks() == [(20, 21)]
    assert data.gap
    assert data.take(0, b"abc") == b""
    assert data.take(12, b"mnopqrstu") == b"mnopqrstu"
    assert not data.gap
    assert data.next == 21


def test_range_too_many_is_discarded_and_filling_the_gap_is_not():
    data = Reassembly(ranges_max=2)
    for position in (2, 4, 6):
        assert data.take(position, b"x") == b""
    assert data.blocks() == [(4, 5), (2, 3)]
    assert data.take(0, b"ab") == b"abx"
    with pytest.raises(ValueError, match="0 ranges"):
        Reassembly(0)


@requirement("TCP-SHLD-31")
def test_any_order_gives_the_stream():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    for _ in range(100):
        stream = chosen.randbytes(200)
        data, taken = Reassembly(chosen.randrange(1, 6)), b""
        while len(taken) < len(stream):
            start = chosen.randrange(len(stream))
            taken += data.take(start, stream[start : start + chosen.randrange(1, 40)])
            assert data.next == len(taken)
            edges = sorted(data.blocks())
            assert all(left > data.next for left, _ in edges)
            assert all(a[1] < b[0] for a, b in itertools.pairwise(edges))
        assert taken == stream


@requirement("TCPSEC-7-01")
def test_challenge_acks_are_limited_in_each_period():
    limit = ChallengeLimit(limit=2, period=100)
    assert [limit.allow(now) for now in (0, 50, 60, 99, 100, 101, 150)] == [
        True,
        True,
        False,
        False,
        True,
        False,
        True,
    ]


@requirement("WS-2.3-01", "WS-2.3-03")
@pytest.mark.parametrize(
    ("buffer", "shift"),
    [(1, 0), (0xFFFF, 0), (0x10000, 1), (0x20000, 2), (256 << 10, 3), (0xFFFF << 14, 14)],
)
def test_shift_is_the_smallest_that_holds_the_buffer(buffer, shift):
    assert shift_for(buffer) == shift


def test_buffer_too_large_is_refused():
    with pytest.raises(ValueError, match="at most 1073725440"):
        shift_for(1 << 30)


@requirement("TCP-MUST-39", "TCP-SHLD-14")
def test_edge_moves_by_a_segment_or_half_the_buffer_and_never_left():
    assert receiver_edge(10_000, 4_000, 7_459, 10_000, 1_460, 0) == 10_000
    assert receiver_edge(10_000, 4_000, 7_460, 10_000, 1_460, 0) == 11_460
    assert receiver_edge(1_000, 1_000, 499, 1_000, 1_460, 0) == 1_000
    assert receiver_edge(1_000, 1_000, 500, 1_000, 1_460, 0) == 1_500
    assert receiver_edge(10_000, 4_000, 100, 10_000, 1_460, 0) == 10_000
    assert receiver_edge(0, 3, 0x20001, 0x20001, 1_460, 2) == 0x20003


@requirement("WS-2.4-02", "TCP-MUST-1")
def test_window_field_is_rounded_down():
    assert field_for(1_003, 0, 2) == 250
    assert field_for(1 << 20, 0, 0) == 0xFFFF
