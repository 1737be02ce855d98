"""Tail loss probe (RFC 8985, 7): a lost tail costs two round trips, not the timeout."""

import pytest

from stagecoach.sim.model.tcp import sequence
from tests.sim.model.tcp.script import ISS, MS, S, Script

MSS = 1460
RTT = 10 * MS
PTO = 2 * RTT
DELAYED_ACK = 40 * MS


def segment(number: int, flags: str = "A") -> str:
    return f"{flags} {1 + number * MSS}+{MSS} ack 1"


def edge(count: int) -> int:
    return 1 + count * MSS


def opened(*, sack: bool = True, **settings: object) -> Script:
    """A connection whose handshake took a round trip."""
    script = Script(loss_probe=True, **settings)
    script.open()
    script.at(RTT)
    script.arrive("SA", 0, 1, mss=MSS, sack_permitted=sack)
    script.sent()
    script.timed()
    return script


def sending(count: int, **settings: object) -> Script:
    """That many full segments are under way."""
    script = opened(**settings)
    script.send(count * MSS)
    assert len(script.sent()) == count
    script.timed()
    return script


def test_the_last_segment_is_probed_after_two_round_trips():
    script = sending(3)
    begin = script.now
    script.at(begin + PTO - 1)
    assert script.sent() == []
    script.at(begin + 3 * S)
    # Once; then the timeout, from the probe on.
    assert script.timed()[:2] == [
        (begin + PTO, segment(2, "PA")),
        (begin + PTO + S, segment(0)),
    ]


def test_a_lost_tail_is_repaired_by_the_probe():
    script = sending(3)
    script.after(RTT)
    script.arrive("A", 1, edge(2))
    begin = script.now
    script.at(begin + S)
    # One segment is in flight: its ACK may be delayed.
    assert script.timed()[0] == (begin + PTO + DELAYED_ACK, segment(2, "PA"))
    script.arrive("A", 1, edge(3))
    assert script.connection.next_deadline() is None


def test_what_was_not_sent_goes_first():
    script = opened(large_initial_window=False)
    script.send(5 * MSS)
    assert len(script.sent()) == 3
    script.timed()
    begin = script.now
    script.at(begin + PTO)
    assert script.timed() == [(begin + PTO, segment(3))]
    # It was no retransmission: no loss is presumed.
    cwnd = script.connection.record.sender.congestion.cwnd
    script.arrive("A", 1, edge(4))
    script.arrive("A", 1, edge(5))
    assert script.connection.record.sender.congestion.cwnd > cwnd


def test_nothing_outstanding_is_not_probed():
    script = sending(2)
    script.after(RTT)
    script.arrive("A", 1, edge(2))
    assert script.connection.next_deadline() is None


def test_there_is_none_without_sack():
    script = sending(2, sack=False)
    begin = script.now
    script.at(begin + S)
    assert script.timed() == [(begin + S, segment(0))]


def test_there_is_none_before_a_round_trip_was_measured_again():
    script = sending(2)
    script.after(PTO)
    script.arrive("A", 1, edge(2))
    script.send(2 * MSS)
    script.sent()
    script.timed()
    begin = script.now
    script.at(begin + 900 * MS)
    assert script.timed() == []
    script.arrive("A", 1, edge(3))
    assert script.connection.record.sender.loss_probe.ready


def test_the_timeout_bounds_it():
    script = sending(1, rto_minimum=1)
    begin = script.now
    # RTO is SRTT and 4 RTTVAR: 3 round trips, less than PTO with a delayed ACK.
    script.at(begin + 3 * RTT)
    assert script.timed() == [(begin + 3 * RTT, segment(0, "PA"))]
    assert script.connection.record.sender.retries == 0


def test_an_ack_past_a_probe_that_repaired_a_loss_halves_the_window():
    script = sending(8)
    sender = script.connection.record.sender
    script.after(PTO)
    script.sent()
    script.arrive("A", 1, edge(8))
    cwnd = sender.congestion.cwnd
    script.send(2 * MSS)
    script.after(RTT)
    assert sender.congestion.cwnd == cwnd
    script.arrive("A", 1, edge(10))
    assert sender.congestion.cwnd == sender.congestion.ssthresh == 2 * MSS


@pytest.mark.parametrize("selective", [False, True])
def test_a_probe_that_was_not_needed_leaves_the_window(selective: bool):
    script = sending(8)
    sender = script.connection.record.sender
    script.after(PTO)
    script.arrive("A", 1, edge(8))
    # The receiver had all of it: it says so once more, or by DSACK.
    block = tuple(sequence.add(ISS, edge(count)) for count in (7, 8))
    script.arrive("A", 1, edge(8), **({"sack": (block,)} if selective else {}))
    cwnd = sender.congestion.cwnd
    script.send(2 * MSS)
    script.after(RTT)
    script.arrive("A", 1, edge(10))
    assert sender.congestion.cwnd > cwnd
    assert sender.congestion.ssthresh > cwnd


def test_what_the_probe_overtook_is_sent_again_at_once():
    script = sending(8)
    script.after(RTT)
    script.arrive("A", 1, edge(5))
    script.after(PTO)
    assert script.sent() == [segment(7, "PA")]
    block = tuple(sequence.add(ISS, edge(count)) for count in (7, 8))
    script.arrive("A", 1, edge(5), sack=(block,))
    assert script.sent() == [segment(5)]
    script.arrive("A", 1, edge(6), sack=(block,))
    assert script.sent() == [segment(6)]
    congestion = script.connection.record.sender.congestion
    assert congestion.recovering and congestion.ssthresh == 2 * MSS


def test_recovery_is_not_probed():
    script = sending(6)
    script.after(RTT)
    for _ in range(3):
        script.arrive("A", 1, 1)
    assert script.sent() == [segment(0)]
    script.timed()
    begin = script.now
    script.at(begin + 900 * MS)
    assert script.timed() == []
