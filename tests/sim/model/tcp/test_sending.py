"""Sending on a path without loss: segments, PSH, windows, silly windows, Nagle, zero window."""

import pytest

from stagecoach.sim.model.tcp.state import Cause, State
from tests.sim.model.tcp.script import MS, S, established

requirement = pytest.mark.requirement


@requirement("TCP-SHLD-28", "TCP-MUST-61", "TCP-SHLD-27", "TCP-MUST-60", "TCP-MUST-17")
def test_full_segments_are_sent_and_the_last_one_is_pushed():
    script = established()
    script.send(3000)
    assert script.sent() == ["A 1+1460 ack 1", "A 1461+1460 ack 1", "PA 2921+80 ack 1"]
    # Nagle is off: small data does not wait for an acknowledgment.
    script.send(1)
    assert script.sent() == ["PA 3001+1 ack 1"]
    octets = b"".join(segment.payload for segment in script.segments)
    assert octets == bytes(i % 251 for i in range(3000)) + b"\0"


@requirement("TCP-MAY-16", "TCP-SHLD-27")
def test_data_that_waits_is_joined_into_full_segments():
    script = established(win=1000)
    script.send(1000)
    for _ in range(3):
        script.send(500)
    assert script.sent() == ["PA 1+1000 ack 1"]
    script.arrive("A", 1, 1001)
    assert script.sent() == ["A 1001+1460 ack 1", "PA 2461+40 ack 1"]


@requirement("CC-3-01", "TCP-MUST-34", "TCP-MUST-1")
@pytest.mark.parametrize("win", [1460, 2920, 0x7FFF, 0x8000, 0xFFFF])
def test_nothing_is_sent_past_the_window(win):
    script = established(win=win, syn={"mss": 8960}, mss=8960)
    script.send(100_000)
    script.sent()
    lengths = [len(segment.payload) for segment in script.segments]
    assert sum(lengths) == min(win // 8960 * 8960 or win, 17_920)


@requirement("TCP-MUST-34", "TCP-SHLD-15", "TCP-MUST-35")
def test_window_that_shrinks_below_what_was_sent_stops_new_data():
    script = established(win=10_000)
    script.send(20_000)
    assert len(script.sent()) == 6
    script.arrive("A", 1, 1461, win=1000)
    script.arrive("A", 1, 2921, win=1000)
    assert script.sent() == []
    script.arrive("A", 1, 8761, win=10_000)
    assert script.sent()[0] == "A 8761+1460 ack 1"


@requirement("TCP-SHLD-16", "TCP-MAY-7")
def test_data_past_a_shrunk_window_is_still_retransmitted():
    script = established(win=10_000)
    script.send(8760)
    script.sent()
    script.arrive("A", 1, 1461, win=500)
    script.at(S)
    assert script.timed() == [(S, "A 1461+1460 ack 1")]


@requirement("TCP-SHLD-17", "TCP-MUST-37")
def test_peer_that_answers_with_a_closed_window_is_not_given_up():
    script = established(win=2000)
    script.send(2000)
    script.sent()
    # The window closes before the data is acknowledged: RTO, not the persist timer.
    script.arrive("A", 1, 1, win=0)
    for minute in range(1, 10):
        script.at(minute * 60 * S)
        script.arrive("A", 1, 1, win=0)
    assert script.state is State.ESTABLISHED
    assert set(script.sent()) == {"A 1+1460 ack 1"}
    script.at(9 * 60 * S + 99 * S)
    assert script.state is State.ESTABLISHED
    script.at(9 * 60 * S + 200 * S)
    assert script.connection.cause is Cause.TIMED_OUT


@requirement("TCP-3.10.7.4-01")
def test_window_of_an_older_segment_is_not_taken():
    script = established(win=2000)
    script.send(2000)
    script.sent()
    script.arrive("A", 11, 2001, win=1000, data=10)
    # Sent before it, and overtaken: its window is the older one.
    script.arrive("A", 1, 2001, win=5000, data=10)
    script.send(3000)
    script.sent()
    assert sum(len(segment.payload) for segment in script.segments) == 3000


@requirement("TCP-3.10.7.4-01")
def test_window_of_the_same_segment_with_an_older_ack_is_not_taken():
    script = established(win=3000)
    script.send(3000)
    script.sent()
    script.arrive("A", 1, 3001, win=2000)
    script.arrive("A", 1, 1461, win=9000)
    script.send(3000)
    assert script.sent() == ["A 3001+1460 ack 1"]
    # The same number and the same ACK: a window update.
    script.arrive("A", 1, 3001, win=3000)
    assert script.sent() == ["A 4461+1460 ack 1", "PA 5921+80 ack 1"]


@requirement("TCP-3.10.7.4-01")
def test_window_of_a_newer_segment_with_the_same_ack_is_taken():
    script = established(win=3000)
    script.send(2920)
    script.arrive("A", 1, 2921, win=3000)
    script.arrive("A", 1, 2921, win=500, data=10)
    script.sent()
    script.send(3080)
    assert script.sent() == []
    script.arrive("A", 11, 2921, win=4000)
    segments = ["A 2921+1460 ack 11", "A 4381+1460 ack 11", "PA 5841+160 ack 11"]
    assert script.sent() == segments


@requirement("TCP-MUST-38")
def test_sender_avoids_silly_windows():
    script = established(win=4000)
    script.send(10_000)
    assert script.sent() == ["A 1+1460 ack 1", "A 1461+1460 ack 1"]
    # 1080 bytes are usable: neither a full segment nor half of the largest window, 4000.
    script.arrive("A", 1, 1461, win=2540)
    assert script.sent() == []
    # 380 more are not enough; 2540 - 1460 + 379.
    script.arrive("A", 1, 1461, win=2919)
    assert script.sent() == []
    script.arrive("A", 1, 1461, win=2920)
    assert script.sent() == ["A 2921+1460 ack 1"]


@requirement("TCP-MUST-38")
@pytest.mark.parametrize(("usable", "lines"), [(499, []), (500, ["A 1001+500 ack 1"])])
def test_half_of_the_largest_window_is_enough(usable, lines):
    script = established(win=1000)
    script.send(5000)
    assert script.sent() == ["A 1+1000 ack 1"]
    script.arrive("A", 1, 1001, win=usable)
    assert script.sent() == lines


@requirement("TCP-MUST-38", "TCP-MUST-60")
def test_small_usable_window_is_used_after_a_while():
    script = established(win=4000)
    script.send(10_000)
    script.arrive("A", 1, 2921, win=100)
    script.sent()
    script.at(S - 1)
    assert script.sent() == []
    script.at(S)
    assert script.timed() == [(S, "A 2921+100 ack 1")]
    assert script.state is State.ESTABLISHED
    # The window opens before the answer: what follows is sent, not the same again.
    script.arrive("A", 1, 2921, win=100 + 1460)
    assert script.sent() == ["A 3021+1460 ack 1"]
    # It is data as any other: it is retransmitted.
    script.at(2 * S)
    assert script.timed() == [(2 * S, "A 2921+1460 ack 1")]


@requirement("TCP-SHLD-7", "TCP-MUST-17")
def test_nagle_holds_small_data_while_something_is_outstanding():
    script = established(nagle=True)
    script.send(10)
    assert script.sent() == ["PA 1+10 ack 1"]
    script.send(20)
    script.send(30)
    assert script.sent() == []
    script.send(1450)
    assert script.sent() == ["A 11+1460 ack 1"]
    script.arrive("A", 1, 11)
    assert script.sent() == []
    script.arrive("A", 1, 1471)
    assert script.sent() == ["PA 1471+40 ack 1"]


@requirement("TCP-SHLD-7")
def test_nagle_does_not_hold_fin():
    script = established(nagle=True)
    script.send(10)
    script.send(20)
    script.close()
    assert script.sent() == ["PA 1+10 ack 1", "FPA 11+20 ack 1"]


@requirement("TCP-MUST-36", "TCP-SHLD-29", "TCP-SHLD-30", "TCP-MUST-35", "TCP-MUST-37")
def test_zero_window_is_probed_after_one_rto_and_then_ever_more_seldom():
    script = established(win=1000)
    script.send(1200)
    script.sent()
    script.at(100 * MS)
    script.arrive("A", 1, 1001, win=0)
    for interval in (1, 2, 4, 8, 16, 32, 60, 60):
        script.after(interval * S - 1)
        assert script.sent() == []
        script.after(1)
        assert script.sent() == ["A 1001+1 ack 1"]
        script.after(MS)
        script.arrive("A", 1, 1001, win=0)


@requirement("TCP-MUST-37")
def test_connection_stays_open_as_long_as_probes_are_answered():
    script = established(win=1000)
    script.send(1200)
    script.arrive("A", 1, 1001, win=0)
    for _ in range(40):
        script.sent()
        while not script.sent():
            script.after(S)
        script.arrive("A", 1, 1001, win=0)
    assert script.now > 1000 * S
    assert script.state is State.ESTABLISHED
    script.arrive("A", 1, 1001, win=1000)
    assert script.sent() == ["PA 1001+200 ack 1"]


@requirement("TCP-MUST-20")
def test_peer_that_does_not_answer_probes_is_given_up():
    script = established(win=1000)
    script.send(1000)
    script.arrive("A", 1, 1001, win=0)
    # To be idle before is no fault of the peer.
    script.at(1000 * S)
    script.send(1)
    script.sent()
    script.at(1099 * S)
    assert script.state is State.ESTABLISHED
    assert [at // S - 1000 for at, _ in script.timed()] == [1, 3, 7, 15, 31, 63]
    script.at(1123 * S)
    assert script.connection.cause is Cause.TIMED_OUT
    assert script.sent() == []


def test_byte_of_a_probe_may_be_acknowledged():
    script = established(win=1000)
    script.send(3000)
    script.arrive("A", 1, 1001, win=0)
    script.sent()
    script.at(S)
    assert script.sent() == ["A 1001+1 ack 1"]
    script.arrive("A", 1, 1002, win=0)
    # The next probe is the next byte.
    script.at(3 * S)
    assert script.timed() == [(3 * S, "A 1002+1 ack 1")]
    # It counts as sent from then on.
    script.arrive("A", 1, 1002, win=0, data=10)
    script.after(40 * MS)
    assert script.sent() == ["A 1002 ack 11"]
    script.arrive("A", 11, 1003, win=1000)
    assert script.sent() == ["A 1003+1000 ack 11"]
    octets = b"".join(segment.payload for segment in script.segments)
    assert octets == bytes(i % 251 for i in range(2002))


def test_byte_of_a_probe_is_not_outstanding():
    script = established(win=1000)
    script.send(3000)
    script.arrive("A", 1, 1001, win=0)
    script.at(S)
    script.sent()
    # The probe was lost; the window opens: its byte is sent with the others.
    script.arrive("A", 1, 1001, win=1000)
    assert script.sent() == ["A 1001+1000 ack 1"]
    # Beyond the probe nothing may be acknowledged.
    script = established(win=1000)
    script.send(3000)
    script.arrive("A", 1, 1001, win=0)
    script.at(S)
    script.sent()
    script.arrive("A", 1, 1003, win=1000)
    assert script.sent() == ["A 1001 ack 1"]


def test_probes_that_were_answered_do_not_slow_down_retransmission():
    script = established(win=1000)
    script.send(1200)
    script.arrive("A", 1, 1001, win=0)
    script.at(15 * S)
    script.arrive("A", 1, 1001, win=0)
    script.sent()
    script.arrive("A", 1, 1001, win=1000)
    assert script.sent() == ["PA 1001+200 ack 1"]
    script.at(16 * S)
    assert script.timed() == [(16 * S, "PA 1001+200 ack 1")]


def test_window_that_opens_and_closes_starts_the_probes_anew():
    script = established(win=1000)
    script.send(3000)
    script.arrive("A", 1, 1001, win=0)
    script.at(15 * S)
    script.arrive("A", 1, 1001, win=1000)
    script.sent()
    script.arrive("A", 1, 2001, win=0)
    script.at(17 * S)
    assert [at for at, _ in script.timed()] == [16 * S]


def test_zero_window_without_data_is_not_probed():
    script = established(win=1000)
    script.send(1000)
    script.arrive("A", 1, 1001, win=0)
    script.sent()
    assert script.connection.next_deadline() is None
    script.send(1)
    script.at(S)
    assert script.timed() == [(S, "PA 1001+1 ack 1")]


def test_acknowledgment_goes_with_data():
    script = established()
    script.arrive("A", 1, 1, data=10)
    assert script.sent() == []
    script.send(5)
    assert script.sent() == ["PA 1+5 ack 11"]
    script.at(900 * MS)
    assert script.sent() == []


def test_ack_of_data_is_at_the_next_number_even_while_old_data_is_sent_again():
    script = established()
    script.send(3000)
    script.at(S)
    script.sent()
    script.arrive("A", 1, 1, data=10)
    script.after(40 * MS)
    assert script.sent() == ["A 3001 ack 11"]


@requirement("CC-4.1-01", "IW-2-04")
def test_congestion_window_is_the_initial_one_after_an_idle_rto():
    script = established(syn={"mss": 1460, "window_scale": 4})
    script.send(10 * 1460)
    script.arrive("A", 1, 10 * 1460 + 1)
    for _ in range(4):
        script.send(1460)
        script.arrive("A", 1, script.connection._record.sender.max + 1)
    assert script.connection._record.sender.congestion.cwnd > 10 * 1460
    script.sent()
    script.after(S)
    script.send(40 * 1460)
    # One RTO is not more than one RTO.
    assert len(script.sent()) == 15
    while script.connection._record.sender.outstanding:
        script.arrive("A", 1, script.connection._record.sender.max + 1)
    script.sent()
    script.after(S + 1)
    script.send(40 * 1460)
    assert len(script.sent()) == 10


@requirement("CC-4.1-01")
def test_sender_that_was_not_idle_keeps_its_congestion_window():
    script = established(syn={"mss": 1460, "window_scale": 4})
    for _ in range(2):
        script.after(600 * MS)
        script.send(10 * 1460)
        script.arrive("A", 1, script.connection._record.sender.max + 1)
        script.connection._record.sender.congestion.cwnd = 20 * 1460
    script.sent()
    script.after(600 * MS)
    script.send(40 * 1460)
    assert len(script.sent()) == 20


@requirement("CC-3.1-02")
@pytest.mark.parametrize(
    ("mss", "segments"), [(536, 4), (1095, 4), (1096, 3), (2190, 3), (2191, 2)]
)
def test_initial_window_of_rfc5681(mss, segments):
    script = established(mss=9000, syn={"mss": mss}, large_initial_window=False)
    script.send(20 * mss)
    assert len(script.sent()) == segments


@requirement("CC-3.1-03", "IW-2-01")
def test_handshake_does_not_raise_the_initial_window():
    for count, mss in ((10, 1460), (10, 536), (2, 8960)):
        script = established(mss=8960, syn={"mss": mss, "window_scale": 4})
        script.send(20 * mss)
        assert len(script.sent()) == count


@requirement("TCP-REC-1", "TCP-MUST-1", "WS-2.3-02", "WS-2.3-03")
def test_window_of_a_gibibyte_is_one():
    script = established(syn={"mss": 1460, "window_scale": 14})
    script.arrive("A", 1, 1, win=0xFFFF)
    sender = script.connection._record.sender
    assert sender.window == 0xFFFF << 14
    sender.congestion.cwnd = 1 << 31
    script.send(2_000_000)
    assert len(script.sent()) == 1370
