"""Closing: FIN in every order, resets, TIME-WAIT, half-duplex close."""

import pytest

from stagecoach.sim.model.tcp.state import Cause, State, StateError
from tests.sim.model.tcp.script import MS, S, Script, accepted, established

requirement = pytest.mark.requirement
MSL = 120 * S


@requirement("TCP-3.6-01", "TCP-MUST-13", "TCP-3.10.8-01", "TCP-MUST-12")
def test_local_close_first():
    script = established()
    script.close()
    assert (script.state, script.sent()) == (State.FIN_WAIT_1, ["FA 1 ack 1"])
    script.arrive("A", 1, 2)
    assert script.state is State.FIN_WAIT_2
    script.arrive("PA", 1, 2, data=b"late")
    assert script.receive() == b"late"
    script.sent()
    script.at(30 * MS)
    script.arrive("FA", 5, 2)
    assert (script.state, script.sent()) == (State.TIME_WAIT, ["A 2 ack 6"])
    assert script.connection.finished
    script.at(30 * MS + 2 * MSL - 1)
    assert script.state is State.TIME_WAIT
    script.at(30 * MS + 2 * MSL)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.CLOSED)
    assert script.sent() == []


@requirement("TCP-3.6-01", "TCP-MUST-12")
def test_remote_close_first():
    script = established()
    script.arrive("FA", 1, 1, data=b"end")
    assert (script.state, script.sent()) == (State.CLOSE_WAIT, ["A 1 ack 5"])
    assert not script.connection.finished
    assert script.receive() == b"end"
    assert script.connection.finished
    script.send(10)
    assert script.sent() == ["PA 1+10 ack 5"]
    script.close()
    assert (script.state, script.sent()) == (State.LAST_ACK, ["FA 11 ack 5"])
    script.arrive("A", 5, 11)
    assert script.state is State.LAST_ACK
    script.arrive("A", 5, 12)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.CLOSED)
    assert script.connection.next_deadline() is None


@requirement("TCP-3.6-01", "TCP-MUST-13")
def test_both_close_at_once():
    script = established()
    script.close()
    script.arrive("FA", 1, 1)
    assert (script.state, script.sent()) == (State.CLOSING, ["FA 1 ack 1", "A 2 ack 2"])
    script.arrive("A", 2, 1)
    assert script.state is State.CLOSING
    script.at(S)
    script.arrive("A", 2, 2)
    assert script.state is State.TIME_WAIT
    assert script.connection.next_deadline() is not None
    script.at(S + 2 * MSL - 1)
    assert script.state is State.TIME_WAIT
    script.at(S + 2 * MSL)
    assert script.state is State.CLOSED


@requirement("TCP-3.6-01")
def test_fin_that_acknowledges_ours_goes_to_time_wait():
    script = established()
    script.close()
    script.sent()
    script.arrive("FA", 1, 2)
    assert (script.state, script.sent()) == (State.TIME_WAIT, ["A 2 ack 2"])


@requirement("TCP-3.4-02", "TCP-MUST-61")
def test_fin_goes_with_the_last_data():
    script = established()
    script.send(100)
    script.sent()
    script.send(200)
    script.close()
    assert script.sent() == ["PA 101+200 ack 1", "FA 301 ack 1"]
    script = established(win=1460)
    script.send(1500)
    script.close()
    assert script.sent() == ["A 1+1460 ack 1"]
    script.arrive("A", 1, 1461, win=1460)
    assert script.sent() == ["FPA 1461+40 ack 1"]


def test_fin_waits_for_room_in_the_window():
    script = established(win=100)
    script.send(100)
    script.close()
    # 100 bytes fill the window: FIN takes a number of its own.
    assert (script.state, script.sent()) == (State.FIN_WAIT_1, ["PA 1+100 ack 1"])
    script.arrive("A", 1, 101, win=1)
    assert script.sent() == ["FA 101 ack 1"]


def test_fin_that_ends_at_the_edge_of_the_window_goes_with_its_data():
    script = established(win=101)
    script.send(50)
    script.sent()
    script.arrive("A", 1, 51, win=51)
    script.send(50)
    script.close()
    assert script.sent() == ["PA 51+50 ack 1", "FA 101 ack 1"]
    script.arrive("A", 1, 102)
    assert script.state is State.FIN_WAIT_2


def test_fin_takes_no_room_in_the_congestion_window():
    # RFC 5681, 2: cwnd limits data. 14,600 bytes fill the initial window.
    script = established()
    script.send(14_600)
    assert len(script.sent()) == 10
    script.close()
    assert (script.state, script.sent()) == (State.FIN_WAIT_1, ["FA 14601 ack 1"])
    script = established()
    script.send(13_140)
    script.sent()
    script.send(1_461)
    script.close()
    assert script.sent() == ["A 13141+1460 ack 1"]
    script.arrive("A", 1, 1461)
    assert script.sent() == ["FPA 14601+1 ack 1"]


def test_fin_waits_while_more_is_outstanding_than_the_congestion_window_has():
    script = established()
    script.send(14_600)
    script.sent()
    script.arrive("A", 1, 1)
    script.arrive("A", 1, 1)
    script.arrive("A", 1, 1)
    # Half the flight, and three segments more (RFC 5681, 3.2).
    assert script.sent() == ["A 1+1460 ack 1"]
    script.close()
    assert script.sent() == []
    script.arrive("A", 1, 14_601)
    assert script.sent() == ["FA 14601 ack 1"]


@requirement("TCP-MUST-36", "TCP-SHLD-29")
def test_fin_probes_a_window_that_is_closed():
    script = established(win=100)
    script.send(100)
    script.close()
    script.sent()
    script.arrive("A", 1, 101, win=0)
    script.at(S)
    assert script.timed() == [(S, "FA 101 ack 1")]
    script.arrive("A", 1, 102, win=0)
    assert script.state is State.FIN_WAIT_2
    script.at(20 * S)
    assert script.sent() == []


@requirement("TCP-3.10.7.4-04")
@pytest.mark.parametrize("state", [State.CLOSE_WAIT, State.CLOSING, State.TIME_WAIT])
def test_data_after_the_fin_is_ignored(state):
    script = established()
    if state is State.CLOSE_WAIT:
        script.arrive("FA", 1, 1)
    else:
        script.close()
        script.arrive("FA", 1, 1 + (state is State.TIME_WAIT))
    script.sent()
    assert script.state is state
    script.arrive("PA", 2, 1, data=b"too late")
    script.at(10 * MS)
    assert script.receive() == b""
    assert script.state is state
    assert script.connection.finished


@requirement("TCP-3.10.7.4-04")
def test_data_behind_a_fin_in_the_same_order_is_cut():
    script = established()
    # FIN stands after "ab"; what a later segment has at its place and after is not taken.
    script.arrive("FA", 2, 1, data=b"b")
    script.arrive("PA", 3, 1, data=b"xyz")
    script.arrive("PA", 1, 1, data=b"a")
    assert script.receive() == b"ab"
    assert script.state is State.CLOSE_WAIT


def test_fin_after_a_gap_waits_for_the_data():
    script = established(syn={"mss": 1460, "sack_permitted": True})
    script.arrive("FA", 11, 1, data=10)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["A 1 ack 1"])
    script.arrive("A", 1, 1, data=10)
    assert (script.state, script.sent()) == (State.CLOSE_WAIT, ["A 1 ack 22"])


def test_fin_alone_after_a_gap_waits_too():
    script = established()
    script.arrive("FA", 11, 1)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["A 1 ack 1"])
    script.arrive("A", 1, 1, data=10)
    assert (script.state, script.sent()) == (State.CLOSE_WAIT, ["A 1 ack 12"])


def test_fin_past_the_window_is_cut():
    script = established(receive_buffer=100)
    script.arrive("FA", 1, 1, data=100)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["A 1 ack 101"])
    assert len(script.receive()) == 100
    script.sent()
    script.arrive("FA", 101, 1)
    assert (script.state, script.sent()) == (State.CLOSE_WAIT, ["A 1 ack 102"])


def test_repeated_fin_is_acknowledged_and_starts_the_wait_anew():
    script = established()
    script.close()
    script.arrive("FA", 1, 2)
    script.sent()
    script.at(100 * S)
    script.arrive("FA", 1, 2)
    assert script.sent() == ["A 2 ack 2"]
    script.at(100 * S + 2 * MSL - 1)
    assert script.state is State.TIME_WAIT
    script.at(100 * S + 2 * MSL)
    assert script.state is State.CLOSED


def test_other_segments_do_not_start_the_wait_anew():
    script = established()
    script.close()
    script.arrive("FA", 1, 2)
    script.at(100 * S)
    script.arrive("A", 2, 2)
    script.arrive("A", 1, 2, data=b"x")
    script.at(2 * MSL)
    assert script.state is State.CLOSED


@requirement("TCP-3.10.8-01", "RTO-5.4-01")
def test_fin_is_sent_again_until_it_is_acknowledged():
    script = established()
    script.close()
    script.at(7 * S)
    assert script.timed() == [(S * t, "FA 1 ack 1") for t in (0, 1, 3, 7)]
    script.arrive("A", 1, 2)
    script.at(100 * S)
    assert (script.state, script.sent()) == (State.FIN_WAIT_2, [])


def test_fin_is_sent_again_with_the_data_that_it_went_with():
    script = established(win=1460)
    script.send(1500)
    script.close()
    script.arrive("A", 1, 1461, win=1460)
    script.sent()
    script.at(S)
    assert script.sent() == ["FPA 1461+40 ack 1"]


def test_fin_that_was_sent_again_is_not_sent_once_more_by_an_ack():
    script = established()
    script.close()
    script.at(S)
    script.sent()
    script.arrive("A", 1, 1, win=5000)
    assert script.sent() == []


def test_fin_that_was_not_sent_does_not_go_with_a_retransmission():
    script = established(win=100)
    script.send(100)
    script.close()
    script.sent()
    script.at(S)
    assert script.sent() == ["PA 1+100 ack 1"]


@requirement("TCP-MUST-12", "TCP-3.10.8-01")
def test_abort_resets_at_the_number_that_would_be_next():
    script = established()
    script.send(10)
    script.sent()
    script.abort()
    assert script.sent() == ["RA 11 ack 1"]
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.ABORTED)
    assert script.connection.next_deadline() is None
    with pytest.raises(StateError, match="abort in CLOSED"):
        script.abort()


@pytest.mark.parametrize("state", ["LISTEN", "SYN_SENT", "CLOSING", "LAST_ACK", "TIME_WAIT"])
def test_abort_needs_no_reset_where_all_was_sent(state):
    if state in ("LISTEN", "SYN_SENT"):
        script = Script()
        if state == "LISTEN":
            script.connection.listen()
        else:
            script.open()
    else:
        script = established()
        if state == "LAST_ACK":
            script.arrive("FA", 1, 1)
        script.close()
        if state != "LAST_ACK":
            script.arrive("FA", 1, 1 + (state == "TIME_WAIT"))
    assert script.state is State[state]
    script.sent()
    script.abort()
    assert (script.state, script.sent()) == (State.CLOSED, [])


@pytest.mark.parametrize("state", ["SYN_RECEIVED", "FIN_WAIT_1", "FIN_WAIT_2", "CLOSE_WAIT"])
def test_abort_resets_a_peer_that_has_a_connection(state):
    if state == "SYN_RECEIVED":
        script = Script()
        script.connection.listen()
        script.arrive("S", 0)
    else:
        script = established()
        if state == "CLOSE_WAIT":
            script.arrive("FA", 1, 1)
        else:
            script.close()
        if state == "FIN_WAIT_2":
            script.arrive("A", 1, 2)
    assert script.state is State[state]
    script.sent()
    script.abort()
    closed, heard = state.startswith("FIN"), state == "CLOSE_WAIT"
    assert script.sent() == [f"RA {1 + closed} ack {1 + heard}"]


@requirement("TCP-SHLD-3")
def test_half_duplex_close_with_unread_data_resets():
    script = established()
    script.arrive("PA", 1, 1, data=b"unread")
    script.sent()
    script.close(discard=True)
    assert script.sent() == ["RA 1 ack 7"]
    assert script.connection.cause is Cause.DATA_LOST


@requirement("TCP-SHLD-3")
def test_data_after_a_half_duplex_close_resets():
    script = established()
    script.arrive("PA", 1, 1, data=b"read")
    assert script.receive() == b"read"
    script.close(discard=True)
    script.arrive("A", 5, 2)
    # What comes again is no new data.
    script.arrive("PA", 1, 2, data=b"read")
    assert script.state is State.FIN_WAIT_2
    script.sent()
    script.arrive("PA", 5, 2, data=b"x")
    assert script.sent() == ["RA 2 ack 5"]
    assert script.connection.next_deadline() is None
    assert script.connection.cause is Cause.DATA_LOST


@requirement("TCP-SHLD-3")
def test_half_duplex_close_without_data_ends_as_any_other():
    script = established()
    script.close(discard=True)
    with pytest.raises(StateError, match="receive after a close that discards"):
        script.receive()
    script.arrive("FA", 1, 2)
    assert script.state is State.TIME_WAIT


def time_wait_of_a_listener() -> Script:
    script = accepted()
    script.close()
    script.arrive("FA", 1, 2)
    assert script.state is State.TIME_WAIT
    script.sent()
    return script


@requirement("TCP-MAY-2")
def test_new_syn_in_time_wait_opens_again():
    script = time_wait_of_a_listener()
    script.after(10 * S)
    script.arrive("S", 2, win=5000, mss=1000)
    (answer,) = script.sent()
    number = int(answer.split()[1])
    # The clock of the initial sequence number went on by 2.5 million.
    assert answer == f"SA {10 * S // 4} ack 3"
    script.arrive("A", 3, number + 1)
    assert script.state is State.ESTABLISHED
    script.send(10)
    assert script.sent() == [f"PA {number + 1}+10 ack 3"]


@requirement("TCP-MAY-2")
def test_number_of_a_reopened_connection_is_past_all_that_was_used():
    script = accepted()
    script.send(14_000)
    script.arrive("A", 1, 14_001)
    script.close()
    script.arrive("FA", 1, 14_002)
    script.sent()
    # The clock would give 25.
    script.after(100)
    script.arrive("S", 2, mss=1000)
    assert script.sent() == ["SA 14002 ack 3"]


@requirement("TCP-MAY-2")
def test_old_syn_in_time_wait_reopens_nothing():
    script = time_wait_of_a_listener()
    script.arrive("S", 1)
    script.arrive("S", -10)
    assert (script.state, script.sent()) == (State.TIME_WAIT, ["A 2 ack 2"] * 2)
    script.arrive("S", 500)
    assert script.state is State.SYN_RECEIVED
    script.sent()
    # It was an old duplicate: the peer knows nothing of it.
    script.arrive("R", 501)
    assert (script.state, script.sent()) == (State.TIME_WAIT, [])
    script.arrive("FA", 1, 2)
    assert script.sent() == ["A 2 ack 2"]
    script.after(2 * MSL)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.CLOSED)


def test_syn_in_time_wait_of_an_active_open_is_challenged():
    script = established()
    script.close()
    script.arrive("FA", 1, 2)
    script.sent()
    script.arrive("S", 500)
    assert (script.state, script.sent()) == (State.TIME_WAIT, ["A 2 ack 2"])


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        ("CLOSED", ("send", "close")),
        ("LISTEN", ("send",)),
        ("FIN_WAIT_1", ("send", "close", "open")),
        ("LAST_ACK", ("send", "close", "open")),
        ("TIME_WAIT", ("send", "close", "open")),
        ("ESTABLISHED", ("open",)),
    ],
)
def test_calls_that_a_state_does_not_allow(state, calls):
    script = Script() if state in ("CLOSED", "LISTEN") else established()
    if state == "LISTEN":
        script.connection.listen()
    if state == "LAST_ACK":
        script.arrive("FA", 1, 1)
    if state in ("FIN_WAIT_1", "LAST_ACK", "TIME_WAIT"):
        script.close()
    if state == "TIME_WAIT":
        script.arrive("FA", 1, 2)
    assert script.state is State[state]
    for call in calls:
        arguments = (1,) if call == "send" else ()
        with pytest.raises(StateError, match=f"not in {state}"):
            getattr(script, call)(*arguments)


def test_connection_can_be_opened_again():
    script = established()
    script.arrive("R", 1)
    assert script.connection.cause is Cause.RESET
    script.open()
    assert (script.state, script.connection.cause) == (State.SYN_SENT, None)
