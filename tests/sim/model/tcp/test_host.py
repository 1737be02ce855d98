"""The host around the reference TCP: which connection a packet is for, and what is discarded."""

from ipaddress import IPv4Address, IPv4Interface

import pytest

from stagecoach.sim.model.tcp import icmp
from stagecoach.sim.model.tcp.checksum import checksum
from stagecoach.sim.model.tcp.host import Host
from stagecoach.sim.model.tcp.ipv4 import Packet
from stagecoach.sim.model.tcp.malformed import Reason
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Report, Settings, State
from tests.sim.model.tcp.script import KEY, S

requirement = pytest.mark.requirement
A, B = IPv4Interface("192.0.2.1/24"), IPv4Interface("192.0.2.2/24")


class Pair:
    """Two hosts without any delay between them."""

    def __init__(self) -> None:
        self.now = 0
        self.a, self.b = Host(A, KEY), Host(B, KEY)
        self.log: list[bytes] = []

    def run(self) -> None:
        """Until nobody sends any more."""
        while True:
            of_a, of_b = self.a.take_packets(), self.b.take_packets()
            if not of_a and not of_b:
                break
            self.log += of_a + of_b
            for packet in of_a:
                self.b.packet_arrives(self.now, packet)
            for packet in of_b:
                self.a.packet_arrives(self.now, packet)


def shapes(packets: list[bytes]) -> list[Flags]:
    return [decode_packet(packet)[1].flags for packet in packets]


@requirement("TCP-MUST-41", "TCP-MUST-43", "TCP-MUST-44", "TCP-MUST-45", "TCP-3.6-01")
def test_each_syn_to_a_listener_makes_a_connection_of_its_own():
    pair = Pair()
    listener = pair.b.listen(80)
    ends = [pair.a.connect(0, (B.ip, 80)) for _ in range(3)]
    assert len({end.local[1] for end in ends}) == 3
    pair.run()
    assert [end.state for end in ends] == [State.ESTABLISHED] * 3
    taken = [listener.accept() for _ in range(4)]
    assert taken[3] is None
    assert [t.remote for t in taken if t] == [end.local for end in ends]
    # Each has its own stream.
    for number, end in enumerate(ends):
        end.send(0, bytes((number,)) * 10)
    pair.run()
    assert [t.receive(0) for t in taken if t] == [bytes((n,)) * 10 for n in range(3)]
    sources = {decode_packet(packet)[0].source for packet in pair.log}
    assert sources == {A.ip, B.ip}


@requirement("TCP-MUST-41")
def test_reset_of_one_leaves_the_others_and_the_listener():
    pair = Pair()
    listener = pair.b.listen(80)
    first, second = (pair.a.connect(0, (B.ip, 80)) for _ in range(2))
    pair.run()
    first.abort(0)
    pair.run()
    assert second.state is State.ESTABLISHED
    taken = [listener.accept(), listener.accept()]
    assert [end.state for end in taken if end] == [State.CLOSED, State.ESTABLISHED]
    third = pair.a.connect(0, (B.ip, 80))
    pair.run()
    assert third.state is State.ESTABLISHED
    assert len(pair.b.connections) == 2


@requirement("TCP-MUST-42")
def test_listener_beside_a_connection_that_opens_from_the_same_port():
    pair = Pair()
    opening = pair.b.connect(0, (IPv4Address("192.0.2.9"), 7), port=80)
    listener = pair.b.listen(80)
    end = pair.a.connect(0, (B.ip, 80))
    pair.run()
    assert opening.state is State.SYN_SENT
    assert end.state is State.ESTABLISHED
    assert listener.accept() is not None


@requirement("TCP-3.5.2-01")
def test_segment_to_nobody_is_reset():
    pair = Pair()
    end = pair.a.connect(0, (B.ip, 81))
    pair.run()
    assert end.state is State.CLOSED
    assert shapes(pair.log) == [Flags.SYN, Flags.RST | Flags.ACK]
    # A listener takes a SYN alone.
    pair.b.listen(80)
    pair.b.packet_arrives(0, encode_packet(Segment(5, 80, 9, 77, Flags.ACK), A.ip, B.ip))
    (answer,) = pair.b.take_packets()
    _, segment = decode_packet(answer)
    assert (segment.flags, segment.sequence) == (Flags.RST, 77)
    pair.b.packet_arrives(0, encode_packet(Segment(5, 80, 9, 0, Flags.FIN), A.ip, B.ip))
    pair.b.packet_arrives(0, encode_packet(Segment(5, 80, 9, 0, Flags.RST), A.ip, B.ip))
    assert pair.b.take_packets() == []
    assert not pair.b.connections


def test_refused_syn_is_forgotten():
    pair = Pair()
    listener = pair.b.listen(80)
    pair.b.packet_arrives(0, encode_packet(Segment(5, 80, 9, 0, Flags.SYN), A.ip, B.ip))
    assert shapes(pair.b.take_packets()) == [Flags.SYN | Flags.ACK]
    assert len(pair.b.connections) == 1
    pair.b.packet_arrives(0, encode_packet(Segment(5, 80, 10, 0, Flags.RST), A.ip, B.ip))
    assert pair.b.take_packets() == []
    assert (len(pair.b.connections), listener.pending) == (0, [])


def test_backlog_is_bounded():
    pair = Pair()
    listener = pair.b.listen(80, backlog=2)
    for port in range(1, 5):
        pair.b.packet_arrives(0, encode_packet(Segment(port, 80, 9, 0, Flags.SYN), A.ip, B.ip))
    assert len(pair.b.take_packets()) == 2
    assert len(listener.pending) == 2


@requirement("TCP-MUST-43", "TCP-MUST-46", "IP-1122-3.2.1.3-01", "IP-1122-3.2.1.3-04")
def test_addresses_that_cannot_be_are_refused():
    host = Host(A, KEY)
    host.connect(0, (B.ip, 80), port=5, local=A.ip)
    with pytest.raises(ValueError, match=r"local address 192.0.2.9 \(expected 192.0.2.1\)"):
        host.connect(0, (B.ip, 80), local=IPv4Address("192.0.2.9"))
    for wrong in ("224.0.0.1", "255.255.255.255", "192.0.2.255", "0.0.0.0", "127.0.0.1"):
        with pytest.raises(ValueError, match=f"remote address {wrong}"):
            host.connect(0, (IPv4Address(wrong), 80))
    with pytest.raises(ValueError, match=r"port 5 has a connection to 192.0.2.2:80"):
        host.connect(0, (B.ip, 80), port=5)
    host.listen(80)
    with pytest.raises(ValueError, match="port 80 has a listener"):
        host.listen(80)
    assert len(host.take_packets()) == 1


@requirement("TCP-MUST-57", "TCP-MUST-63", "IP-1122-3.2.1.3-02", "IP-1122-3.2.1.3-03")
@requirement("IP-1122-3.3.6-01")
@pytest.mark.parametrize(
    ("source", "destination", "reason"),
    [
        ("192.0.2.1", "255.255.255.255", Reason.IP_DESTINATION),
        ("192.0.2.1", "192.0.2.255", Reason.IP_DESTINATION),
        ("192.0.2.1", "224.0.0.1", Reason.IP_DESTINATION),
        ("192.0.2.1", "192.0.2.3", Reason.IP_DESTINATION),
        ("192.0.2.255", "192.0.2.2", Reason.IP_SOURCE),
        ("255.255.255.255", "192.0.2.2", Reason.IP_SOURCE),
        ("224.0.0.1", "192.0.2.2", Reason.IP_SOURCE),
        ("0.0.0.0", "192.0.2.2", Reason.IP_SOURCE),
        ("127.0.0.1", "192.0.2.2", Reason.IP_SOURCE),
    ],
)
def test_syn_from_or_to_no_single_host_is_ignored(source, destination, reason):
    host = Host(B, KEY)
    host.listen(80)
    ends = IPv4Address(source), IPv4Address(destination)
    host.packet_arrives(0, encode_packet(Segment(5, 80, 9, 0, Flags.SYN), *ends))
    assert (host.take_packets(), host.connections) == ([], {})
    assert host.discarded == {reason: 1}


@requirement("TCP-MUST-3", "IP-1122-3.2.1.2-01", "IP-1122-3.2.1.1-01")
@pytest.mark.parametrize("at", [0, 1, 8, 10, 12, 20, 24, 33, 36, 40])
def test_packet_with_a_wrong_bit_has_no_effect(at):
    host = Host(B, KEY)
    host.listen(80)
    octets = bytearray(encode_packet(Segment(5, 80, 9, 0, Flags.SYN, payload=b"x"), A.ip, B.ip))
    octets[at] ^= 4
    host.packet_arrives(0, bytes(octets))
    assert (host.take_packets(), host.connections) == ([], {})
    assert sum(host.discarded.values()) == 1


@requirement("TCP-MUST-48", "TCP-MUST-49", "TCP-SHLD-21", "TCP-SHLD-22", "IP-1122-3.2.1.6-01")
@requirement("IP-1122-3.2.1.7-02", "IP-1122-3.4-01")
def test_dscp_and_ttl_are_those_of_the_user_at_any_time():
    host = Host(A, KEY)
    connection = host.connect(0, (B.ip, 80))
    found = Packet.decode(host.take_packets()[0])
    assert (found.service, found.ttl) == (0, 64)
    connection.dscp, connection.ttl = 46, 5
    host.timer(S)
    found = Packet.decode(host.take_packets()[0])
    # The two bits of ECN are none of DSCP.
    assert (found.service, found.ttl) == (46 << 2, 5)


@requirement("IP-1122-3.2.1.7-01")
@pytest.mark.parametrize("ttl", [0, 1, 2])
def test_small_ttl_is_taken(ttl):
    host = Host(B, KEY)
    host.listen(80)
    segment = Segment(5, 80, 9, 0, Flags.SYN)
    host.packet_arrives(0, Packet(A.ip, B.ip, segment.encode(A.ip, B.ip), ttl=ttl).encode())
    assert len(host.take_packets()) == 1


@requirement("TCP-MUST-54", "TCP-MUST-47", "IP-1122-3.2.2-03")
def test_icmp_error_finds_the_connection_that_it_quotes():
    pair = Pair()
    pair.b.listen(80)
    ends = [pair.a.connect(0, (B.ip, 80)) for _ in range(2)]
    pair.run()
    ends[1].send(0, b"data")
    (packet,) = pair.a.take_packets()
    router = IPv4Address("192.0.2.254")
    message = icmp.error_about(packet, icmp.UNREACHABLE, 1)
    pair.a.packet_arrives(0, Packet(router, A.ip, message, icmp.PROTOCOL).encode())
    assert [end.reports for end in ends] == [[], [Report.UNREACHABLE]]
    # An error about somebody else's packet, and one about UDP.
    foreign = encode_packet(decode_packet(packet)[1], IPv4Address("192.0.2.7"), B.ip)
    other = packet[:9] + b"\x11" + packet[10:]
    for quoted in (foreign, other):
        message = icmp.error_about(quoted, icmp.UNREACHABLE, 1)
        pair.a.packet_arrives(0, Packet(router, A.ip, message, icmp.PROTOCOL).encode())
    assert [end.reports for end in ends] == [[], [Report.UNREACHABLE]]


@requirement("ICMP-01", "IP-1122-3.2.2.6-01")
def test_echo_is_answered_from_the_address_that_was_asked():
    host = Host(B, KEY)
    request = bytes((8, 0, 0, 0, 1, 2, 3, 4)) + b"ping!"
    request = request[:2] + checksum(request).to_bytes(2, "big") + request[4:]
    host.packet_arrives(0, Packet(A.ip, B.ip, request, icmp.PROTOCOL).encode())
    (answer,) = host.take_packets()
    found = Packet.decode(answer)
    assert (found.source, found.destination, found.protocol) == (B.ip, A.ip, icmp.PROTOCOL)
    assert (found.payload[0], found.payload[4:]) == (0, request[4:])
    # Not to a broadcast (IP-1122-3.2.2.6-02).
    broadcast = IPv4Address("192.0.2.255")
    host.packet_arrives(0, Packet(A.ip, broadcast, request, icmp.PROTOCOL).encode())
    assert host.take_packets() == []


@requirement("IP-1122-3.2.2-04")
def test_nothing_but_tcp_and_icmp_is_answered():
    host = Host(B, KEY)
    host.packet_arrives(0, Packet(A.ip, B.ip, bytes(20), protocol=17).encode())
    quoted = encode_packet(Segment(5, 80, 9, 0, Flags.SYN), B.ip, A.ip)
    for message in (icmp.error_about(quoted, 3, 1), bytes(3), bytes((3, 0, 1, 1)) + bytes(40)):
        host.packet_arrives(0, Packet(A.ip, B.ip, message, icmp.PROTOCOL).encode())
    assert host.take_packets() == []
    assert host.discarded == {
        Reason.IP_PROTOCOL: 1,
        Reason.ICMP_SHORT: 1,
        Reason.ICMP_CHECKSUM: 1,
    }


def test_timers_of_all_connections_run():
    host = Host(A, KEY, Settings(r2_syn=1))
    assert host.next_deadline() is None
    ends = [host.connect(now, (B.ip, 80)) for now in (0, 5)]
    host.take_packets()
    assert host.next_deadline() == S
    host.timer(S)
    host.take_packets()
    assert [end.state for end in ends] == [State.CLOSED, State.SYN_SENT]
    assert host.next_deadline() == S + 5
    assert len(host.connections) == 1


def test_ports_are_used_in_turn_and_run_out():
    host = Host(A, KEY)
    host.listen(49153)
    remote = B.ip, 80
    assert [host.connect(0, remote).local[1] for _ in range(3)] == [49152, 49154, 49155]
    taken = host.connections[49152, remote]
    host.connections |= {(port, remote): taken for port in range(49152, 65535)}
    assert host.connect(0, remote).local[1] == 65535
    with pytest.raises(ValueError, match=r"no free port to 192.0.2.2:80"):
        host.connect(0, remote)
    assert host.connect(0, (B.ip, 81)).local[1] == 49152
