"""Connections that this end opens: SYN, its retransmissions, and every way in which it ends."""

import pytest

from stagecoach.host_driver.network import tcp_options
from stagecoach.host_driver.network.errors import ConnectionRefused, NoNeighbour, NoRoute
from stagecoach.host_driver.network.handshake import State
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind, Unreachable
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.openings import Opening
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.network.tcp_options import SynOptions
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from tests.host_driver.network.port import FAKE_ALONE, FakePort
from tests.host_driver.network.rig import (
    ACK,
    FAR,
    FIN,
    GATEWAY,
    GATEWAY_MAC,
    LINUX,
    OWN,
    OWN_MAC,
    PEER,
    PEER_MAC,
    RST,
    SYN,
    Rig,
    arp_packets,
    icmp_frame,
    segment_frame,
)
from tests.sim.model.tcp.vectors import vectors


@pytest.fixture
def rig(make_port) -> Rig:
    rig = Rig(port=make_port())
    rig.know()
    return rig


def reply(opening: Opening, flags: int, *, options: bytes = b"", data: bytes = b"") -> Segment:
    """A segment of the peer in answer to the SYN, with sequence number 5000."""
    handshake = opening.handshake
    number = handshake.next_sent if flags & ACK else 0
    return Segment(*(handshake.remote, handshake.local, 5000, number, flags, 64240, options, data))


@pytest.mark.requirement("TCP-MUST-14", "TCP-MUST-67", "WS-2.2-01", "WS-2.2-04")
def test_the_syn_has_its_options_and_the_size_of_the_mtu(rig):
    opening = rig.open()
    (syn,) = rig.segments(rig.port.sent)
    assert (syn.flags, syn.acknowledgment, syn.window) == (SYN, 0, 65535)
    assert syn.source[0] == OWN and syn.destination == (PEER, 4420)
    assert tcp_options.decode(syn.options) == SynOptions(1460, 3, True)
    assert opening.handshake.state is State.SYN_SENT


def test_ports_differ_and_nobody_can_guess_them(rig):
    ports = {rig.open().handshake.local[1] for _ in range(20)}
    assert len(ports) == 20
    assert min(ports) >= 1024


@pytest.mark.requirement("TCP-MUST-14", "TCP-MUST-16", "WS-2.3-01", "WS-2.3-02")
def test_the_handshake_gives_the_engine_all_it_needs(rig):
    opening = rig.open()
    rig.run(0.02)
    (ack,) = rig.exchange(reply(opening, SYN | ACK, options=LINUX))
    number = opening.handshake.next_sent
    assert (ack.flags, ack.sequence, ack.acknowledgment) == (ACK, number, 5001)
    assert opening.stream is not None
    given = rig.port.streams[opening.stream.handle].established
    assert (given.local[0], given.remote) == (OWN, (PEER, 4420))
    assert (given.local_mac, given.remote_mac) == (OWN_MAC, PEER_MAC)
    assert (given.next_sent, given.next_received) == (number, 5001)
    assert (given.window, given.update) == (64240, (5000, number))
    assert (given.send_shift, given.receive_shift) == (7, 3)
    assert given.receive_window == ack.window << 3 == 1 << 18
    assert given.maximum_segment_size == 1460
    assert given.selective_acknowledgments
    assert (given.round_trip_us, given.syn_lost) == (20_000, False)
    assert opening.stream.maximum_segment_size == 1460
    assert opening.stream.peer_address == ("192.0.2.1", 4420)


@pytest.mark.requirement("TCP-MUST-15", "WS-2.2-02", "WS-2.3-01")
def test_options_that_one_end_lacks_are_off(rig):
    """The SYN,ACK of the capture one-sided-options."""
    opening = rig.open()
    (ack,) = rig.exchange(reply(opening, SYN | ACK))
    given = rig.port.streams[1].established
    assert (given.send_shift, given.receive_shift) == (0, 0)
    assert not given.selective_acknowledgments
    assert given.maximum_segment_size == 536
    assert given.receive_window == ack.window == 65535


@pytest.mark.requirement("TCP-MUST-16", "TCP-MUST-15")
@pytest.mark.parametrize("vector", [each for each in vectors("emss") if not each.values[0]["ipv6"]])
def test_the_segment_size_is_that_of_the_vectors(vector):
    """Timestamps are not used here."""
    if vector["timestamps"]:
        vector = {**vector, "emss": vector["emss"] + 12}
    rig = Rig(NetworkSettings.parse("192.0.2.2/24", OWN_MAC, None, vector["mtu"]))
    rig.know()
    opening = rig.open()
    options = b"" if vector["peer_mss"] is None else SynOptions(vector["peer_mss"]).encode()
    rig.exchange(reply(opening, SYN | ACK, options=options))
    size = rig.port.streams[1].established.maximum_segment_size
    assert size in (vector["emss"], vector["emss"] - 12)
    assert size == min(vector["mtu"] - 40, vector["peer_mss"] or 536)


def test_a_tiny_segment_size_of_the_peer_counts_as_48(rig):
    opening = rig.open()
    rig.exchange(reply(opening, SYN | ACK, options=SynOptions(0).encode()))
    assert rig.port.streams[1].established.maximum_segment_size == 48


def test_a_peer_behind_the_gateway_has_its_mac(rig):
    rig.know(GATEWAY, GATEWAY_MAC)
    opening = rig.open((FAR, 4420))
    assert rig.port.sent[-1][:6] == GATEWAY_MAC
    rig.take(segment_frame(reply(opening, SYN | ACK, options=LINUX), GATEWAY_MAC))
    assert rig.port.streams[1].established.remote_mac == GATEWAY_MAC
    assert rig.port.sent[-1][:6] == GATEWAY_MAC


def test_the_syn_waits_for_arp(rig):
    rig.service.neighbours.flush()
    rig.open()
    assert not rig.segments(rig.port.sent)
    assert [packet.target for packet in arp_packets(rig.port.sent)] == [PEER]
    rig.know()
    assert rig.counters["arp_requests"] == 1


def test_a_neighbour_that_does_not_answer_is_named(rig):
    rig.service.neighbours.flush()
    opening, far = rig.open(), rig.open((FAR, 4420))
    short = rig.open(seconds=0.5)
    rig.run(1)
    assert isinstance(short.error, NoNeighbour)
    rig.run(3)
    assert isinstance(opening.error, NoNeighbour)
    assert str(opening.error) == "192.0.2.1 does not answer ARP requests"
    assert str(far.error) == (
        "192.0.2.254 does not answer ARP requests: it is the gateway to 198.51.100.7:4420"
    )
    assert not rig.connections.openings.handshakes


def test_there_is_no_connection_without_a_route(rig):
    with pytest.raises(NoRoute, match="no route to 192"):
        rig.open((OWN, 4420))
    assert not rig.connections.openings.handshakes


@pytest.mark.requirement("TCP-MUST-20", "TCP-MUST-22", "TCP-MUST-23")
def test_a_syn_is_sent_again_after_1_2_4_seconds_up_to_60_for_three_minutes(rig):
    """RFC 6298, 2.1 and 5.5."""
    opening = rig.open()
    began, times = rig.port.now, []
    for _ in range(400):
        # The neighbour is asked again meanwhile; it is there.
        sent = rig.segments(rig.run(0.5))
        times += [rig.port.now - began] * len(sent)
        if arp_packets(rig.port.sent):
            rig.know()
        rig.port.sent.clear()
        if opening.done:
            break
    seconds = [each / SECOND_US for each in times]
    assert seconds == [1, 3, 7, 15, 31, 63, 123]
    assert rig.port.now - began == pytest.approx(180 * SECOND_US, abs=SECOND_US)
    assert isinstance(opening.error, TransportTimeout)
    assert str(opening.error) == "192.0.2.1:4420 does not answer in 180 s"


@pytest.mark.requirement("TCP-MUST-21")
def test_the_caller_says_how_long(rig):
    opening = rig.open(seconds=0.999997)
    rig.run(0.9)
    assert not opening.done
    rig.run(0.2)
    assert str(opening.error) == "192.0.2.1:4420 does not answer in 1 s"


@pytest.mark.requirement("TCP-MUST-20", "IP-1122-3.3.1.4-01")
def test_the_neighbour_is_checked_when_the_peer_is_silent(rig):
    rig.open()
    rig.run(6)
    assert not arp_packets(rig.port.sent)
    rig.run(1.5)
    assert [packet.target for packet in arp_packets(rig.port.sent)] == [PEER]


def test_a_retransmitted_syn_measures_no_round_trip(rig):
    """Karn; RFC 5681, 3.1."""
    opening = rig.open()
    rig.run(1.5)
    rig.exchange(reply(opening, SYN | ACK, options=LINUX))
    given = rig.port.streams[1].established
    assert (given.round_trip_us, given.syn_lost) == (None, True)


def test_a_reset_refuses(rig):
    """RFC 9293, 3.10.7.3; the RST,ACK of the vectors answers a SYN for a closed port."""
    opening = rig.open()
    assert not rig.exchange(reply(opening, RST | ACK))
    assert isinstance(opening.error, ConnectionRefused)
    assert isinstance(opening.error, (TransportError, ConnectionRefusedError))
    assert str(opening.error) == "192.0.2.1:4420 refused the connection"


@pytest.mark.parametrize("flags", [RST, 0, FIN, ACK, FIN | ACK])
def test_what_is_no_answer_is_dropped(rig, flags):
    opening = rig.open()
    assert not rig.exchange(reply(opening, flags))
    assert not opening.done


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("flags", [ACK, SYN | ACK, RST | ACK])
def test_an_acknowledgment_of_what_was_not_sent_gets_a_reset(rig, flags, shift):
    opening = rig.open()
    wrong = reply(opening, flags)
    number = (wrong.acknowledgment + shift) % 2**32
    answers = rig.exchange(
        Segment(wrong.source, wrong.destination, wrong.sequence, number, flags, 100)
    )
    if flags & RST:
        assert not answers
    else:
        assert [(each.flags, each.sequence) for each in answers] == [(RST, number)]
    assert not opening.done


def test_data_and_fin_of_a_syn_ack_are_the_engine_s(rig):
    """RFC 9293, 3.10.7.3: it is processed further when the state is ESTABLISHED."""
    opening = rig.open()
    rig.exchange(reply(opening, SYN | ACK | FIN, options=LINUX, data=b"hello"))
    (early,) = rig.port.streams[1].early
    (segment,) = rig.segments([early])
    assert (segment.sequence, segment.data, segment.flags) == (5001, b"hello", ACK | FIN)
    assert segment.window << 7 <= 64240
    assert early[:12] == OWN_MAC + PEER_MAC


def test_frames_after_the_syn_ack_are_the_engine_s_in_order(rig):
    opening = rig.open()
    first = reply(opening, SYN | ACK, options=LINUX)
    data = [
        Segment(
            first.source,
            first.destination,
            5001 + 4 * n,
            first.acknowledgment,
            ACK,
            9,
            b"",
            b"abcd",
        )
        for n in range(3)
    ]
    other = icmp_frame(IcmpMessage(Kind.ECHO, 0, 1, 1, b""))
    frames = [segment_frame(each) for each in data]
    rig.take(segment_frame(first), frames[0], other, *frames[1:])
    assert rig.port.streams[1].early == tuple(frames)
    assert rig.counters["echo_replies"] == 1


@FAKE_ALONE
@pytest.mark.requirement("TCP-MUST-10", "TCP-MUST-11")
def test_other_frames_are_not_taken_for_early_ones(rig):
    opening = rig.open()
    first = reply(opening, SYN | ACK, options=LINUX)
    data = Segment(first.source, first.destination, 5001, first.acknowledgment, ACK, 9, b"", b"x")
    plain = segment_frame(data)
    odd = [
        b"",
        plain[:30],
        plain[:12] + b"\x86\xdd" + plain[14:],
        plain[:23] + b"\x11" + plain[24:],
    ]
    rig.take(segment_frame(first), *odd, plain)
    assert rig.port.streams[1].early == (plain,)
    assert rig.counters["frames"] == 5 + 1  # that of ARP


def test_both_ends_may_open_at_once(rig):
    """RFC 9293, figure 8."""
    opening = rig.open()
    (answer,) = rig.exchange(reply(opening, SYN, options=LINUX))
    handshake = opening.handshake
    assert (answer.flags, answer.sequence) == (SYN | ACK, handshake.iss)
    assert answer.acknowledgment == 5001
    assert handshake.state is State.SYN_RECEIVED and not opening.done
    (ack,) = rig.exchange(reply(opening, SYN | ACK, options=LINUX))
    assert (ack.flags, ack.sequence, ack.acknowledgment) == (ACK, handshake.next_sent, 5001)
    assert rig.port.streams[1].established.next_received == 5001
    assert opening.stream is not None


@pytest.mark.requirement("TCP-MUST-10")
def test_an_ack_ends_a_simultaneous_open_as_well(rig):
    opening = rig.open()
    rig.exchange(reply(opening, SYN, options=LINUX))
    local, remote = opening.handshake.local, opening.handshake.remote
    rig.exchange(Segment(remote, local, 5001, opening.handshake.next_sent, ACK, 10))
    assert rig.port.streams[1].established.window == 10 << 7


@pytest.mark.requirement("TCP-MUST-11")
def test_a_reset_of_a_simultaneous_open_is_told(rig):
    """It does not go back to LISTEN."""
    opening = rig.open()
    rig.exchange(reply(opening, SYN, options=LINUX))
    local, remote = opening.handshake.local, opening.handshake.remote
    rig.exchange(Segment(remote, local, 5001, 0, RST))
    assert isinstance(opening.error, ConnectionRefused)


def test_a_full_engine_resets_the_peer_and_says_so():
    rig = Rig(port=FakePort(maximum_connections=0))
    rig.know()
    opening = rig.open()
    (reset,) = rig.exchange(reply(opening, SYN | ACK, options=LINUX))
    assert (reset.flags, reset.sequence) == (RST | ACK, opening.handshake.next_sent)
    assert str(opening.error) == "no room"


def quoting(opening: Opening, kind: int, code: int, sequence: int | None = None) -> bytes:
    """The frame of an ICMP error about the SYN."""
    handshake = opening.handshake
    number = handshake.iss if sequence is None else sequence
    syn = Segment(handshake.local, handshake.remote, number, 0, SYN)
    packet = Datagram(OWN, handshake.remote[0], Protocol.TCP, syn.encode()).encode()
    return icmp_frame(IcmpMessage(kind, code, 0, 0, packet[:28]), GATEWAY, GATEWAY_MAC)


@pytest.mark.requirement("TCP-MUST-54", "TCP-SHLD-26")
@pytest.mark.parametrize(
    ("code", "words"),
    [(Unreachable.PROTOCOL, "protocol unreachable"), (Unreachable.PORT, "port unreachable")],
)
def test_a_hard_error_ends_the_handshake(rig, code, words):
    opening = rig.open()
    rig.take(quoting(opening, Kind.UNREACHABLE, code))
    assert isinstance(opening.error, ConnectionRefused)
    assert str(opening.error) == f"192.0.2.1:4420 refused the connection: {words}"


@pytest.mark.requirement(
    "TCP-MUST-56", "TCP-MUST-47", "IP-1122-3.2.2.1-01", "IP-1122-3.2.2.4-01", "IP-1122-3.2.2.5-01"
)
@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (Kind.UNREACHABLE, 0, "network unreachable"),
        (Kind.UNREACHABLE, 1, "host unreachable"),
        (Kind.UNREACHABLE, 5, "source route failed"),
        (Kind.UNREACHABLE, 13, "destination unreachable, code 13"),
        (Kind.TIME_EXCEEDED, 0, "time exceeded"),
        (Kind.PARAMETER_PROBLEM, 0, "parameter problem"),
    ],
)
def test_a_soft_error_is_told_when_the_time_is_over(rig, kind, code, words):
    opening = rig.open(seconds=2)
    rig.take(quoting(opening, kind, code))
    assert not opening.done
    rig.run(2.5)
    assert str(opening.error) == (
        f"192.0.2.1:4420 does not answer in 2 s (an ICMP error says: {words})"
    )


@pytest.mark.requirement("ICMPA-4.1-01")
def test_an_error_about_another_sequence_number_is_not_believed(rig):
    opening = rig.open()
    rig.take(quoting(opening, Kind.UNREACHABLE, 3, opening.handshake.next_sent))
    assert not opening.done
    assert rig.counters["icmp_unknown_segment"] == 1


@pytest.mark.requirement("TCP-MUST-55")
def test_source_quench_and_redirect_change_nothing(rig):
    opening = rig.open()
    rig.take(quoting(opening, Kind.SOURCE_QUENCH, 0), quoting(opening, Kind.REDIRECT, 1))
    assert not opening.done and opening.soft_error is None
    assert (rig.counters["icmp_source_quench"], rig.counters["icmp_redirect"]) == (1, 1)
