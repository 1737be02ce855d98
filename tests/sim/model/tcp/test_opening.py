"""Opening: SYN, SYN,ACK and ACK in every order, their options, their losses and refusals."""

import pytest

from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.state import Cause, Report, State, StateError
from tests.sim.model.tcp.script import IRS, ISS, MS, REMOTE, START, S, Script, accepted, established

requirement = pytest.mark.requirement


@requirement("TCP-MUST-14", "TCP-SHLD-5", "TCP-3.4-02")
def test_active_open():
    script = Script()
    script.open()
    assert script.sent() == ["S 0"]
    assert script.last.sequence == ISS
    assert script.last.options == Options(mss=1460, window_scale=2, sack_permitted=True)
    script.arrive("SA", 0, 1, mss=1400)
    assert script.sent() == ["A 1 ack 1"]
    assert script.state is State.ESTABLISHED
    assert script.connection.emss == 1400
    assert script.connection.remote == REMOTE


@requirement("TCP-MUST-14", "TCP-SHLD-5")
def test_passive_open():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1000, window_scale=7, sack_permitted=True)
    assert script.state is State.SYN_RECEIVED
    assert script.sent() == ["SA 0 ack 1"]
    assert script.last.options == Options(mss=1460, window_scale=2, sack_permitted=True)
    script.arrive("A", 1, 1)
    assert (script.state, script.sent()) == (State.ESTABLISHED, [])
    assert script.connection.emss == 1000


@requirement("TCP-MUST-10")
def test_crossing_syns_end_in_one_connection():
    # RFC 9293, Figure 8.
    script = Script()
    script.open()
    assert script.sent() == ["S 0"]
    script.arrive("S", 0, win=1000, mss=1460)
    assert (script.state, script.sent()) == (State.SYN_RECEIVED, ["SA 0 ack 1"])
    script.arrive("SA", 0, 1, win=1000, mss=1460)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["A 1 ack 1"])
    script.send(1500)
    assert script.sent() == ["A 1+1000 ack 1"]


@requirement("TCP-MUST-10")
def test_syn_ack_of_crossing_syns_does_not_scale_its_window():
    script = Script()
    script.open()
    script.arrive("S", 0, win=1000, mss=1460, window_scale=3)
    script.arrive("SA", 0, 1, win=1000, mss=1460, window_scale=3)
    script.sent()
    script.send(1500)
    assert script.sent() == ["A 1+1000 ack 1"]


@requirement("TCP-MUST-10")
def test_plain_ack_ends_a_simultaneous_open_too():
    script = Script()
    script.open()
    script.arrive("S", 0, mss=1460)
    script.sent()
    script.arrive("A", 1, 1)
    assert (script.state, script.sent()) == (State.ESTABLISHED, [])


@requirement("TCP-MUST-10")
def test_window_of_a_simultaneous_open_is_that_of_the_last_segment():
    script = Script()
    script.open()
    script.arrive("S", 0, win=500, mss=1460)
    script.arrive("SA", 0, 1, win=1000, mss=1460)
    script.sent()
    script.send(1500)
    assert script.sent() == ["A 1+1000 ack 1"]


@requirement("TCP-MUST-10")
def test_old_number_without_syn_ends_no_simultaneous_open():
    script = Script()
    script.open()
    script.arrive("S", 0, mss=1460)
    script.sent()
    script.arrive("A", 0, 1)
    assert (script.state, script.sent()) == (State.SYN_RECEIVED, ["A 1 ack 1"])


@requirement("TCP-MUST-10")
def test_close_during_a_simultaneous_open_waits_for_its_end():
    script = Script()
    script.open()
    script.arrive("S", 0, mss=1460)
    script.close()
    script.sent()
    script.arrive("SA", 0, 1, mss=1460)
    assert (script.state, script.sent()) == (State.FIN_WAIT_1, ["FA 1 ack 1"])


def test_crossed_syn_starts_the_timer_anew():
    script = Script()
    script.open()
    script.at(500 * MS)
    script.arrive("S", 0, mss=1460)
    script.at(1_500 * MS)
    assert script.timed() == [(0, "S 0"), (500 * MS, "SA 0 ack 1"), (1_500 * MS, "SA 0 ack 1")]


@requirement("TCPSEC-4.2-01")
def test_syn_ack_that_comes_late_changes_nothing():
    script = established()
    script.send(10)
    script.arrive("SA", 0, 1, win=7, mss=1460)
    assert script.sent() == ["PA 1+10 ack 1", "A 11 ack 1"]
    assert script.connection._record.sender.window == 0xFFFF
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.sent()
    script.arrive("SA", 0, 1)
    assert (script.state, script.sent()) == (State.SYN_RECEIVED, ["A 1 ack 1"])


def test_window_of_a_passive_open_is_that_of_the_ack():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, win=500, mss=1460)
    script.arrive("A", 1, 1, win=1000)
    script.sent()
    script.send(1500)
    assert script.sent() == ["A 1+1000 ack 1"]


def test_listening_after_a_connection_knows_nothing_of_it():
    script = established()
    script.arrive("A", 1, 1, data=10)
    script.arrive("R", 11)
    script.connection.listen()
    assert (script.connection.remote, script.connection.cause) == (None, None)
    assert script.receive() == b""


def test_first_syn_acknowledges_nothing():
    script = Script()
    script.open()
    script.sent()
    assert script.last.acknowledgment == 0


@pytest.mark.parametrize("ack", [0, 2, -5])
@requirement("TCP-3.5.2-01")
def test_wrong_ack_of_a_crossed_syn_changes_nothing(ack):
    script = Script()
    script.open()
    script.arrive("S", 0, mss=1460)
    script.sent()
    script.arrive("SA", 0, ack)
    assert script.state is State.SYN_RECEIVED


@requirement("TCP-3.5.2-01")
@pytest.mark.parametrize("ack", [0, 2, -5, 1 << 30])
@pytest.mark.parametrize("flags", ["A", "SA", "FA"])
def test_unacceptable_ack_in_syn_sent_is_reset(ack, flags):
    script = Script()
    script.open()
    script.sent()
    script.arrive(flags, 0, ack)
    assert (script.state, script.sent()) == (State.SYN_SENT, [f"R {ack}"])


@requirement("TCP-3.5.3-01")
@pytest.mark.parametrize(
    ("flags", "seq", "ack", "state"),
    [
        ("RA", 0, 1, State.CLOSED),
        # Erratum 8167: the sequence number does not matter.
        ("RA", 12345, 1, State.CLOSED),
        ("RA", 0, 0, State.SYN_SENT),
        ("RA", 0, 2, State.SYN_SENT),
        ("R", 0, 1, State.SYN_SENT),
    ],
)
def test_reset_in_syn_sent_has_to_acknowledge_the_syn(flags, seq, ack, state):
    script = Script()
    script.open()
    script.sent()
    script.arrive(flags, seq, ack)
    assert (script.state, script.sent()) == (state, [])
    assert script.connection.cause is (Cause.REFUSED if state is State.CLOSED else None)


@pytest.mark.parametrize("flags", ["A", "F", "P", ""])
def test_segment_without_syn_in_syn_sent_is_dropped(flags):
    script = Script()
    script.open()
    script.sent()
    script.arrive(flags, 0, 1)
    assert (script.state, script.sent()) == (State.SYN_SENT, [])


def test_data_of_a_syn_ack_is_taken():
    script = Script()
    script.open()
    script.sent()
    script.arrive("SA", 0, 1, data=b"hello")
    assert script.sent() == ["A 1 ack 6"]
    assert script.receive() == b"hello"


def test_data_queued_before_goes_with_the_ack_of_the_handshake():
    script = Script()
    script.open()
    script.send(100)
    assert script.sent() == ["S 0"]
    script.arrive("SA", 0, 1, mss=1460)
    assert script.sent() == ["PA 1+100 ack 1"]


@requirement("TCP-3.5.2-01", "TCP-3.5.3-01")
@pytest.mark.parametrize(
    ("flags", "answer"),
    [("R", []), ("A", ["R 77"]), ("SA", ["R 77"]), ("F", []), ("SF", []), ("SR", [])],
)
def test_what_is_no_syn_opens_nothing_in_listen(flags, answer):
    script = Script()
    script.connection.listen()
    script.arrive(flags, 5, 77)
    assert (script.state, script.sent()) == (State.LISTEN, answer)


@requirement("TCP-3.5.2-01")
@pytest.mark.parametrize(
    ("flags", "data", "sequence", "acknowledgment", "answer"),
    [
        ("S", 0, 0, IRS + 1, "RA"),
        ("SF", 10, 0, IRS + 12, "RA"),
        ("P", 10, 0, IRS + 10, "RA"),
        ("A", 10, ISS + 77, 0, "R"),
        ("SA", 0, ISS + 77, 0, "R"),
        ("RA", 0, None, None, None),
        ("R", 0, None, None, None),
    ],
)
def test_segment_to_a_closed_connection_is_reset(flags, data, sequence, acknowledgment, answer):
    script = Script()
    script.arrive(flags, 0, 77, data=data)
    if answer is None:
        assert script.sent() == []
        return
    assert script.sent()[0].split()[0] == answer
    assert (script.last.sequence, script.last.acknowledgment) == (sequence, acknowledgment)


@requirement("TCP-3.5.2-01")
@pytest.mark.parametrize("ack", [0, 2, -1])
def test_wrong_ack_in_syn_received_is_reset_and_the_connection_stays(ack):
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.sent()
    script.arrive("A", 1, ack)
    assert (script.state, script.sent()) == (State.SYN_RECEIVED, [f"R {ack}"])
    script.arrive("A", 1, 1)
    assert script.state is State.ESTABLISHED


@requirement("TCP-MUST-11")
def test_reset_in_syn_received_ends_what_was_opened_and_not_what_listens():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.arrive("R", 1)
    assert (script.state, script.connection.cause) == (State.LISTEN, None)
    assert script.connection.remote is None
    script = Script()
    script.open()
    script.arrive("S", 0, mss=1460)
    script.arrive("R", 1)
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.REFUSED)


@requirement("TCP-MUST-11")
def test_listening_goes_on_after_a_reset():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.arrive("R", 1)
    script.sent()
    script.arrive("S", 0, mss=1460)
    script.arrive("A", 1, 1)
    assert (script.state, script.sent()) == (State.ESTABLISHED, ["SA 0 ack 1"])


def test_repeated_syn_gets_the_syn_ack_again():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    assert script.sent() == ["SA 0 ack 1"]
    script.at(300 * MS)
    script.arrive("S", 0, mss=1460)
    assert script.sent() == ["SA 0 ack 1"]
    assert script.last.options.mss == 1460
    # The timer goes on as it was.
    script.at(S)
    assert script.timed() == [(S, "SA 0 ack 1")]


@requirement("RTO-3-01", "TCP-MUST-18")
def test_repeated_syn_is_not_timed():
    script = Script(rto_minimum=1)
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.at(300 * MS)
    script.arrive("S", 0, mss=1460)
    script.at(400 * MS)
    script.arrive("A", 1, 1)
    script.sent()
    script.send(10)
    script.at(3 * S)
    # The RTO is that of no sample, 1 s, and not three times 400 ms.
    assert script.timed()[:2] == [(400 * MS, "PA 1+10 ack 1"), (1_400 * MS, "PA 1+10 ack 1")]


@requirement("TCPSEC-4.2-01")
@pytest.mark.parametrize("seq", [1, 5, 2000, -7])
def test_another_syn_in_syn_received_is_challenged(seq):
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.sent()
    script.arrive("S", seq)
    assert (script.state, script.sent()) == (State.SYN_RECEIVED, ["A 1 ack 1"])


@requirement("TCP-MUST-19", "TCP-MUST-20", "TCP-MUST-22", "TCP-MUST-23", "RTO-2.1-01", "RTO-5.5-01")
@requirement("TCP-SHLD-9", "TCP-SHLD-10")
def test_syn_is_sent_again_until_three_minutes_have_passed():
    script = Script()
    script.open()
    script.at(600 * S)
    times = [at for at, line in script.timed() if line == "S 0"]
    assert times == [S * t for t in (0, 1, 3, 7, 15, 31, 63, 123)]
    assert script.connection.cause is Cause.TIMED_OUT
    assert script.connection.reports == [Report.SUSPECT]


@requirement("TCP-MUST-21")
def test_handshake_ends_as_soon_as_its_time_has_passed():
    script = Script(r2_syn=3 * S)
    script.open()
    script.at(3 * S)
    assert script.connection.cause is Cause.TIMED_OUT


@requirement("TCP-MUST-21")
def test_time_for_the_handshake_can_be_set():
    script = Script(r2_syn=5 * S)
    script.open()
    script.at(6 * S)
    assert script.state is State.SYN_SENT
    script.at(7 * S)
    assert script.connection.cause is Cause.TIMED_OUT
    assert [at for at, _ in script.timed()] == [0, S, 3 * S]


def test_suspicion_is_told_once_and_ends_with_the_answer():
    script = Script()
    script.open()
    script.at(3 * S)
    assert not script.connection.suspect
    script.at(7 * S)
    assert script.connection.suspect
    script.arrive("SA", 0, 1, mss=1460)
    assert not script.connection.suspect
    assert script.connection.reports == [Report.SUSPECT]


@requirement("TCP-SHLD-20")
def test_reports_can_be_switched_off():
    script = Script(reports=False)
    script.open()
    script.at(30 * S)
    assert script.connection.suspect
    assert script.connection.reports == []


@requirement("TCP-MUST-22", "TCP-MUST-20")
def test_syn_ack_is_sent_again_and_given_up():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.at(600 * S)
    assert [at for at, _ in script.timed()][:4] == [0, S, 3 * S, 7 * S]
    assert script.connection.cause is Cause.TIMED_OUT


@requirement("CC-3.1-04", "IW-2-02", "RTO-5.7-01")
def test_lost_syn_leaves_one_segment_and_three_seconds():
    script = Script()
    script.open()
    script.at(S)
    assert script.sent() == ["S 0", "S 0"]
    script.at(1_050 * MS)
    script.arrive("SA", 0, 1, mss=1460)
    script.sent()
    script.send(10 * 1460)
    assert script.sent() == ["A 1+1460 ack 1"]
    script.at(4_049 * MS)
    assert script.sent() == []
    script.at(4_050 * MS)
    assert script.sent() == ["A 1+1460 ack 1"]


@requirement("IW-2-03")
def test_one_lost_syn_can_be_forgiven():
    script = Script(forgiven_syns=1)
    script.open()
    script.at(S)
    script.arrive("SA", 0, 1, mss=1460)
    script.sent()
    script.send(20 * 1460)
    assert len(script.sent()) == 10
    script = Script(forgiven_syns=1)
    script.open()
    script.at(3 * S)
    script.arrive("SA", 0, 1, mss=1460)
    script.sent()
    script.send(20 * 1460)
    assert len(script.sent()) == 1


@requirement("TCP-MUST-15")
def test_without_an_mss_option_segments_have_536_bytes():
    for made in (established, accepted):
        script = made(syn={})
        script.send(1000)
        assert script.sent() == ["A 1+536 ack 1", "PA 537+464 ack 1"]


@requirement("TCP-MUST-16")
@pytest.mark.parametrize(("announced", "size"), [(1460, 1460), (9000, 1460), (1000, 1000)])
def test_segments_have_the_smaller_of_the_two_sizes(announced, size):
    script = established(syn={"mss": announced})
    script.send(3000)
    assert script.sent()[0] == f"A 1+{size} ack 1"


@requirement("WS-2.2-02", "WS-2.3-01", "WS-2.3-02", "WS-2.2-04")
def test_windows_are_scaled_both_ways_if_both_sides_say_so():
    script = established(syn={"mss": 1460, "window_scale": 4}, receive_buffer=256 << 10, win=100)
    assert [segment.window for segment in script.segments] == [0xFFFF, (256 << 10) >> 3]
    script.send(3000)
    # The window of SYN,ACK is 100 bytes.
    assert script.sent() == ["A 1+100 ack 1"]
    script.arrive("A", 1, 101, win=100)
    assert script.sent() == ["A 101+1460 ack 1"]


@requirement("WS-2.2-02")
@pytest.mark.parametrize("ours", [False, True])
def test_windows_are_not_scaled_if_one_side_does_not_say_so(ours):
    syn = {"mss": 1460} if ours else {"mss": 1460, "window_scale": 4}
    script = established(syn=syn, receive_buffer=256 << 10, window_scaling=ours, win=100)
    assert [segment.window for segment in script.segments] == [0xFFFF, 0xFFFF]
    script.send(3000)
    script.arrive("A", 1, 101, win=100)
    assert script.sent() == ["A 1+100 ack 1", "A 101+100 ack 1"]


@requirement("WS-2.2-02")
@pytest.mark.parametrize(("offered", "answered"), [(None, None), (0, 2)])
def test_syn_ack_has_the_scale_only_if_the_syn_had_it(offered, answered):
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460, window_scale=offered)
    assert script.sent() == ["SA 0 ack 1"]
    assert script.last.options.window_scale == answered


@requirement("WS-2.2-03", "TCP-MUST-65")
def test_options_of_a_syn_are_ignored_elsewhere():
    script = established(syn={"mss": 1000})
    script.arrive("A", 1, 1, mss=500, window_scale=3, win=1500)
    script.send(3000)
    assert script.sent() == ["A 1+1000 ack 1"]
    script.arrive("A", 1, 1001, win=1500)
    assert script.sent() == ["A 1001+1000 ack 1"]


@requirement("TCP-MUST-65", "SACK-2-01")
def test_options_of_a_syn_are_not_sent_elsewhere():
    script = established(syn={"mss": 1460, "sack_permitted": True})
    script.send(100)
    script.arrive("A", 3, 101, data=10)
    script.close()
    script.sent()
    assert len(script.segments) > 3
    assert all(segment.options.mss is None for segment in script.segments[1:])
    assert not any(segment.options.sack_permitted for segment in script.segments[1:])


@requirement("TCP-MUST-8", "TCP-SHLD-1", "ISN-3-01")
def test_initial_sequence_number_advances_each_4_us():
    numbers = []
    for now in (0, 4, 4_000):
        script = Script()
        script.connection.open(START + now, REMOTE)
        script.sent()
        numbers.append(script.last.sequence)
    assert numbers == [ISS, ISS + 1, ISS + 1000]


def test_calls_in_syn_received_wait_for_the_handshake():
    script = Script()
    script.connection.listen()
    script.arrive("S", 0, mss=1460)
    script.send(10)
    script.close()
    assert script.sent() == ["SA 0 ack 1"]
    with pytest.raises(StateError, match="send after close"):
        script.send(1)
    with pytest.raises(StateError, match="close after close"):
        script.close()
    script.arrive("A", 1, 1)
    assert (script.state, script.sent()) == (State.FIN_WAIT_1, ["FPA 1+10 ack 1"])


@pytest.mark.parametrize("state", [State.LISTEN, State.SYN_SENT])
def test_close_before_the_peer_answers_needs_no_segment(state):
    script = Script()
    if state is State.LISTEN:
        script.connection.listen()
    else:
        script.open()
    script.sent()
    script.close()
    assert (script.state, script.connection.cause) == (State.CLOSED, Cause.CLOSED)
    assert script.sent() == []
    assert script.connection.next_deadline() is None


def test_listener_can_turn_active():
    script = Script()
    script.connection.listen()
    script.open()
    assert (script.state, script.sent()) == (State.SYN_SENT, ["S 0"])
    script.arrive("RA", 0, 1)
    assert script.connection.cause is Cause.REFUSED
