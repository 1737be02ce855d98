"""Connections that peers open: LISTEN, SYN-RECEIVED, the backlog, and floods."""

import pytest

from stagecoach.host_driver.network import tcp_options
from stagecoach.host_driver.network.errors import PortInUse
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.network.tcp_options import SynOptions
from stagecoach.host_driver.transport.base import StreamClosed, TransportTimeout
from tests.host_driver.network.frames import captured
from tests.host_driver.network.port import FakePort
from tests.host_driver.network.rig import (
    ACK,
    FIN,
    GATEWAY_MAC,
    LINUX,
    OWN,
    PEER,
    RST,
    SYN,
    Rig,
    arp_packets,
    icmp_frame,
    segment_frame,
)

LOCAL, REMOTE = (OWN, 4420), (PEER, 40000)


@pytest.fixture
def rig(make_port) -> Rig:
    return Rig(port=make_port())


def from_peer(
    flags: int,
    sequence: int = 1000,
    acknowledgment: int = 0,
    *,
    options: bytes = b"",
    data: bytes = b"",
    window: int = 502,
) -> Segment:
    return Segment(REMOTE, LOCAL, sequence, acknowledgment, flags, window, options, data)


def half_open(rig: Rig, options: bytes = LINUX) -> Segment:
    """The answer to a SYN."""
    (answer,) = rig.exchange(from_peer(SYN, options=options, window=64240))
    return answer


def following(number: int) -> int:
    return (number + 1) % 2**32


@pytest.mark.requirement("TCP-MUST-14", "TCP-MUST-41", "WS-2.3-01", "WS-2.3-02")
def test_a_syn_gets_a_syn_ack_and_an_ack_a_stream(rig):
    listener = rig.listen()
    answer = half_open(rig)
    assert (answer.flags, answer.acknowledgment, answer.window) == (SYN | ACK, 1001, 65535)
    assert tcp_options.decode(answer.options) == SynOptions(1460, 3, True)
    rig.run(0.01)
    with pytest.raises(TransportTimeout, match=r"no peer connected to 192\.0\.2\.2:4420 in 0 s"):
        listener.accept(0)
    number = following(answer.sequence)
    assert not rig.exchange(from_peer(ACK, 1001, number))
    stream = listener.accept(0)
    assert (stream.local_address, stream.peer_address) == (
        ("192.0.2.2", 4420),
        ("192.0.2.1", 40000),
    )
    given = rig.port.streams[stream.handle].established
    assert (given.next_sent, given.next_received, given.update) == (number, 1001, (1001, number))
    assert (given.window, given.receive_window) == (502 << 7, 65535)
    assert (given.round_trip_us, given.syn_lost) == (10_000, False)
    assert rig.port.streams[stream.handle].early == ()


def test_no_arp_is_needed_to_answer(rig):
    """The answer goes back to where the SYN came from: spoofed ones start no search."""
    rig.listen()
    rig.take(segment_frame(from_peer(SYN), GATEWAY_MAC))
    assert rig.port.sent[-1][:6] == GATEWAY_MAC
    assert not arp_packets(rig.port.sent)


@pytest.mark.requirement("WS-2.2-01")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (SynOptions(), SynOptions(1460)),
        (SynOptions(1460), SynOptions(1460)),
        (SynOptions(1460, 0), SynOptions(1460, 3)),
        (SynOptions(1460, None, True), SynOptions(1460, None, True)),
    ],
)
def test_the_syn_ack_has_only_options_of_the_syn(rig, theirs, ours):
    rig.listen()
    assert tcp_options.decode(half_open(rig, theirs.encode()).options) == ours


@pytest.mark.parametrize("data", [b"", b"MPA ID Req Frame"])
@pytest.mark.parametrize("flags", [ACK, ACK | FIN])
def test_what_ends_the_handshake_is_the_engine_s_if_it_says_more(rig, data, flags):
    rig.listen()
    number = following(half_open(rig).sequence)
    last = from_peer(flags, 1001, number, data=data)
    after = from_peer(ACK, 1001 + len(data), number, data=b"more")
    rig.take(segment_frame(last), segment_frame(after))
    expected = [last, after] if data or flags & FIN else [after]
    assert rig.port.streams[1].early == tuple(segment_frame(each) for each in expected)
    assert rig.counters["segment_of_established"] == 0


def test_data_of_a_syn_is_not_acknowledged_and_comes_again(rig):
    """The capture odd-segments-b: Linux acknowledges the SYN alone."""
    rig.listen()
    (answer,) = rig.exchange(from_peer(SYN, data=b"early"))
    assert answer.acknowledgment == 1001
    assert rig.counters["syn_data"] == 1


def test_the_syn_again_gets_the_syn_ack_again(rig):
    """The capture odd-segments-b."""
    rig.listen()
    first = half_open(rig)
    assert half_open(rig) == first


@pytest.mark.requirement("TCP-MUST-22")
def test_the_syn_ack_is_sent_again_until_the_time_is_over(rig):
    rig.listen()
    first = half_open(rig)
    again = rig.segments(rig.run(179))
    assert again == [first] * 7
    rig.run(2)
    assert rig.counters["half_open_timeouts"] == 1
    assert not rig.connections.openings.handshakes


@pytest.mark.parametrize("shift", [0, 2, 5000])
def test_a_wrong_ack_of_a_half_open_connection_gets_a_reset(rig, shift):
    """The capture odd-segments-b: the half-open connection stays."""
    listener = rig.listen()
    answer = half_open(rig)
    wrong = (answer.sequence + shift) % 2**32
    (reset,) = rig.exchange(from_peer(ACK, 1001, wrong))
    assert (reset.flags, reset.sequence) == (RST, wrong)
    rig.exchange(from_peer(ACK, 1001, following(answer.sequence)))
    assert listener.accept(0)


@pytest.mark.requirement("TCPSEC-3.2-02", "TCPSEC-3.2-03", "TCPSEC-4.2-01")
@pytest.mark.parametrize(
    ("flags", "sequence", "challenged"),
    [
        (RST, 1002, True),  # in the window, not exact
        (RST, 900, False),
        (SYN, 1500, True),
        (ACK, 900, True),
        (ACK, 70000, True),
        (0, 1001, False),
    ],
)
def test_a_half_open_connection_is_not_disturbed(rig, flags, sequence, challenged):
    listener = rig.listen()
    answer = half_open(rig)
    number = following(answer.sequence)
    answers = rig.exchange(from_peer(flags, sequence, number))
    expected = [(ACK, number, 1001)] if challenged else []
    assert [(each.flags, each.sequence, each.acknowledgment) for each in answers] == expected
    # A second one within half a second gets no answer (TCPSEC-7-01).
    assert not rig.exchange(from_peer(flags, sequence, number))
    rig.run(0.6)
    assert len(rig.exchange(from_peer(flags, sequence, number))) == len(expected)
    rig.exchange(from_peer(ACK, 1001, number))
    assert listener.accept(0)


@pytest.mark.requirement("TCP-MUST-11", "TCPSEC-3.2-01")
def test_an_exact_reset_goes_back_to_listen(rig):
    listener = rig.listen()
    answer = half_open(rig)
    assert not rig.exchange(from_peer(RST, 1001))
    assert not rig.connections.openings.handshakes
    (reset,) = rig.exchange(from_peer(ACK, 1001, following(answer.sequence)))
    assert reset.flags == RST
    assert rig.accepted(listener)


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (0, None),
        (FIN, None),
        (SYN | FIN, None),
        (SYN | RST, None),
        (RST, None),
        (RST | ACK, None),
        (ACK, (RST, 77, 0)),
        (SYN | ACK, (RST, 77, 0)),
        (SYN | FIN | ACK, (RST, 77, 0)),
    ],
)
def test_listen_takes_nothing_but_a_syn(rig, flags, answer):
    """RFC 9293, 3.10.7.2; odd flags as in the capture odd-segments-b."""
    rig.listen()
    sent = [(s.flags, s.sequence, s.acknowledgment) for s in rig.exchange(from_peer(flags, 5, 77))]
    assert sent == ([answer] if answer else [])
    assert not rig.connections.openings.handshakes


@pytest.mark.parametrize(
    ("segment", "answer"),
    [
        (from_peer(SYN), (RST | ACK, 0, 1001)),
        (from_peer(SYN | FIN, data=b"abc"), (RST | ACK, 0, 1005)),
        (from_peer(0, data=b"abc"), (RST | ACK, 0, 1003)),
        (from_peer(ACK, 5, 77), (RST, 77, 0)),
        (from_peer(SYN | ACK, 5, 77), (RST, 77, 0)),
        (from_peer(RST), None),
        (from_peer(RST | ACK), None),
    ],
)
def test_a_segment_of_no_connection_gets_a_reset(rig, segment, answer):
    """RFC 9293, 3.10.7.1."""
    sent = [(s.flags, s.sequence, s.acknowledgment) for s in rig.exchange(segment)]
    assert sent == ([answer] if answer else [])


def test_resets_are_limited(rig):
    rig.exchange(*(from_peer(SYN) for _ in range(500)))
    assert (rig.counters["resets_sent"], rig.counters["resets_limited"]) == (200, 300)
    rig.run(0.5)
    rig.exchange(*(from_peer(SYN) for _ in range(500)))
    assert rig.counters["resets_sent"] == 300


@pytest.mark.requirement("TCP-MUST-41")
def test_a_port_has_one_listener(rig):
    listener = rig.listen(4420)
    with pytest.raises(PortInUse, match=r"port 4420 of 192\.0\.2\.2 has a listener; allowed: ano"):
        rig.listen(4420)
    listener.close()
    assert rig.listen(4420).address == ("192.0.2.2", 4420)
    assert rig.listen(0).address[1] >= 1024


@pytest.mark.requirement("TCP-MUST-42")
def test_a_port_that_opens_a_connection_can_be_listened_at(rig):
    rig.know()
    opening = rig.open()
    listener = rig.listen(opening.handshake.local[1])
    assert rig.accepted(listener)
    assert not opening.done


def test_a_closed_listener_forgets_its_handshakes_and_closes_its_streams(rig):
    listener = rig.listen()
    answer = half_open(rig)
    number = following(answer.sequence)
    rig.exchange(from_peer(ACK, 1001, number))
    half = Segment((PEER, 40001), LOCAL, 1000, 0, SYN, 100)
    rig.exchange(half)
    listener.close()
    listener.close()
    assert not rig.connections.openings.handshakes
    assert rig.port.streams[1].shut
    with pytest.raises(StreamClosed, match="the listener was closed"):
        listener.accept(0)
    (reset,) = rig.exchange(half)
    assert reset.flags == RST | ACK


def test_nobody_is_taken_beyond_the_backlog(rig):
    listener = rig.listen(backlog=2)
    for source in (1, 2, 3):
        syn = Segment((PEER, source), LOCAL, 1000, 0, SYN, 100)
        answers = rig.exchange(syn)
        if source < 3:
            number = following(answers[0].sequence)
            rig.exchange(Segment((PEER, source), LOCAL, 1001, number, ACK, 100))
    assert not answers
    assert rig.counters["syn_no_room"] == 1
    listener.accept(0)
    assert rig.exchange(syn)


def test_an_ack_without_room_is_taken_when_there_is_some(rig):
    rig.listen(backlog=1)
    first = half_open(rig)
    second = Segment((PEER, 2), LOCAL, 1000, 0, SYN, 100)
    rig.exchange(second)  # the first handshake goes
    assert rig.counters["half_open_dropped"] == 1
    (reset,) = rig.exchange(from_peer(ACK, 1001, following(first.sequence)))
    assert reset.flags == RST


def test_a_full_engine_takes_no_syn():
    rig = Rig(port=FakePort(maximum_connections=1))
    listener = rig.listen()
    rig.accepted(listener)
    assert not rig.exchange(Segment((PEER, 2), LOCAL, 1000, 0, SYN, 100))
    assert rig.counters["syn_no_room"] == 1


def test_an_icmp_error_ends_a_half_open_connection(rig):
    rig.listen()
    answer = half_open(rig)
    packet = Datagram(OWN, PEER, Protocol.TCP, answer.encode()).encode()
    rig.take(icmp_frame(IcmpMessage(Kind.UNREACHABLE, 1, 0, 0, packet[:28])))
    assert rig.connections.openings.handshakes
    rig.take(icmp_frame(IcmpMessage(Kind.UNREACHABLE, 3, 0, 0, packet[:28])))
    assert not rig.connections.openings.handshakes


def test_odd_segments_are_answered_as_by_linux(rig):
    """The capture odd-segments-b: sources 7101 to 7116 send one segment each to a listener."""
    sent: dict[int, bytes] = {}
    answers: dict[int, tuple[int, int]] = {}
    for frame in captured("odd-segments-b"):
        (segment,) = rig.segments([frame]) or [None]
        if segment is None:
            continue
        if segment.source[1] in range(7101, 7117):
            sent.setdefault(segment.source[1], frame)
        elif segment.destination[1] in range(7101, 7117):
            answers.setdefault(segment.destination[1], (segment.flags, segment.acknowledgment))
    assert len(sent) == 16 and len(answers) == 13
    rig.listen(5001, 64)
    for source, frame in sent.items():
        ours = [(each.flags, each.acknowledgment) for each in rig.segments(rig.take(frame))]
        assert ours == ([answers[source]] if source in answers else []), source
    assert rig.counters["tcp_option_length"] == 2
    assert rig.counters["tcp_urgent"] == 1


@pytest.mark.parametrize("syns", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_flood_of_syns_takes_no_more_than_its_room_and_costs_others_nothing(rig, syns):
    """A thousand ports, beside an established connection."""
    listener = rig.listen(backlog=32)
    stream, engine = rig.accepted(listener)
    engine.received += b"still here"
    flood = [
        segment_frame(Segment((PEER, 1024 + number), LOCAL, number, 0, SYN, 1024, LINUX))
        for number in range(1000)
    ]
    for start in range(0, syns, 200):
        rig.take(*flood[start % 1000 :][:200])
        rig.port.sent.clear()
    assert len(rig.connections.openings.handshakes) == 32
    assert rig.counters["frames"] == syns + 2
    assert not rig.port.dropped_frames
    assert stream.receive_exactly(10, 0) == b"still here"
    # A peer that means it comes through.
    assert rig.accepted(listener, 40001)
