"""Capture files of all kinds, TCP as networks deliver it, and files that are broken."""

import re
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapNgReader, RawPcapReader

from stagecoach.sim.capture.connections import read_connections
from stagecoach.sim.capture.decode import decode_file
from stagecoach.sim.capture.file import CaptureError, Packet, read_packets
from stagecoach.sim.capture.packets import FLAG_ACK, FLAG_FIN, FLAG_SYN, tcp_segments
from stagecoach.sim.model import mpa
from stagecoach.sim.model.ddp import TaggedHeader
from tests.sim.capture.decoding import (
    TO_RESPONDER,
    Record,
    conversation,
    decoded,
    pcap,
    printed,
    problems,
    tcp_packet,
    written,
)
from tests.sim.model.vectors import DATA

REQUEST = mpa.StartupFrame(reply=False).encode()
REPLY = mpa.StartupFrame(reply=True).encode()
FPDUS = [
    mpa.frame_fpdu(TaggedHeader(7, 256 * n, rsvd_ulp=0x40).encode() + bytes([n]) * 90)
    for n in range(4)
]
STREAM = b"".join(FPDUS)
START = 2**32 - 60
ETHERNET = bytes(12) + b"\x08\x00"
VLAN = bytes(12) + b"\x88\xa8\x00\x01\x81\x00\x00\x02\x08\x00"
CAPTURE = (DATA / "captures" / "crc1-rping-64.pcap").read_bytes()
COOKED = bytes(14) + b"\x08\x00"
COOKED_2 = b"\x08\x00" + bytes(18)


def records(*after_startup: tuple[int, bytes], flags: int = FLAG_ACK) -> list[Record]:
    """The initiator's segments (offset in the stream, payload) after the startup."""
    first = START + len(REQUEST)
    return [
        (True, START, flags, REQUEST),
        (False, 100, flags, REPLY),
        *((True, first + offset, flags, payload) for offset, payload in after_startup),
    ]


def file_of(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "made.pcap"
    path.write_bytes(data)
    return path


def offsets(path: Path) -> list[int]:
    """The TO of every Write, which tells which FPDU it is."""
    return [item["ddp"]["tagged_offset"] // 256 for item in decoded(path) if item["kind"] == "fpdu"]


WHOLE = records((0, STREAM))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
def test_times_and_octet_orders_of_pcap(tmp_path, order, nano):
    packets = [ETHERNET + tcp_packet(record) for record in WHOLE]
    path = file_of(tmp_path, pcap(packets, linktype=1, order=order, nano=nano))
    items = decoded(path)
    assert [item["packet"] for item in items] == [1, 2, 3, 3, 3, 3]
    assert [item["time_ns"] for item in items[:3]] == [1_500_000_000, 1_501_000_000, 1_502_000_000]
    assert printed(path)[3].startswith("     3    0.002000 1→ RDMA Write")


@pytest.mark.parametrize(
    ("linktype", "link", "ip"),
    [
        (1, ETHERNET, 4),
        (1, ETHERNET[:12] + b"\x86\xdd", 6),
        (1, VLAN, 4),
        (113, COOKED, 4),
        (276, COOKED_2, 4),
        (0, b"\2\0\0\0", 4),
        (108, b"\0\0\0\2", 4),
        (101, b"", 4),
        (101, b"", 6),
        (12, b"", 4),
        (228, b"", 4),
        (229, b"", 6),
    ],
)
def test_kinds_of_links(tmp_path, linktype, link, ip):
    packets = [link + tcp_packet(record, ip=ip) for record in WHOLE]
    path = file_of(tmp_path, pcap(packets, linktype=linktype))
    assert offsets(path) == [0, 1, 2, 3]
    source = "97.98.99.100:1000" if ip == 4 else "6161:6161:6161:6161:6161:6161:6161:6161:1000"
    assert decoded(path)[0]["source"] == source


def test_other_packets_are_left_out(tmp_path):
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    udp = bytearray(ETHERNET + tcp_packet(WHOLE[2]))
    udp[14 + 9] = 17
    fragment = bytearray(ETHERNET + tcp_packet(WHOLE[2]))
    fragment[14 + 6] = 0x20
    short = ETHERNET + tcp_packet(WHOLE[2])[:30]
    packets = [ETHERNET + tcp_packet(record) for record in WHOLE]
    path = file_of(
        tmp_path, pcap([arp, bytes(udp), bytes(fragment), short, b"", *packets], linktype=1)
    )
    assert offsets(path) == [0, 1, 2, 3]


def test_an_unknown_link_is_named(tmp_path):
    path = file_of(tmp_path, pcap([bytes(60)], linktype=127))
    with pytest.raises(CaptureError, match="packet 1 has link type 127; known: 0, 1, 12"):
        list(tcp_segments(read_packets(path)))


def test_segmentation_offload_without_ip_length(tmp_path):
    packets = [bytearray(ETHERNET + tcp_packet(record)) for record in WHOLE]
    packets[2][14 + 2 : 14 + 4] = b"\0\0"
    path = file_of(tmp_path, pcap(map(bytes, packets), linktype=1))
    assert offsets(path) == [0, 1, 2, 3]


def test_a_packet_of_more_than_64_kib(tmp_path):
    fpdu = mpa.frame_fpdu(TaggedHeader(7, 0, rsvd_ulp=0x40).encode() + bytes(64700))
    packets = [bytearray(ETHERNET + tcp_packet(record)) for record in WHOLE[:2]]
    big = tcp_packet((True, START + len(REQUEST), FLAG_ACK, b""))[:2] + b"\0\0"
    big += tcp_packet((True, START + len(REQUEST), FLAG_ACK, b""))[4:] + fpdu + STREAM * 3
    assert len(big) > 65536
    path = file_of(tmp_path, pcap([*map(bytes, packets), ETHERNET + big], linktype=1))
    assert len(offsets(path)) == 1 + 3 * len(FPDUS)


CUTS = st.lists(st.integers(1, len(STREAM) - 1), max_size=8).map(sorted)


@settings(deadline=None, max_examples=60)
@given(CUTS, st.randoms(use_true_random=False), st.data())
def test_any_order_repetition_and_overlap_give_each_fpdu_once(tmp_path_factory, cuts, rng, data):
    edges = [0, *cuts, len(STREAM)]
    pieces = []
    for start, end in pairwise(edges):
        early = data.draw(st.integers(0, min(start, 20)))
        pieces += [(start - early, STREAM[start - early : end])] * data.draw(st.integers(1, 2))
    rng.shuffle(pieces)
    handshake = [
        (True, START - 1, FLAG_SYN, b""),
        (False, 99, FLAG_SYN | FLAG_ACK, b""),
    ]
    packets = [ETHERNET + tcp_packet(record) for record in handshake + records(*pieces)]
    path = file_of(tmp_path_factory.mktemp("x"), pcap(packets, linktype=1))
    assert offsets(path) == [0, 1, 2, 3]
    assert problems(decoded(path)) == []


def test_a_gap_is_told_and_what_is_before_it_decoded(tmp_path):
    first, second = len(FPDUS[0]), len(FPDUS[0] + FPDUS[1])
    holes = records((0, STREAM[: first + 10]), (second, STREAM[second:]))
    packets = [ETHERNET + tcp_packet(record) for record in holes]
    path = file_of(tmp_path, pcap(packets, linktype=1))
    assert offsets(path) == [0]
    (remark,) = [item for item in decoded(path) if item["kind"] == "remark"]
    (problem,) = remark["problems"]
    assert problem["detail"].startswith(f"{second - first - 10} bytes are missing in the capture")


def test_octets_that_were_not_captured_are_missing(tmp_path):
    packets = [ETHERNET + tcp_packet(record) for record in WHOLE]
    cut = 60
    data = pcap(packets[:2], linktype=1)
    data += struct.pack("<IIII", 2, 0, len(packets[2]) - cut, len(packets[2])) + packets[2][:-cut]
    path = file_of(tmp_path, data)
    assert offsets(path) == [0, 1, 2]
    assert "60 bytes are missing in the capture" in printed(path)[-1]
    with pytest.raises(CaptureError, match=r"lacks 60 bytes of packet 3$"):
        read_connections(path)


def test_the_same_ports_again_are_another_connection(tmp_path):
    one = [
        (True, START - 1, FLAG_SYN, b""),
        (True, START - 1, FLAG_SYN, b""),
        (False, 99, FLAG_SYN | FLAG_ACK, b""),
        *records((0, FPDUS[0])),
        (True, START - 1, FLAG_SYN, b""),
        *records((len(FPDUS[0]), FPDUS[1]))[2:],
        (True, START + 400, FLAG_FIN | FLAG_ACK, b""),
    ]
    moved = [(way, sequence + 10**6, flags, data) for way, sequence, flags, data in one]
    packets = [ETHERNET + tcp_packet(record) for record in one + moved]
    path = file_of(tmp_path, pcap(packets, linktype=1))
    items = decoded(path)
    assert offsets(path) == [0, 1, 0, 1]
    assert [item["connection"] for item in items] == [1] * 4 + [2] * 4
    assert problems(items) == []


def test_other_connections_are_counted(tmp_path):
    web = [(True, 1, FLAG_ACK, b"GET / HTTP/1.1\r\n"), (False, 1, FLAG_ACK, b"HTTP/1.1 200\r\n")]
    packets = [bytearray(ETHERNET + tcp_packet(record)) for record in web]
    for packet in packets:
        packet[14 + 12] += 1
        packet[14 + 16] += 1
    mpa_packets = [ETHERNET + tcp_packet(record) for record in WHOLE]
    path = file_of(tmp_path, pcap([*map(bytes, packets), *mpa_packets], linktype=1))
    assert decode_file(path).others == 1
    assert printed(path)[-1] == "1 other TCP connection does not start with MPA"


@pytest.mark.parametrize("data", [b"", b"\0", b"PK\3\4" + bytes(50), bytes(100)])
def test_other_files_are_refused(tmp_path, data):
    path = file_of(tmp_path, data)
    with pytest.raises(CaptureError, match=r"is neither pcap nor pcapng: .") as caught:
        decode_file(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [1, 30, 60, 200, 2000])
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_a_cut_file_is_decoded_up_to_the_cut(tmp_path, kind, cut):
    whole = CAPTURE
    if kind == "pcapng":
        log = conversation(*[(TO_RESPONDER, fpdu[2:-4]) for fpdu in FPDUS] * 6)
        whole = written(tmp_path / "whole", log).read_bytes()
    found = decode_file(file_of(tmp_path, whole[:-cut]))
    assert re.search(r"is cut or broken after packet \d\d: a \w+ ", found.damage)
    assert found.items


def block(kind: int, body: bytes, order: str) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + length + body + length


def option(code: int, value: bytes, order: str) -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


@pytest.mark.parametrize("order", ["<", ">"])
def test_blocks_of_pcapng(tmp_path, order):
    section = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)
    binary = option(9, b"\x8a", order) + option(14, struct.pack(f"{order}q", 100), order)
    interfaces = block(1, struct.pack(f"{order}HHI", 101, 0, 0), order)
    interfaces += block(1, struct.pack(f"{order}HHI", 1, 0, 40) + binary, order)
    first = struct.pack(f"{order}IIIII", 1, 0, 3 << 9, 5, 70) + b"abcde"
    old = struct.pack(f"{order}HHIIII", 0, 0, 1, 0, 3, 3) + b"old"
    simple = struct.pack(f"{order}I", 6) + b"simple"
    unknown = block(0x0BAD, b"whatever", order)
    data = section + interfaces + block(6, first, order) + unknown + block(2, old, order)
    # A second section, in the other octet order, forgets the interfaces of the first.
    other = "<" if order == ">" else ">"
    data += block(0x0A0D0D0A, struct.pack(f"{other}IHHq", 0x1A2B3C4D, 1, 0, -1), other)
    data += block(1, struct.pack(f"{other}HHI", 113, 0, 4), other)
    data += block(3, struct.pack(f"{other}I", 6) + simple[4:8], other)
    packets = list(read_packets(file_of(tmp_path, data)))
    assert packets == [
        Packet(1, 101_500_000_000, 1, b"abcde", 70),
        Packet(2, 2**32 * 1000, 101, b"old", 3),
        Packet(3, 0, 113, b"simp", 6),
    ]


@pytest.mark.parametrize("path", sorted((DATA / "captures").rglob("*.pcap")), ids=lambda p: p.stem)
def test_scapy_reads_the_same_packets(path):
    with RawPcapReader(str(path)) as reader:
        theirs = [(octets, about.sec, about.usec, about.wirelen) for octets, about in reader]
    ours = [
        (packet.octets, *divmod(packet.time_ns // 1000, 10**6), packet.original)
        for packet in read_packets(path)
    ]
    assert ours == theirs


def test_scapy_reads_the_same_packets_of_a_pcapng(tmp_path):
    log = conversation(*[(TO_RESPONDER, fpdu[2:-4]) for fpdu in FPDUS])
    path = written(tmp_path / "x.pcapng", log)
    with RawPcapNgReader(str(path)) as reader:
        theirs = [
            (octets, (about.tshigh << 32 | about.tslow), about.wirelen, about.linktype)
            for octets, about in reader
        ]
    ours = [(p.octets, p.time_ns, p.original, p.linktype) for p in read_packets(path)]
    assert ours == theirs


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_broken_file_never_gives_more_than_one_error(tmp_path_factory, data):
    log = conversation(*[(TO_RESPONDER, fpdu[2:-4]) for fpdu in FPDUS])
    whole = written(tmp_path_factory.mktemp("x") / "x.pcapng", log).read_bytes()
    octets = bytearray(data.draw(st.sampled_from([CAPTURE, whole])))
    for _ in range(data.draw(st.integers(1, 20))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(octets)))
    path = file_of(tmp_path_factory.mktemp("x"), bytes(octets[:end]))
    try:
        decoded(path)
        printed(path)
    except CaptureError as error:
        assert "\n" not in str(error)
