"""Loss: retransmission timer, Karn's algorithm, fast retransmit and recovery, R1 and R2."""

import pytest

from stagecoach.sim.model.tcp.state import Cause, Report, State
from tests.sim.model.tcp.script import MS, S, Script, established

requirement = pytest.mark.requirement
MSS = 1460


def segment(number: int) -> str:
    """The full segment of a number, from 0."""
    return f"A {1 + number * MSS}+{MSS} ack 1"


def edge(count: int) -> int:
    """The ACK field for so many full segments."""
    return 1 + count * MSS


@requirement("RTO-5.1-01", "RTO-5.4-01", "RTO-5.5-01", "RTO-5.6-01", "TCP-MUST-18", "TCP-MUST-19")
@requirement("RTO-2.4-01", "CC-3.1-13", "TCP-3.10.8-01")
def test_timer_sends_the_first_segment_again_and_doubles():
    script = established()
    script.send(3 * MSS)
    assert len(script.sent()) == 3
    script.at(40 * S)
    assert script.timed() == [(t * S, segment(0)) for t in (1, 3, 7, 15, 31)]
    # One segment a round trip, and the rest in slow start.
    script.arrive("A", 1, edge(1))
    assert script.sent() == [segment(1), segment(2).replace("A", "PA", 1)]


@requirement("RTO-2.5-01", "RTO-5.5-01")
def test_backed_off_timeout_has_a_bound():
    script = established(rto_maximum=8 * S, r2=10**12)
    script.send(100)
    script.sent()
    script.at(40 * S)
    assert [at // S for at, _ in script.timed()] == [1, 3, 7, 15, 23, 31, 39]


@requirement("RTO-5.2-01", "RTO-5.3-01", "RTO-5-01")
def test_ack_restarts_the_timer_and_the_last_one_stops_it():
    script = established()
    script.send(2 * MSS)
    script.sent()
    script.at(700 * MS)
    script.arrive("A", 1, edge(1))
    script.at(1699 * MS)
    assert script.sent() == []
    script.at(1700 * MS)
    assert script.sent() == [segment(1).replace("A", "PA", 1)]
    script.arrive("A", 1, edge(2))
    assert script.connection.next_deadline() is None


@requirement("RTO-5.1-01")
def test_more_data_does_not_restart_the_timer():
    script = established()
    script.send(MSS)
    script.at(700 * MS)
    script.send(MSS)
    script.sent()
    script.at(S)
    assert script.timed() == [(S, segment(0))]


@requirement("RTO-2.2-01", "RTO-2.3-01", "RTO-3-02")
def test_timeout_follows_the_round_trips():
    # The handshake takes 100 ms: SRTT 100, RTTVAR 50 ms.
    script = Script(rto_minimum=1)
    script.open()
    script.at(100 * MS)
    script.arrive("SA", 0, 1, mss=MSS)
    script.send(10)
    script.sent()
    script.at(399 * MS)
    assert script.sent() == []
    script.at(400 * MS)
    assert script.sent() == ["PA 1+10 ack 1"]
    script.arrive("A", 1, 11)
    # It was sent twice, and is no sample. The next one is: 20 ms.
    script.send(10)
    script.sent()
    script.after(20 * MS)
    script.arrive("A", 1, 21)
    script.send(10)
    script.sent()
    # RTTVAR 50 * 3/4 + 80/4 = 57.5; SRTT 100 * 7/8 + 20/8 = 90; RTO 90 + 230.
    script.after(320 * MS - 1)
    assert script.sent() == []
    script.after(1)
    assert script.sent() == ["PA 21+10 ack 1"]


@requirement("RTO-3-01", "TCP-MUST-18")
def test_karn_no_sample_and_no_end_of_the_back_off_from_what_was_sent_twice():
    script = established(rto_minimum=100 * MS)
    script.send(10)
    script.sent()
    script.at(350 * MS)
    assert script.timed() == [(100 * MS, "PA 1+10 ack 1"), (300 * MS, "PA 1+10 ack 1")]
    script.arrive("A", 1, 11)
    script.send(10)
    script.sent()
    # Backed off twice.
    script.at(350 * MS + 400 * MS - 1)
    assert script.sent() == []
    script.at(350 * MS + 400 * MS)
    assert script.sent() == ["PA 11+10 ack 1"]


@requirement("RTO-3-01")
def test_segment_sent_again_by_fast_retransmit_is_no_sample():
    script = established(rto_minimum=1)
    script.send(4 * MSS)
    for _ in range(3):
        script.arrive("A", 1, 1)
    script.sent()
    # It was sent at 0 and now; the answer says nothing of the path. No time was measured so far
    # but that of the handshake, 0: the RTO is 1.
    rto = script.connection._record.sender.rto
    before = rto.srtt8, rto.rttvar4
    script.at(0)
    script.now = 500 * MS
    script.arrive("A", 1, edge(4))
    assert (rto.srtt8, rto.rttvar4) == before


@requirement("RTO-3-02")
def test_first_segment_of_each_round_trip_is_timed():
    script = established(rto_minimum=1)
    rto = script.connection._record.sender.rto
    script.send(2 * MSS)
    script.now += 500
    script.arrive("A", 1, edge(1))
    # 0 of the handshake, then 500: SRTT 500/8.
    assert rto.srtt8 == 500
    script.send(MSS)
    script.now += 300
    script.arrive("A", 1, edge(2))
    assert rto.srtt8 == 500
    script.now += 100
    script.arrive("A", 1, edge(3))
    # The third one took 400.
    assert rto.srtt8 == 500 + 400 - (500 >> 3)


@requirement("IP-1122-4.2.3.5-01")
@requirement("TCP-MUST-20", "TCP-SHLD-9", "TCP-SHLD-10", "TCP-SHLD-11", "TCP-3.10.8-01")
def test_r1_is_told_and_r2_ends():
    script = established()
    script.send(10)
    script.at(3 * S)
    assert not script.connection.suspect
    assert script.connection.reports == []
    script.at(7 * S)
    assert script.connection.suspect
    script.at(100 * S)
    assert script.connection.reports == [Report.SUSPECT]
    assert script.state is State.ESTABLISHED
    script.sent()
    script.at(123 * S)
    assert script.connection.cause is Cause.TIMED_OUT
    assert script.sent() == []
    assert script.connection.next_deadline() is None


@requirement("TCP-MUST-21", "TCP-MUST-20")
def test_r1_and_r2_can_be_set_and_progress_begins_anew():
    script = established(r1=1, r2=5 * S)
    script.send(2 * MSS)
    script.at(3 * S)
    assert script.connection.suspect
    script.arrive("A", 1, edge(1))
    assert not script.connection.suspect
    # The timer is backed off: 3 s after the progress, and 7 s.
    script.at(7_900 * MS)
    assert script.state is State.ESTABLISHED
    script.at(20 * S)
    assert script.connection.cause is Cause.TIMED_OUT


@requirement("TCP-MUST-20")
def test_retransmissions_are_counted_anew_for_each_segment():
    script = established(r1=3)
    script.send(2 * MSS)
    script.at(3 * S)
    script.arrive("A", 1, edge(1))
    # It went out again with that ACK; the timer is 4 s.
    script.at(15 * S)
    assert not script.connection.suspect
    script.at(3 * S + 28 * S)
    assert script.connection.suspect


@requirement("TCP-MUST-20")
def test_connection_ends_as_soon_as_r2_has_passed():
    script = established(r2=3 * S)
    script.send(10)
    script.at(3 * S)
    assert script.connection.cause is Cause.TIMED_OUT
    assert script.timed() == [(0, "PA 1+10 ack 1"), (S, "PA 1+10 ack 1")]


@requirement("CC-3.2-03")
def test_fin_is_not_the_third_duplicate():
    script = established()
    script.send(5 * MSS)
    script.sent()
    script.arrive("A", 1, 1)
    script.arrive("A", 1, 1)
    script.arrive("FA", 1, 1)
    assert script.sent() == ["A 7301 ack 2"]


def test_time_without_anything_outstanding_does_not_count():
    script = established(r2=5 * S)
    script.at(1000 * S)
    script.send(10)
    script.at(1003 * S)
    assert script.state is State.ESTABLISHED
    assert [at // S for at, _ in script.timed()] == [1000, 1001, 1003]


@requirement("CC-3.1-11", "CC-3.1-12", "CC-3.1-07", "CC-4.3-01")
def test_first_timeout_halves_and_a_second_one_of_the_same_segment_does_not():
    script = established()
    script.send(10 * MSS)
    congestion = script.connection._record.sender.congestion
    script.at(S)
    assert (congestion.ssthresh, congestion.cwnd) == (5 * MSS, MSS)
    script.at(3 * S)
    assert (congestion.ssthresh, congestion.cwnd) == (5 * MSS, MSS)


@requirement("CC-3.2-03", "CC-3.2-06", "CC-3.2-07", "CC-3.2-08", "CC-3.2-09", "CC-3.2-10")
@requirement("NR-3.2-01", "NR-3.2-03", "LT-2-01", "CC-3.2-04")
def test_third_duplicate_ack_retransmits_and_recovery_goes_on_to_a_full_ack():
    script = established(win=0xFFFF)
    script.send(40 * MSS)
    assert script.sent() == [segment(i) for i in range(10)]
    # Limited transmit: one new segment for each of the first two.
    script.arrive("A", 1, 1)
    assert script.sent() == [segment(10)]
    script.arrive("A", 1, 1)
    assert script.sent() == [segment(11)]
    script.arrive("A", 1, 1)
    assert script.sent() == [segment(0)]
    congestion = script.connection._record.sender.congestion
    # Half of the 10 segments that were not lent, and the three that left the network.
    assert (congestion.ssthresh, congestion.cwnd) == (5 * MSS, 8 * MSS)
    for _ in range(4):
        script.arrive("A", 1, 1)
    assert script.sent() == []
    script.arrive("A", 1, 1)
    assert script.sent() == [segment(12)]
    script.arrive("A", 1, edge(13))
    assert congestion.cwnd == 2 * MSS
    assert not congestion.recovering
    assert script.sent() == [segment(13), segment(14)]


@requirement("NR-3.2-04", "NR-3.2-05")
def test_partial_ack_sends_the_next_hole_at_once_and_restarts_the_timer_once():
    script = established(win=0xFFFF)
    script.send(10 * MSS)
    script.sent()
    for _ in range(3):
        script.arrive("A", 1, 1)
    assert script.sent() == [segment(0)]
    script.at(500 * MS)
    script.arrive("A", 1, edge(3))
    assert script.sent() == [segment(3)]
    script.at(600 * MS)
    script.arrive("A", 1, edge(5))
    assert script.sent() == [segment(5)]
    # Restarted at 500 ms by the first partial ACK alone.
    script.at(1500 * MS - 1)
    assert script.sent() == []
    script.at(1500 * MS)
    assert script.sent() == [segment(5)]


@requirement("NR-3.2-06", "NR-3.2-02")
def test_duplicates_of_what_a_timeout_sent_again_are_no_loss():
    script = established(win=0xFFFF)
    script.send(10 * MSS)
    script.sent()
    script.at(S)
    assert script.sent() == [segment(0)]
    script.arrive("A", 1, edge(2))
    assert script.sent() == [segment(2), segment(3)]
    for _ in range(5):
        script.arrive("A", 1, edge(2))
    # No fast retransmit before all of the window is acknowledged, nor limited transmit.
    assert script.sent() == []
    script.arrive("A", 1, edge(10))
    script.send(10 * MSS)
    # What ends just there covers no more than that window.
    script.sent()
    for _ in range(3):
        script.arrive("A", 1, edge(10))
    assert segment(10) not in script.sent()
    script.arrive("A", 1, edge(11))
    script.sent()
    for _ in range(3):
        script.arrive("A", 1, edge(11))
    assert script.sent()[-1] == segment(11)


@requirement("CC-3.2-03")
@pytest.mark.parametrize(
    "change",
    [{"data": 10}, {"win": 5000}, {"flags": "FA", "seq": 1}],
    ids=["data", "window", "fin"],
)
def test_what_is_no_duplicate_ack_does_not_count(change):
    script = established(win=0x6000)
    script.send(5 * MSS)
    script.sent()
    seq = 1
    for number in range(6):
        arguments = {"flags": "A", "seq": seq, "ack": 1, "win": 0x6000} | change
        if "data" in change:
            seq += 10
        if "win" in change:
            arguments["win"] = 0x5000 + number
        script.arrive(**arguments)
    assert not [line for line in script.sent() if "+" in line]


def test_ack_without_anything_outstanding_is_no_duplicate():
    script = established()
    for _ in range(5):
        script.arrive("A", 1, 1)
    script.send(5 * MSS)
    script.sent()
    for _ in range(2):
        script.arrive("A", 1, 1)
    assert script.sent() == []
    script.arrive("A", 1, 1)
    assert script.sent() == [segment(0)]


@requirement("NR-3.1-01")
def test_first_segment_of_a_connection_can_be_retransmitted_fast():
    script = established()
    script.send(4 * MSS)
    script.sent()
    for _ in range(3):
        script.arrive("A", 1, 1)
    assert script.sent() == [segment(0)]


@requirement("CC-3.1-01", "CC-3.1-08", "CC-3.1-09", "TCP-MUST-19")
def test_slow_start_adds_a_segment_for_each_ack():
    script = established(syn={"mss": MSS, "window_scale": 7})
    script.send(100 * MSS)
    assert len(script.sent()) == 10
    script.arrive("A", 1, edge(2))
    # Two left the network, and one more is allowed.
    assert script.sent() == [segment(i) for i in (10, 11, 12)]
    # An ACK of one byte is worth one byte: two segments less one byte do not fit.
    script.arrive("A", 1, edge(2) + 1)
    assert script.sent() == []
    assert script.connection._record.sender.congestion.cwnd == 11 * MSS + 1


@requirement("CC-3.1-10", "CC-3.1-06")
def test_congestion_avoidance_adds_a_segment_for_each_window():
    script = established(syn={"mss": MSS, "window_scale": 7})
    congestion = script.connection._record.sender.congestion
    # As high as possible: no window reaches it.
    assert congestion.ssthresh >= 0xFFFF << 14
    script.send(100 * MSS)
    script.sent()
    congestion.ssthresh = 10 * MSS
    for count in range(1, 10):
        script.arrive("A", 1, edge(count))
        assert congestion.cwnd == 10 * MSS
    script.arrive("A", 1, edge(10))
    assert congestion.cwnd == 11 * MSS


@requirement("CC-3-01")
def test_retransmission_by_the_timer_is_bounded_by_what_was_sent():
    script = established()
    script.send(100)
    script.send(5000)
    script.sent()
    script.arrive("A", 1, 1)
    script.at(S)
    assert script.sent() == ["A 1+1460 ack 1"]
    script = established(win=100)
    script.send(5000)
    script.sent()
    script.at(S)
    # 100 bytes were sent: no more is sent again.
    assert script.sent() == ["A 1+100 ack 1"]
