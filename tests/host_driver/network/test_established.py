"""Connections of the engine, TIME-WAIT after them, and ICMP errors about them."""

import pytest

from stagecoach.host_driver.network.errors import ConnectionReset, ConnectionTimedOut
from stagecoach.host_driver.network.ethernet import BROADCAST
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind, Unreachable
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.settings import SECOND_US
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.network.time_wait import TimeWait
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed
from tests.host_driver.network.port import FAKE_ALONE, EngineStream
from tests.host_driver.network.rig import (
    ACK,
    FAR,
    FIN,
    GATEWAY,
    GATEWAY_MAC,
    LINUX,
    OWN,
    PEER,
    PEER_MAC,
    RST,
    SYN,
    Rig,
    arp_packets,
    icmp_frame,
    segment_frame,
)

LOCAL, REMOTE = (OWN, 4420), (PEER, 40000)
MSL = 120


@pytest.fixture
def rig(make_port) -> Rig:
    return Rig(port=make_port())


@pytest.fixture
def joined(rig) -> tuple[NetworkStream, EngineStream]:
    """An established connection of a listener at 4420."""
    return rig.accepted(rig.listen())


NEW_MAC = bytes.fromhex("020000000099")


def test_connections_follow_a_neighbour_that_moves(rig, joined):
    _, engine = joined
    rig.know(PEER)
    rig.know(GATEWAY, GATEWAY_MAC)
    assert engine.macs == []
    rig.know(GATEWAY, NEW_MAC)
    assert engine.macs == []
    rig.know(PEER, NEW_MAC)
    assert engine.macs == [NEW_MAC]
    assert [each.mac for each in rig.connections.engine] == [NEW_MAC]


def test_connections_through_a_gateway_follow_it(rig):
    rig.know(GATEWAY, GATEWAY_MAC)
    opening = rig.open((FAR, 4420))
    (syn,) = rig.segments(rig.port.sent)
    answer = Segment((FAR, 4420), syn.source, 7, syn.sequence + 1, SYN | ACK, 64240, LINUX)
    rig.take(segment_frame(answer, GATEWAY_MAC))
    assert opening.stream is not None
    rig.know(PEER)
    rig.know(PEER, NEW_MAC)
    engine = rig.port.streams[opening.stream.handle]
    assert engine.macs == []
    rig.know(GATEWAY, NEW_MAC)
    assert engine.macs == [NEW_MAC]


@pytest.mark.requirement("TCP-MUST-47", "TCP-SHLD-9")
def test_a_connection_without_answers_has_its_neighbour_asked_for(rig, joined):
    stream, _ = joined
    rig.know(PEER)
    rig.port.doubtful += [stream.handle, 77]
    (request,) = arp_packets(rig.take())
    assert request.target == PEER
    (connection,) = rig.connections.engine
    assert connection.soft_error == "retransmissions are not acknowledged"
    assert rig.counters["r1_reached"] == 1


def test_frames_go_where_arp_says_wherever_they_come_from(rig):
    rig.know(GATEWAY, GATEWAY_MAC)
    opening = rig.open((FAR, 4420))
    (syn,) = rig.segments(rig.port.sent)
    answer = Segment((FAR, 4420), syn.source, 7, syn.sequence + 1, SYN | ACK, 64240, LINUX)
    # As of a router that has two, one of them that of the pair of routers.
    (ack,) = rig.take(segment_frame(answer, NEW_MAC))
    assert ack[:6] == GATEWAY_MAC
    assert rig.port.streams[opening.stream.handle].established.remote_mac == GATEWAY_MAC


def test_an_unknown_neighbour_is_looked_for_if_a_connection_has_no_answers(rig, joined):
    stream, engine = joined
    assert [each.mac for each in rig.connections.engine] == [PEER_MAC]
    rig.port.doubtful.append(stream.handle)
    (frame,) = rig.take()
    (request,) = arp_packets([frame])
    assert (frame[:6], request.target) == (BROADCAST, PEER)
    rig.know(PEER, NEW_MAC)
    assert engine.macs == [NEW_MAC]
    assert [each.mac for each in rig.connections.engine] == [NEW_MAC]
    rig.know(PEER, NEW_MAC)
    assert engine.macs == [NEW_MAC]


def from_peer(flags: int, sequence: int, acknowledgment: int = 0, data: bytes = b"") -> Segment:
    return Segment(REMOTE, LOCAL, sequence, acknowledgment, flags, 502, b"", data)


@FAKE_ALONE
@pytest.mark.requirement("TCPSEC-4.2-01", "TCPSEC-7-01")
def test_a_syn_that_reaches_the_driver_gets_a_challenge_ack(rig, joined):
    _, engine = joined
    engine.sent += b"12345"
    first = engine.established.next_sent
    (ack,) = rig.exchange(from_peer(SYN, 9), from_peer(SYN, 10), from_peer(SYN | ACK, 11, 3))
    assert (ack.flags, ack.sequence, ack.acknowledgment) == (ACK, (first + 5) % 2**32, 1001)
    assert ack.window == 65535 >> engine.established.receive_shift
    assert rig.counters["challenge_limited"] == 2
    rig.run(0.6)
    assert rig.exchange(from_peer(SYN, 9))


@FAKE_ALONE
@pytest.mark.parametrize("flags", [ACK, RST, FIN | ACK, SYN | RST])
def test_other_segments_of_the_engine_s_are_dropped(rig, joined, flags):
    assert not rig.exchange(from_peer(flags, 1001, 5))
    assert rig.counters["segment_of_established"] == 1


@pytest.mark.requirement("TCP-MUST-12", "TCP-MUST-20")
@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        (StreamEnd.CLOSED, StreamClosed, "the peer closed the stream after 0 of 1 bytes"),
        (
            StreamEnd.RESET,
            ConnectionReset,
            "to 192.0.2.1:40000 ended: the peer reset the connection",
        ),
        (
            StreamEnd.TIMED_OUT,
            ConnectionTimedOut,
            "the connection timed out, the peer acknowledges nothing",
        ),
        (StreamEnd.ABORTED, StreamClosed, "the connection was aborted here"),
    ],
)
def test_the_stream_says_how_it_ended(rig, joined, how, error, words):
    stream, _engine = joined
    rig.port.end(stream.handle, how)
    rig.service.serve()
    with pytest.raises(error, match=words) as raised:
        stream.receive_exactly(1, 0)
    assert type(raised.value) is error
    with pytest.raises(StreamClosed, match="ended"):
        stream.sendall(b"x", 0)
    with pytest.raises(StreamClosed, match="ended"):
        stream.wait_readable(0)
    assert rig.counters[f"ended_{how.name.lower()}"] == 1
    assert LOCAL + REMOTE not in rig.connections.engine


def test_the_last_octets_are_there_after_the_end(rig, joined):
    stream, engine = joined
    engine.received += b"last words"
    rig.port.end(stream.handle, StreamEnd.CLOSED)
    rig.service.serve()
    stream.wait_readable(0)
    assert stream.receive_exactly(10, 0) == b"last words"
    with pytest.raises(StreamClosed, match="after 0 of 1 bytes"):
        stream.receive_exactly(1, 0)


def test_a_stream_that_ended_is_not_given_away(rig, joined):
    stream, _ = joined
    rig.port.end(stream.handle, StreamEnd.RESET)
    rig.service.serve()
    with pytest.raises(ConnectionReset):
        stream.give_away(lambda handle: None)


@FAKE_ALONE
def test_an_unknown_end_is_counted(rig, joined):
    rig.port.end(joined[0].handle, StreamEnd.RESET)
    rig.port.end(joined[0].handle, StreamEnd.RESET)
    rig.service.serve()
    assert rig.counters["ended_unknown"] == 1


def closed(rig: Rig, joined: tuple[NetworkStream, EngineStream]) -> tuple[int, int]:
    """This end closed first: SND.NXT and RCV.NXT."""
    ended = rig.port.end(joined[0].handle, StreamEnd.CLOSED, closed_first=True)
    rig.service.serve()
    return ended.next_sent, ended.next_received


@pytest.mark.requirement("TCP-MUST-13")
def test_the_end_that_closes_first_waits_two_lifetimes(rig, joined):
    """A FIN that comes again is acknowledged and starts the time anew."""
    sent, received = closed(rig, joined)
    rig.run(2 * MSL - 1)
    fin = from_peer(FIN | ACK, received - 1, sent)
    (ack,) = rig.exchange(fin)
    assert (ack.flags, ack.sequence, ack.acknowledgment) == (ACK, sent, received)
    rig.run(2 * MSL - 1)
    assert rig.exchange(fin)
    rig.run(2 * MSL + 1)
    (reset,) = rig.exchange(fin)
    assert (reset.flags, reset.sequence) == (RST, sent)


def test_the_other_end_does_not_wait(rig, joined):
    rig.port.end(joined[0].handle, StreamEnd.CLOSED)
    rig.service.serve()
    (reset,) = rig.exchange(from_peer(FIN | ACK, 1001, 5))
    assert reset.flags == RST


@pytest.mark.requirement("TCPSEC-4.2-01")
@pytest.mark.parametrize(
    ("flags", "shift", "data", "answered"),
    [
        (ACK, 0, b"", False),
        (ACK, 0, b"data", True),
        (ACK, -1, b"", True),
        (0, 5, b"", True),
        (RST, 1, b"", False),
        (SYN, 0, b"", True),
        (SYN, -5, b"", True),
        (SYN | ACK, 5, b"", True),
    ],
)
def test_time_wait_answers_what_is_not_acceptable(rig, joined, flags, shift, data, answered):
    """RFC 9293, 3.10.7.4."""
    sent, received = closed(rig, joined)
    answers = rig.exchange(from_peer(flags, received + shift, sent, data))
    expected = [(ACK, sent, received)] if answered else []
    assert [(each.flags, each.sequence, each.acknowledgment) for each in answers] == expected
    assert (LOCAL, REMOTE) in rig.connections.time_wait


def test_a_forged_fin_does_not_lengthen_time_wait(rig, joined):
    sent, received = closed(rig, joined)
    rig.run(2 * MSL - 1)
    assert rig.exchange(from_peer(FIN | ACK, received + 100, sent))
    rig.run(1.5)
    assert (LOCAL, REMOTE) not in rig.connections.time_wait


def test_an_exact_reset_ends_time_wait(rig, joined):
    """T-05: RFC 9293, not RFC 1337."""
    _, received = closed(rig, joined)
    assert not rig.exchange(from_peer(RST, received))
    assert (LOCAL, REMOTE) not in rig.connections.time_wait


def test_a_newer_syn_opens_a_connection_from_time_wait(rig, joined):
    """RFC 9293, 3.6.1 (MAY-2): its ISS is ahead of all that the old connection used."""
    sent, received = closed(rig, joined)
    rig.port.streams.clear()
    rig.port.now += 60 * SECOND_US
    syn = Segment(REMOTE, LOCAL, received + 1, 0, SYN, 100, LINUX)
    (answer,) = rig.exchange(syn)
    assert answer.flags == SYN | ACK
    assert 0 < (answer.sequence - sent) % 2**32 < 2**31
    assert (LOCAL, REMOTE) not in rig.connections.time_wait


def test_an_iss_is_ahead_of_the_old_connection_whatever_the_clock_says(rig):
    rig.listen()
    syn = Segment(REMOTE, LOCAL, 1000, 0, SYN, 100, LINUX)
    openings = rig.connections.openings
    (plain,) = rig.exchange(syn)
    for least in (plain.sequence, (plain.sequence + 1000) % 2**32):
        openings.take_syn((LOCAL, REMOTE), syn, GATEWAY_MAC, rig.port.now, least)
        answer = rig.segments(rig.port.sent)[-1]
        assert answer.sequence == (least + 1) % 2**32


def test_a_newer_syn_without_a_listener_is_answered_by_time_wait(rig):
    listener = rig.listen()
    sent, received = closed(rig, rig.accepted(listener))
    listener.close()
    (answer,) = rig.exchange(Segment(REMOTE, LOCAL, received + 1, 0, SYN, 100))
    assert (answer.flags, answer.sequence) == (ACK, sent)


def test_answers_of_time_wait_are_limited(rig, joined):
    sent, received = closed(rig, joined)
    frames = [segment_frame(from_peer(FIN | ACK, received - 1, sent))] * 300
    assert len(rig.take(*frames)) == 200
    assert rig.counters["time_wait_limited"] == 100


def test_a_fin_that_comes_again_puts_its_entry_at_the_end():
    table = TimeWait(240)
    for port in (1, 2):
        table.add((LOCAL, (PEER, port)), 1, 2, b"", 0)
    fin = Segment((PEER, 1), LOCAL, 1, 1, FIN | ACK)
    table.receive((LOCAL, (PEER, 1)), fin, 100)
    assert table.list() == [(LOCAL, (PEER, 2)), (LOCAL, (PEER, 1))]
    assert table.next_us == 240


def test_time_wait_is_bounded_and_the_oldest_goes():
    table = TimeWait(240, maximum=3)
    gone = [table.add((LOCAL, (PEER, port)), 1, 2, b"", port) for port in range(1, 6)]
    assert gone == [None] * 3 + [(LOCAL, (PEER, 1)), (LOCAL, (PEER, 2))]
    assert table.list() == [(LOCAL, (PEER, port)) for port in (3, 4, 5)]
    table.tick(243)
    assert table.list() == [(LOCAL, (PEER, port)) for port in (4, 5)]


def test_a_port_in_time_wait_is_not_taken_again(rig, joined):
    closed(rig, joined)
    assert rig.connections._in_use((LOCAL, REMOTE))
    assert not rig.connections._in_use(((OWN, 4421), REMOTE))


def quoting(
    engine: EngineStream,
    message: IcmpMessage,
    sequence: int | None = None,
    data: int = 1460,
) -> bytes:
    """An ICMP error about a segment of the connection."""
    number = engine.established.next_sent if sequence is None else sequence
    sent = Segment(
        engine.established.local, engine.established.remote, number, 1001, ACK, 0, b"", bytes(data)
    )
    packet = Datagram(OWN, engine.established.remote[0], Protocol.TCP, sent.encode()).encode()
    whole = IcmpMessage(message.kind, message.code, 0, message.second, packet[:28])
    return icmp_frame(whole, GATEWAY, GATEWAY_MAC)


def too_big(mtu: int) -> IcmpMessage:
    return IcmpMessage(Kind.UNREACHABLE, Unreachable.FRAGMENTATION_NEEDED, 0, mtu, b"")


def in_flight(engine: EngineStream, octets: int = 3000) -> None:
    engine.sent += bytes(octets)
    engine.in_flight = octets


@pytest.mark.requirement("PMTUD-3-01", "PMTUD-3-02", "PMTUD-3-03", "PMTUD-6.4-02", "TCP-MUST-54")
@pytest.mark.parametrize(
    ("told", "segment"), [(1000, 960), (0, 1452), (100, 536), (1499, 1459), (576, 536)]
)
def test_a_router_makes_the_segments_shorter(rig, joined, told, segment):
    _stream, engine = joined
    in_flight(engine)
    rig.take(quoting(engine, too_big(told)))
    assert engine.segment_sizes == [segment]


def test_a_new_connection_of_the_path_has_short_segments_and_an_old_one_too(rig):
    """RFC 1191, 6.4."""
    listener = rig.listen()
    _, first = rig.accepted(listener, 1)
    _, second = rig.accepted(listener, 2)
    in_flight(first)
    rig.take(quoting(first, too_big(1000)), quoting(first, too_big(1200)))
    assert (first.segment_sizes, second.segment_sizes) == ([960], [960])
    assert rig.counters["icmp_too_big_ignored"] == 1
    _, third = rig.accepted(listener, 3)
    assert third.established.maximum_segment_size == 960
    rig.run(601)
    _, fourth = rig.accepted(listener, 4)
    assert fourth.established.maximum_segment_size == 1460


@pytest.mark.requirement("ICMPA-4.1-01")
@pytest.mark.parametrize(("shift", "believed"), [(0, 1), (2999, 1), (-1, 0), (3000, 0), (10**6, 0)])
def test_an_error_is_believed_if_its_segment_is_under_way(rig, joined, shift, believed):
    _stream, engine = joined
    in_flight(engine)
    number = (engine.established.next_sent + shift) % 2**32
    rig.take(quoting(engine, too_big(1000), number))
    assert len(engine.segment_sizes) == believed
    assert rig.counters["icmp_unknown_segment"] == 1 - believed


def test_an_error_about_an_unknown_connection_changes_nothing(rig, joined):
    in_flight(joined[1])
    message = quoting(joined[1], too_big(1000))
    rig.port.end(joined[0].handle, StreamEnd.RESET)
    rig.take(message)
    assert rig.counters["icmp_unknown_segment"] == 1
    assert rig.connections.paths.get(PEER, rig.port.now) == 1500


@pytest.mark.requirement("TCP-MUST-56", "TCP-MUST-47", "ICMPA-5.2-01")
@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (Kind.UNREACHABLE, 1, "host unreachable"),
        (Kind.UNREACHABLE, 2, "protocol unreachable"),
        (Kind.UNREACHABLE, 3, "port unreachable"),
        (Kind.TIME_EXCEEDED, 1, "time exceeded"),
        (Kind.PARAMETER_PROBLEM, 0, "parameter problem"),
    ],
)
def test_no_error_ends_an_established_connection(rig, joined, kind, code, words):
    stream, engine = joined
    in_flight(engine)
    rig.take(quoting(engine, IcmpMessage(kind, code, 0, 0, b"")))
    (connection,) = rig.connections.engine
    assert connection.soft_error == words
    assert stream.open


def test_a_stream_that_is_closed_sends_fin_and_the_peer_s_is_waited_for(rig, joined):
    stream, engine = joined
    stream.close()
    stream.close()
    assert engine.shut
    rig.run(59)
    assert rig.counters["fin_timeouts"] == 0
    rig.run(2)
    rig.service.serve()
    assert (rig.counters["fin_timeouts"], rig.counters["ended_aborted"]) == (1, 1)
    with pytest.raises(StreamClosed, match="closed or given to a device"):
        stream.sendall(b"x")


@pytest.mark.requirement("TCP-SHLD-3")
def test_a_stream_with_unread_octets_is_reset(rig, joined):
    stream, engine = joined
    engine.received += b"never read"
    stream.close()
    rig.service.serve()
    assert not engine.shut
    assert rig.counters["ended_aborted"] == 1


def test_far_peers_have_a_path_of_their_own(rig):
    listener = rig.listen()
    _, near = rig.accepted(listener)
    in_flight(near)
    rig.take(quoting(near, too_big(1000)))
    assert rig.connections.paths.get(FAR, rig.port.now) == 1500
