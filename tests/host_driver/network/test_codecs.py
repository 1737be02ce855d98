"""Frames as octets: held to vectors that scapy made, and to frames of a Linux peer."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver.network import arp, ethernet, icmp, ipv4, tcp
from stagecoach.host_driver.network.arp import ArpPacket, Operation
from stagecoach.host_driver.network.checksum import checksum
from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind, Unreachable
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.refusal import Refused
from stagecoach.host_driver.network.tcp import Flag, Segment
from tests.host_driver.network.frames import CAPTURES, FRAMES, captured
from tests.sim.model.tcp.vectors import vectors

A, B = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
MAC_A, MAC_B = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def datagram(name: str) -> Datagram:
    frame = FRAMES[name]
    return ipv4.decode(ethernet.decode(frame, frame[:6]).payload)


def refusal(octets: bytes) -> str:
    """The name under which a frame to its own destination is refused."""
    with pytest.raises(Refused) as refused:
        whole = ethernet.decode(octets, octets[:6])
        if whole.kind == EtherType.ARP:
            arp.decode(whole.payload)
        else:
            found = ipv4.decode(whole.payload)
            icmp.decode(found.payload) if found.protocol == 1 else tcp.decode(found)
    return refused.value.name


@pytest.mark.parametrize("vector", vectors("checksum"))
def test_the_checksum_is_that_of_rfc_1071(vector):
    assert checksum(bytes.fromhex(vector["data_hex"])) == int(vector["checksum"], 16)


def test_the_checksum_of_parts_is_that_of_the_whole():
    assert checksum(b"abcd", b"efg") == checksum(b"abcdefg")


@pytest.mark.requirement("TCP-MUST-3")
def test_linux_may_send_the_other_zero_of_a_checksum():
    whole = datagram("data-checksum-zero")
    octets = whole.payload
    assert octets[16:18] == b"\0\0"
    other = replace(whole, payload=octets[:16] + b"\xff\xff" + octets[18:])
    assert tcp.decode(other) == tcp.decode(whole)


@pytest.mark.requirement(
    "TCP-MUST-3", "IP-1122-3.2.1.1-01", "IP-1122-3.2.1.2-01", "IPV4-3.1-01", "ARP-01"
)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vlan-data", "vlan"),
        ("vlan-double", "vlan"),
        ("arp-vlan", "vlan"),
        ("ipv6-syn", "ipv6"),
        ("ipv6-ns", "ipv6"),
        ("arp-bad-hlen", "arp_format"),
        ("bad-ip-checksum", "ip_checksum"),
        ("bad-ip-source", "ip_checksum"),
        ("bad-total-length", "ip_total_length"),
        ("frag-0", "ip_fragment"),
        ("frag-1", "ip_fragment"),
        ("frag-2", "ip_fragment"),
        ("tcp-tiny-fragment", "ip_fragment"),
        ("bad-tcp-checksum-field", "tcp_checksum"),
        ("bad-tcp-data", "tcp_checksum"),
        ("bad-tcp-port", "tcp_checksum"),
        ("bad-data-offset-4", "tcp_data_offset"),
        ("bad-data-offset-15", "tcp_data_offset"),
    ],
)
def test_what_is_refused_has_a_name(name, reason):
    assert refusal(FRAMES[name]) == reason


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        ("020000000002", "frame_short"),
        ("020000000002 020000000001 0026" + "00" * 46, "ieee_802_3"),
        ("0180c2000001 020000000001 8808 0001 ffff" + "00" * 42, "pause"),
        ("020000000002 020000000001 88cc" + "00" * 46, "ethertype"),
        ("020000000002 030000000001 0800" + "00" * 46, "frame_source"),
        ("020000000002 020000000001 0806 0001 0800 06 04 0001", "arp_short"),
        ("020000000002 020000000001 0806 0001 0800 06 04 0003" + "02" * 20, "arp_format"),
        ("020000000002 020000000001 0806 0001 0800 06 04 0001" + "03" * 20, "arp_source"),
        ("020000000002 020000000001 0800 4500", "ip_short"),
        ("020000000002 020000000001 0800 65" + "00" * 45, "ip_version"),
        ("020000000002 020000000001 0800 44" + "00" * 45, "ip_header_length"),
    ],
)
def test_frames_that_are_too_short_or_no_frames_of_ours_have_a_name(octets, reason):
    assert refusal(bytes.fromhex(octets)) == reason


def test_a_frame_for_another_interface_is_refused():
    with pytest.raises(Refused, match="frame_not_for_us"):
        ethernet.decode(FRAMES["data-1"], MAC_A)


@pytest.mark.requirement("IP-1122-2.3.3-01")
def test_a_datagram_in_an_ethernet_frame_in_literal_octets():
    """RFC 894: destination, source, type 0800, data padded to 46 octets; no RFC 1042 header."""
    payload = datagram("icmp-echo-request").header + datagram("icmp-echo-request").payload
    literal = bytes.fromhex("020000000002 020000000001 0800") + payload.ljust(46, b"\0")
    assert Frame(MAC_B, MAC_A, EtherType.IPV4, payload).encode() == literal
    read = ethernet.decode(literal, MAC_B)
    assert (read.kind, read.source, read.payload[: len(payload)]) == (
        *(EtherType.IPV4, MAC_A),
        payload,
    )


def with_ip_options(options: bytes) -> bytes:
    """A datagram of ICMP whose header has these options."""
    header = bytearray(datagram("icmp-echo-request").header)
    payload = datagram("icmp-echo-request").payload
    header[0] = 0x40 | (20 + len(options)) // 4
    header[2:4] = (20 + len(options) + len(payload)).to_bytes(2)
    header[10:12] = b"\0\0"
    header += options
    header[10:12] = checksum(bytes(header)).to_bytes(2)
    return bytes(header) + payload


@pytest.mark.parametrize("kind", [131, 137])
def test_source_routes_are_refused(kind):
    route = bytes((1, kind, 7, 4)) + A.packed
    with pytest.raises(Refused, match="ip_source_route"):
        ipv4.decode(with_ip_options(route))


@pytest.mark.requirement("TCP-MUST-50", "IP-1122-3.2.1.8-01")
@pytest.mark.parametrize(
    "options", ["01010100", "9404000001010101", "07070401020304ff", "9400ff83"]
)
def test_other_options_of_ip_are_passed_over(options):
    found = ipv4.decode(with_ip_options(bytes.fromhex(options)))
    assert icmp.decode(found.payload).kind == Kind.ECHO


@pytest.mark.parametrize("name", ["arp-request", "arp-reply", "arp-probe", "arp-announcement"])
def test_arp_packets_are_made_as_they_are_read(name):
    octets = FRAMES[name]
    frame = ethernet.decode(octets, octets[:6])
    packet = arp.decode(frame.payload)
    whole = Frame(frame.destination, frame.source, EtherType.ARP, packet.encode())
    assert whole.encode() == octets.ljust(60, b"\0")


def test_an_arp_request_in_literal_octets():
    packet = ArpPacket(Operation.REQUEST, MAC_A, A, bytes(6), B)
    assert packet.encode() == bytes.fromhex(
        "0001 0800 06 04 0001 020000000001 c0000201 000000000000 c0000202"
    )
    assert arp.decode(FRAMES["arp-request"][14:]) == packet


def test_icmp_messages_are_made_as_they_are_read():
    request, reply = (
        icmp.decode(datagram(name).payload) for name in ("icmp-echo-request", "icmp-echo-reply")
    )
    assert (request.kind, reply.kind) == (Kind.ECHO, Kind.ECHO_REPLY)
    answer = IcmpMessage(Kind.ECHO_REPLY, 0, request.first, request.second, request.body)
    assert answer.encode() == datagram("icmp-echo-reply").payload


@pytest.mark.requirement("ICMP-02")
def test_a_damaged_icmp_message_is_refused():
    payload = bytearray(datagram("icmp-echo-odd").payload)
    payload[-1] ^= 1
    with pytest.raises(Refused, match="icmp_checksum"):
        icmp.decode(bytes(payload))
    with pytest.raises(Refused, match="icmp_short"):
        icmp.decode(bytes(payload[:7]))


@pytest.mark.requirement("IP-1122-3.2.2-03")
def test_an_error_names_the_segment_that_it_quotes():
    message = icmp.decode(datagram("icmp-frag-needed-1000").payload)
    assert (message.kind, message.code, message.second) == (
        *(Kind.UNREACHABLE, Unreachable.FRAGMENTATION_NEEDED),
        1000,
    )
    quoted = icmp.quoted_segment(message)
    assert (quoted.local[0], quoted.remote[0], quoted.sequence) == (A, B, 0x1001)


@pytest.mark.parametrize("cut", [0, 19, 27])
def test_an_error_that_quotes_too_little_is_refused(cut):
    message = icmp.decode(datagram("icmp-port-unreachable").payload)
    short = IcmpMessage(message.kind, message.code, 0, 0, message.body[:cut])
    with pytest.raises(Refused, match="icmp_quote"):
        icmp.quoted_segment(short)


@pytest.mark.requirement("TCP-MUST-14")
def test_a_syn_in_literal_octets():
    """The smallest SYN of the vectors, up to its identification."""
    expected = datagram("syn-mss-only")
    syn = tcp.decode(expected)
    assert syn.flags == Flag.SYN
    assert syn.encode() == expected.payload
    whole = Datagram(syn.source[0], syn.destination[0], Protocol.TCP, syn.encode()).encode()
    literal = bytearray(expected.header + expected.payload)
    literal[4:6] = whole[4:6]
    literal[10:12] = whole[10:12]
    assert whole == bytes(literal)
    assert checksum(whole[:20]) == 0


@pytest.mark.requirement("TCP-MUST-2", "TCP-MUST-3")
@pytest.mark.parametrize("name", CAPTURES)
def test_segments_of_linux_are_made_as_they_are_read(name):
    segments = 0
    for octets in captured(name):
        frame = ethernet.decode(octets, octets[:6])
        if frame.kind != EtherType.IPV4:
            continue
        found = ipv4.decode(frame.payload)
        try:
            segment = tcp.decode(found)
        except Refused:
            assert name == "odd-segments-b"  # injected ones
            continue
        if name != "odd-segments-b":
            assert segment.encode() == found.payload
        segments += 1
    assert segments > 8


def test_a_length_counts_syn_and_fin():
    ends = (A, 1), (B, 2)
    both = Segment(*ends, 0, 0, Flag.SYN | Flag.FIN, data=b"abc")
    assert both.length == 5
    assert Segment(*ends, 0, 0, Flag.ACK).length == 0


def test_a_port_of_0_is_refused():
    segment = Segment((A, 0), (B, 2), 0, 0, Flag.SYN)
    with pytest.raises(Refused, match="tcp_port"):
        tcp.decode(Datagram(A, B, Protocol.TCP, segment.encode()))
    with pytest.raises(Refused, match="tcp_short"):
        tcp.decode(Datagram(A, B, Protocol.TCP, segment.encode()[:19]))
