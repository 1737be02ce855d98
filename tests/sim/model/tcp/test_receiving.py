"""Receiving: order, the window, when an ACK is due, SACK blocks, urgent data."""

import pytest

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.state import State
from tests.sim.model.tcp.script import IRS, MS, S, established, peer_data

requirement = pytest.mark.requirement
MSS = 1460


def test_unread_bytes_are_those_in_order():
    script = established()
    assert script.connection.unread == 0
    script.arrive("A", 1, data=100)
    script.arrive("A", 201, data=100)
    assert script.connection.unread == 100
    script.arrive("A", 101, data=100)
    assert script.connection.unread == 300
    script.receive(250)
    assert script.connection.unread == 50


@requirement("TCP-SHLD-18", "TCP-MUST-40", "CC-4.2-01", "CC-4.2-02")
def test_single_segment_is_acknowledged_after_the_delay():
    script = established()
    script.arrive("PA", 1, 1, data=100)
    script.at(40 * MS - 1)
    assert script.sent() == []
    script.at(40 * MS)
    assert script.timed() == [(40 * MS, "A 1 ack 101")]
    script.at(10 * S)
    assert script.sent() == []


@requirement("TCP-MUST-40", "CC-4.2-02")
def test_delay_counts_from_the_first_segment():
    script = established(delayed_ack=400 * MS)
    script.arrive("A", 1, 1, data=100)
    script.at(300 * MS)
    script.arrive("A", 101, 1)
    script.at(400 * MS)
    assert script.timed() == [(400 * MS, "A 1 ack 101")]


@requirement("TCP-SHLD-19", "CC-4.2-03", "CC-4.2-04", "TCP-MUST-58")
def test_second_segment_is_acknowledged_at_once_and_both_by_one_ack():
    script = established()
    script.arrive("A", 1, 1, data=MSS)
    assert script.sent() == []
    script.arrive("A", 1461, 1, data=MSS)
    assert script.sent() == ["A 1 ack 2921"]
    script.arrive("A", 2921, 1, data=MSS)
    script.at(39 * MS)
    assert script.sent() == []
    script.at(S)
    assert script.timed() == [(40 * MS, "A 1 ack 4381")]


@requirement("TCP-SHLD-31", "CC-3.2-01", "TCP-MAY-13", "SACK-4-01", "SACK-4-03", "SACK-4-04")
def test_segments_after_a_gap_are_kept_and_each_is_reported_at_once():
    script = established(syn={"mss": MSS, "sack_permitted": True})

    def blocks() -> list[tuple[int, int]]:
        return [
            (sequence.distance(left, IRS), sequence.distance(right, IRS))
            for left, right in script.last.options.sack
        ]

    script.arrive("A", 101, 1, data=100)
    assert (script.sent(), blocks()) == (["A 1 ack 1"], [(101, 201)])
    script.arrive("A", 301, 1, data=100)
    assert (script.sent(), blocks()) == (["A 1 ack 1"], [(301, 401), (101, 201)])
    script.arrive("A", 201, 1, data=50)
    assert (script.sent(), blocks()) == (["A 1 ack 1"], [(101, 251), (301, 401)])
    script.arrive("A", 1, 1, data=100)
    assert (script.sent(), blocks()) == (["A 1 ack 251"], [(301, 401)])
    script.arrive("A", 251, 1, data=50)
    assert (script.sent(), blocks()) == (["A 1 ack 401"], [])
    assert script.receive() == peer_data(1, 400)


@requirement("CC-3.2-02", "TCP-MUST-59", "CC-4.2-04")
def test_segment_that_fills_a_gap_is_acknowledged_at_once_by_one_ack():
    script = established()
    script.arrive("A", 101, 1, data=100)
    script.arrive("A", 301, 1, data=100)
    script.sent()
    script.arrive("A", 1, 1, data=100)
    assert script.sent() == ["A 1 ack 201"]
    script.arrive("A", 201, 1, data=100)
    assert script.sent() == ["A 1 ack 401"]


@requirement("SACK-3-01")
def test_blocks_need_the_permission_of_the_peer():
    script = established()
    script.arrive("A", 101, 1, data=100)
    assert (script.sent(), script.last.options.sack) == (["A 1 ack 1"], ())
    script = established(sack=False, syn={"mss": MSS, "sack_permitted": True})
    script.arrive("A", 101, 1, data=100)
    assert (script.sent(), script.last.options.sack) == (["A 1 ack 1"], ())


def test_blocks_go_on_an_ack_of_their_own_and_not_on_data():
    script = established(syn={"mss": MSS, "sack_permitted": True}, win=1000)
    script.send(1500)
    script.sent()
    # It opens the window and has data after a gap.
    script.arrive("A", 101, 1001, data=100)
    assert script.sent() == ["A 1001 ack 1", "PA 1001+500 ack 1"]
    assert [len(segment.options.sack) for segment in script.segments[-2:]] == [1, 0]


@requirement("CC-4.2-04", "TCP-MUST-58")
def test_acknowledgment_rides_on_data_that_becomes_free():
    script = established(win=1000)
    script.send(1500)
    script.arrive("A", 1, 1, data=10, win=1000)
    script.sent()
    script.arrive("A", 11, 1001, data=10)
    assert script.sent() == ["PA 1001+500 ack 21"]


@requirement("TCP-3.10.7.4-02", "CC-4.2-04")
@pytest.mark.parametrize(
    ("seq", "count"), [(-99, 100), (1 - 2000, 10), (1 + (128 << 10), 10), (-999, 1000)]
)
def test_segment_outside_the_window_is_acknowledged_and_dropped(seq, count):
    script = established()
    script.arrive("A", seq, 1, data=count)
    assert script.sent() == ["A 1 ack 1"]
    script.at(S)
    assert script.sent() == []
    assert script.receive() == b""


@requirement("TCP-3.4-03", "TCP-3.4-01")
def test_parts_that_are_old_or_past_the_window_are_cut():
    script = established(receive_buffer=1000)
    script.arrive("A", 1, 1, data=100)
    script.arrive("A", 51, 1, data=100)
    assert script.sent() == ["A 1 ack 151"]
    script.arrive("A", 901, 1, data=200)
    assert script.sent() == ["A 1 ack 151"]
    script.arrive("A", 151, 1, data=750)
    assert script.sent() == ["A 1 ack 1001"]
    assert script.receive() == peer_data(1, 1000)


@requirement("TCP-3.4-03")
def test_segment_past_both_edges_of_the_window_is_refused():
    # Table 6, literally: neither its first nor its last byte is in the window.
    script = established(receive_buffer=100)
    script.arrive("A", 0, 1, data=200)
    assert script.sent() == ["A 1 ack 1"]
    assert script.receive() == b""


@requirement("TCP-MUST-39", "TCP-SHLD-14", "TCP-MAY-8")
def test_receiver_avoids_silly_windows_and_never_takes_back_what_it_announced():
    script = established(receive_buffer=4000)
    script.arrive("A", 1, 1, data=MSS)
    script.arrive("A", 1461, 1, data=MSS)
    assert (script.sent(), script.last.window) == (["A 1 ack 2921"], 1080)
    script.arrive("A", 2921, 1, data=1080)
    script.at(S)
    assert (script.sent(), script.last.window) == (["A 1 ack 4001"], 0)
    script.at(100 * S)
    # 1459 bytes are less than a segment.
    assert len(script.receive(1459)) == 1459
    assert script.sent() == []
    script.receive(1)
    assert (script.sent(), script.last.window) == (["A 1 ack 4001"], 1460)
    # From now on two segments, or half of the buffer.
    script.receive(1999)
    assert script.sent() == []
    script.receive(1)
    assert (script.sent(), script.last.window) == (["A 1 ack 4001"], 3460)


@requirement("TCP-MUST-39")
def test_small_reads_leave_the_edge_where_it_is():
    script = established(receive_buffer=4000)
    edges = []
    for number in range(20):
        script.arrive("A", 1 + 100 * number, 1, data=100)
        script.receive()
        script.after(40 * MS)
        script.sent()
        segment = script.last
        edges.append(sequence.distance(segment.acknowledgment, IRS) + segment.window)
    # It moves by a segment at a time.
    assert edges == [4001] * 14 + [5501] * 6


@requirement("TCP-MUST-39")
def test_update_of_a_large_window_needs_two_segments():
    script = established(receive_buffer=60_000)
    for number in range(4):
        script.arrive("A", 1 + MSS * number, 1, data=MSS)
    script.sent()
    script.receive(2 * MSS - 1)
    assert script.sent() == []
    script.receive(1)
    assert script.sent() == ["A 1 ack 5841"]


@requirement("TCP-MUST-39", "WS-2.3-02")
def test_update_of_a_scaled_window():
    script = established(receive_buffer=256 << 10, syn={"mss": MSS, "window_scale": 0})
    for number in range(4):
        script.arrive("A", 1 + MSS * number, 1, data=MSS)
    script.sent()
    script.receive()
    assert script.sent() == ["A 1 ack 5841"]


@requirement("WS-2.4-01", "WS-2.4-02", "TCP-SHLD-14")
def test_edge_does_not_move_left_by_rounding():
    script = established(receive_buffer=256 << 10, syn={"mss": MSS, "window_scale": 0})
    edges = []
    for number in range(40):
        script.arrive("A", 1 + 7 * number, 1, data=7)
        if number % 3 == 2:
            script.receive()
        script.after(40 * MS)
        script.sent()
        segment = script.last
        edges.append(sequence.distance(segment.acknowledgment, IRS) + (segment.window << 3))
    # The field is rounded down: at most 7 bytes less than the edge.
    assert max(edges) - min(edges) < 8
    edge = script.connection._record.receiver._edge + 1
    assert all(edge - 8 < found <= edge for found in edges)


@requirement("TCP-MUST-66", "TCP-SHLD-16")
def test_acks_are_taken_while_the_own_window_is_closed():
    script = established(receive_buffer=100)
    script.arrive("A", 1, 1, data=100)
    script.after(40 * MS)
    script.send(5000)
    script.sent()
    assert script.last.window == 0
    # Its data has no place, its ACK has.
    script.arrive("A", 101, 5001, data=50)
    assert script.sent() == ["A 5001 ack 101"]
    script.at(10 * S)
    assert script.sent() == []


def test_window_update_is_taken_while_the_own_window_is_closed():
    script = established(receive_buffer=100, win=1000)
    script.arrive("A", 1, 1, data=100, win=1000)
    script.after(40 * MS)
    script.send(1500)
    script.sent()
    script.arrive("A", 101, 1001, win=1000, data=50)
    assert script.sent() == ["A 1001 ack 101", "PA 1001+500 ack 101"]
    script.arrive("A", 101, 1501)
    script.send(10)
    assert script.sent() == ["PA 1501+10 ack 101"]


def test_acks_of_other_numbers_are_not_taken_while_the_own_window_is_closed():
    script = established(receive_buffer=100)
    script.arrive("A", 1, 1, data=100)
    script.after(40 * MS)
    script.send(500)
    script.sent()
    for seq in (100, 102):
        script.arrive("A", seq, 501, data=50)
        assert script.sent() == ["A 501 ack 101"]
    assert script.connection._record.sender.outstanding


def test_wrong_ack_while_the_own_window_is_closed_is_answered_once():
    script = established(receive_buffer=100)
    script.arrive("A", 1, 1, data=100)
    script.after(40 * MS)
    script.sent()
    script.arrive("A", 101, 5001, data=50)
    assert script.sent() == ["A 1 ack 101"]


@requirement("TCP-MUST-66")
@pytest.mark.parametrize("data", [0, 10])
def test_reset_is_taken_while_the_own_window_is_closed(data):
    script = established(receive_buffer=100)
    script.arrive("A", 1, 1, data=100)
    script.after(40 * MS)
    script.sent()
    script.arrive("R", 101, data=data)
    assert (script.state, script.sent()) == (State.CLOSED, [])


@requirement("TCP-MUST-66", "TCP-MUST-30")
def test_urgent_pointer_is_seen_while_the_own_window_is_closed():
    script = established(receive_buffer=100)
    script.arrive("A", 1, 1, data=100)
    script.after(40 * MS)
    script.sent()
    script.arrive("AU", 101, 1, data=10, urgent=5)
    assert script.connection.urgent_segments == 1
    assert script.sent() == ["A 1 ack 101"]


@requirement("TCP-MUST-30", "TCP-MUST-31", "TCP-MUST-62")
@pytest.mark.parametrize("urgent", [0, 1, 5, 10, 0xFFFF])
def test_urgent_data_stays_in_the_stream(urgent):
    script = established()
    script.arrive("PAU", 1, 1, data=10, urgent=urgent)
    script.arrive("PA", 11, 1, data=10)
    assert script.receive() == peer_data(1, 20)
    assert script.connection.urgent_segments == 1


def test_the_model_sends_no_urgent_data():
    script = established()
    script.send(5000)
    script.close()
    script.sent()
    assert all(segment.urgent == 0 for segment in script.segments)
    assert not [line for line in script.sent() if "U" in line]


@requirement("TCP-3.10.7.4-03")
@pytest.mark.parametrize("flags", ["", "P", "F", "U"])
def test_segment_without_ack_is_dropped(flags):
    script = established()
    script.arrive(flags, 1, data=10)
    script.at(S)
    assert (script.state, script.sent(), script.receive()) == (State.ESTABLISHED, [], b"")


def test_keep_alive_probes_of_both_forms_are_answered():
    script = established()
    script.arrive("A", 1, 1, data=1)
    script.after(40 * MS)
    script.sent()
    script.arrive("A", 1, 1)
    script.arrive("A", 1, 1, data=1)
    assert script.sent() == ["A 1 ack 2"] * 2


@requirement("TCP-MUST-5")
def test_options_on_any_segment_are_taken():
    script = established()
    script.arrive("A", 1, 1, data=10, sack=((5, 6),), mss=1)
    script.arrive("FA", 11, 1, sack_permitted=True, window_scale=3)
    assert script.receive() == peer_data(1, 10)
    assert script.state is State.CLOSE_WAIT


@requirement("WS-3.2-04")
def test_timestamps_that_were_not_agreed_on_are_ignored():
    # The codec skips the option (TCP-MUST-6); none is ever sent.
    script = established()
    script.send(10)
    script.sent()
    assert script.last.options.encode() == b""


@requirement("SACK-8-02")
def test_range_too_many_is_neither_kept_nor_acknowledged():
    script = established(ranges=2, syn={"mss": MSS, "sack_permitted": True})
    for seq in (101, 301, 501):
        script.arrive("A", seq, 1, data=10)
    assert len(script.last.options.sack) == 2
    for seq in (1, 111, 311):
        script.arrive("A", seq, 1, data=190 if seq > 1 else 100)
    script.after(40 * MS)
    script.sent()
    assert script.last.acknowledgment == sequence.add(IRS, 501)
