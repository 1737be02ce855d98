"""What frames do that are not of a connection: counted, answered, and never more than that."""

import random
from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver.network.ethernet import BROADCAST
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind, Unreachable
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.tcp import Segment
from tests.host_driver.network.frames import CAPTURES, FRAMES, captured
from tests.host_driver.network.port import FakePort
from tests.host_driver.network.rig import (
    FAR,
    GATEWAY_MAC,
    OWN,
    OWN_MAC,
    PEER,
    PEER_MAC,
    SYN,
    Rig,
    framed,
    icmp_frame,
    icmp_messages,
    segment_frame,
)


@pytest.fixture
def rig(make_port) -> Rig:
    return Rig(port=make_port())


@pytest.mark.requirement("TCP-MUST-57", "TCP-MUST-63", "IP-1122-3.2.1.3-02", "IP-1122-3.2.1.3-03")
@pytest.mark.parametrize(
    ("name", "counter"),
    [
        ("vlan-data", "vlan"),
        ("ipv6-syn", "ipv6"),
        ("ipv6-echo", "ipv6"),
        ("bad-ip-checksum", "ip_checksum"),
        ("bad-total-length", "ip_total_length"),
        ("bad-tcp-data", "tcp_checksum"),
        ("bad-data-offset-4", "tcp_data_offset"),
        ("frag-0", "ip_fragment"),
        ("tcp-tiny-fragment", "ip_fragment"),
        ("martian-source", "ip_source"),
        ("syn-to-broadcast", "ip_broadcast"),
        ("arp-bad-hlen", "arp_format"),
    ],
)
def test_what_is_refused_is_counted_by_name(rig, name, counter):
    assert not rig.take(FRAMES[name])
    assert rig.counters[counter] == 1


def datagram(source: str, destination: str, protocol: int = 6, payload: bytes = b"") -> bytes:
    return Datagram(IPv4Address(source), IPv4Address(destination), protocol, payload).encode()


@pytest.mark.requirement(
    "TCP-MUST-57",
    "TCP-MUST-63",
    "IP-1122-3.2.1.3-02",
    "IP-1122-3.2.1.3-03",
    "IP-1122-3.3.6-01",
    "IPV4-3.1-01",
)
@pytest.mark.parametrize(
    ("source", "destination", "counter"),
    [
        ("192.0.2.1", "192.0.2.3", "ip_not_for_us"),
        ("192.0.2.1", "224.0.0.1", "ip_not_for_us"),
        ("192.0.2.1", "192.0.2.255", "ip_broadcast"),
        ("192.0.2.1", "192.0.2.0", "ip_broadcast"),
        ("192.0.2.1", "255.255.255.255", "ip_broadcast"),
        ("192.0.2.2", "192.0.2.2", "ip_source"),
        ("192.0.2.255", "192.0.2.2", "ip_source"),
        ("255.255.255.255", "192.0.2.2", "ip_source"),
        ("224.0.0.5", "192.0.2.2", "ip_source"),
        ("240.0.0.1", "192.0.2.2", "ip_source"),
        ("127.0.0.1", "192.0.2.2", "ip_source"),
        ("0.0.0.1", "192.0.2.2", "ip_source"),
        ("0.0.0.0", "192.0.2.2", "ip_source"),
    ],
)
def test_only_unicast_between_hosts_is_taken(rig, source, destination, counter):
    assert not rig.take(framed(datagram(source, destination)))
    assert rig.counters[counter] == 1


@pytest.mark.requirement("TCP-MUST-57", "IP-1122-3.3.6-02", "IP-1122-2.4-01")
def test_a_unicast_datagram_in_a_broadcast_frame_is_dropped(rig):
    rig.listen()
    syn = Segment((PEER, 1), (OWN, 4420), 1, 0, SYN)
    packet = Datagram(PEER, OWN, Protocol.TCP, syn.encode()).encode()
    assert not rig.take(framed(packet, destination=BROADCAST))
    assert rig.counters["ip_in_broadcast"] == 1


@pytest.mark.requirement("ICMP-01", "IP-1122-3.2.2.6-01")
def test_an_echo_is_answered(rig):
    """The reply is that of the vectors."""
    (reply,) = rig.take(FRAMES["icmp-echo-request"])
    assert reply[:14] == PEER_MAC + OWN_MAC + b"\x08\x00"
    assert reply[34:] == FRAMES["icmp-echo-reply"][34:]


def test_an_echo_from_afar_goes_back_the_way_it_came(rig):
    echo = IcmpMessage(Kind.ECHO, 0, 1, 2, b"x")
    (reply,) = rig.take(icmp_frame(echo, FAR, GATEWAY_MAC))
    assert reply[:6] == GATEWAY_MAC


def test_echoes_are_limited(rig):
    rig.take(*[FRAMES["icmp-echo-request"]] * 1000)
    assert (rig.counters["echo_replies"], rig.counters["echo_limited"]) == (200, 800)


def test_a_reply_that_nobody_waits_for_is_counted(rig):
    rig.take(icmp_frame(IcmpMessage(Kind.ECHO_REPLY, 0, 1, 2, b"x")))
    assert rig.counters["echo_unexpected"] == 1


@pytest.mark.parametrize(
    ("change", "counted"), [({}, 0), ({"first": 1}, 1), ({"body": b"y"}, 1), ({"second": 9}, 1)]
)
def test_a_reply_has_to_be_that_of_the_request(rig, change, counted):
    rig.know()
    ping = rig.service.echo.ping(PEER, b"x", rig.port.now)
    request = ping.request
    fields = {"first": request.first, "second": request.second, "body": request.body} | change
    rig.port.now += 250
    rig.take(icmp_frame(IcmpMessage(Kind.ECHO_REPLY, 0, **fields)))
    assert rig.counters["echo_unexpected"] == counted
    assert (ping.replied_us is None) == bool(counted)


@pytest.mark.requirement("IP-1122-3.2.2-01")
@pytest.mark.parametrize("kind", [13, 17, 255, 30])
def test_an_unknown_icmp_type_is_dropped(rig, kind):
    assert not rig.take(icmp_frame(IcmpMessage(kind, 0, 0, 0, b"")))
    assert rig.counters["icmp_type"] == 1


@pytest.mark.requirement("IP-1122-3.2.2-02")
@pytest.mark.parametrize(
    ("protocol", "code", "counter"),
    [(17, Unreachable.PORT, "udp"), (132, Unreachable.PROTOCOL, "ip_protocol")],
)
def test_what_is_neither_tcp_nor_icmp_gets_an_error(rig, protocol, code, counter):
    packet = datagram("192.0.2.1", "192.0.2.2", protocol, b"0123456789")
    (message,) = icmp_messages(rig.take(framed(packet)))
    assert (message.kind, message.code, message.body) == (Kind.UNREACHABLE, code, packet[:28])
    rig.take(*[framed(packet)] * 100)
    assert (rig.counters[counter], rig.counters["unreachables_limited"]) == (101, 51)


@pytest.mark.requirement("IP-1122-3.2.2-03")
def test_an_error_without_a_segment_of_ours_is_counted(rig):
    rig.take(FRAMES["icmp-port-unreachable"][:6] + OWN_MAC + FRAMES["icmp-port-unreachable"][12:])
    packet = datagram("192.0.2.2", "192.0.2.1", 17, bytes(8))
    rig.take(icmp_frame(IcmpMessage(Kind.UNREACHABLE, 3, 0, 0, packet)))
    assert rig.counters["icmp_quote"] == 1


def test_urgent_data_is_counted_and_stays_in_the_stream(rig):
    rig.listen()
    frame = segment_frame(Segment((PEER, 1), (OWN, 4420), 1, 0, SYN | 0x20))
    assert rig.take(frame)
    assert rig.counters["tcp_urgent"] == 1


@pytest.mark.parametrize("frames", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_garbage_changes_nothing_beside_an_established_connection(rig, frames):
    """Random octets, and frames of every kind with a few octets changed."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    listener = rig.listen()
    stream, engine = rig.accepted(listener)
    whole = [*FRAMES.values(), *(frame for name in CAPTURES for frame in captured(name))]
    for _ in range(frames // 100):
        batch = []
        for _ in range(100):
            frame = bytearray(draw.choice(whole))
            if draw.random() < 0.2:
                frame = bytearray(draw.randbytes(draw.randrange(1600)))
            elif draw.random() < 0.8:
                for _ in range(draw.randrange(1, 6)):
                    frame[draw.randrange(len(frame))] = draw.randrange(256)
                del frame[draw.choice((len(frame), draw.randrange(len(frame)))) :]
            frame[:6] = draw.choice((OWN_MAC, OWN_MAC, BROADCAST))[: len(frame)]
            batch.append(bytes(frame))
        rig.take(*batch)
        rig.port.sent.clear()
        rig.port.now += 1000
    if isinstance(rig.port, FakePort):  # an engine takes those of its connection
        assert rig.counters["frames"] == frames + 2
    assert len(rig.service.neighbours.list(0)) <= 256
    assert len(rig.connections.openings.handshakes) <= 8
    assert stream.open and not engine.segment_sizes
    engine.received += b"fine"
    assert stream.receive_exactly(4, 0) == b"fine"
