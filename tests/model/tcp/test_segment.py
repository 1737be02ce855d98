"""Codec of IPv4 and TCP, held to vectors of another program and to captures of Linux."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.sim.capture.file import read_packets
from stagecoach.sim.model.tcp.checksum import checksum, ones_complement_sum, update
from stagecoach.sim.model.tcp.ipv4 import Packet
from stagecoach.sim.model.tcp.malformed import MalformedError, Reason
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from tests.model.tcp.vectors import TCP_DATA, VECTORS, packet, vectors

REFUSED = {
    "bad-tcp-checksum-field": Reason.TCP_CHECKSUM,
    "bad-tcp-data": Reason.TCP_CHECKSUM,
    "bad-tcp-port": Reason.TCP_CHECKSUM,
    "bad-ip-checksum": Reason.IP_CHECKSUM,
    "bad-ip-source": Reason.IP_CHECKSUM,
    "bad-data-offset-4": Reason.TCP_DATA_OFFSET,
    "bad-data-offset-15": Reason.TCP_DATA_OFFSET,
    "bad-total-length": Reason.IP_TOTAL_LENGTH,
    "martian-source": Reason.IP_SOURCE,
    "frag-0": Reason.IP_FRAGMENT,
    "tcp-tiny-fragment": Reason.IP_FRAGMENT,
}
# Frames in the layout that the model itself sends: MSS, SACK-permitted, window scale; SACK.
LAYOUTS = ("syn-mss-only", "syn-no-options", "synack-mss-ws", "ack-third", "data-1", "data-1460")
LAYOUTS += ("data-seq-wraps", "data-checksum-zero", "dup-ack", "sack-1-blocks", "sack-2-blocks")
LAYOUTS += ("sack-3-blocks", "sack-4-blocks", "dsack", "fin-ack", "rst", "rst-ack", "urg")
HOST_A, HOST_B = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
_ROUTED = bytes.fromhex("46000018 00000000 40060000 c0000201 c0000202 83040000")
SOURCE_ROUTE = _ROUTED[:10] + checksum(_ROUTED).to_bytes(2, "big") + _ROUTED[12:]
BROADCAST = IPv4Address("255.255.255.255")
SEQUENCE = st.integers(0, 0xFFFF_FFFF)
OPTIONS = st.builds(
    Options,
    mss=st.none() | st.integers(0, 0xFFFF),
    window_scale=st.none() | st.integers(0, 14),
    sack_permitted=st.booleans(),
    sack=st.lists(st.tuples(SEQUENCE, SEQUENCE), max_size=3).map(tuple),
)
SEGMENTS = st.builds(
    Segment,
    st.integers(1, 0xFFFF),
    st.integers(1, 0xFFFF),
    SEQUENCE,
    SEQUENCE,
    st.integers(0, 255).map(Flags),
    st.integers(0, 0xFFFF),
    st.binary(max_size=40),
    OPTIONS,
    st.integers(0, 0xFFFF),
)


@pytest.mark.parametrize("vector", vectors("checksum"))
def test_checksum(vector):
    octets = bytes.fromhex(vector["data_hex"])
    assert f"{ones_complement_sum(octets):04x}" == vector["sum"]
    assert f"{checksum(octets):04x}" == vector["checksum"]


@pytest.mark.parametrize("vector", vectors("incremental"))
def test_incremental_update(vector):
    words = (int(vector[key], 16) for key in ("old_checksum", "old_word", "new_word"))
    assert f"{update(*words):04x}" == vector["new_checksum"]


@pytest.mark.parametrize("vector", vectors("frames"))
def test_frames_of_scapy_are_taken_or_refused_by_name(vector):
    octets = bytes.fromhex(vector["frame_hex"])[14:]
    if vector["name"] in REFUSED:
        with pytest.raises(MalformedError, match=REFUSED[vector["name"]].name) as caught:
            decode_packet(octets)
        assert caught.value.reason is REFUSED[vector["name"]]
    else:
        decode_packet(octets)


def test_each_refused_frame_is_a_vector():
    assert set(REFUSED) <= {vector["name"] for vector in VECTORS["frames"]}


@pytest.mark.parametrize("name", LAYOUTS)
def test_segment_is_encoded_as_scapy_encodes_it(name):
    found, segment = decode_packet(packet(name))
    assert segment.encode(found.source, found.destination) == found.payload
    assert Packet.decode(found.encode()) == found


def test_first_frame_field_by_field():
    found, segment = decode_packet(packet("syn-mss-only"))
    assert (found.source, found.destination) == (HOST_A, HOST_B)
    assert segment == Segment(40000, 4420, 0x1000, 0, Flags.SYN, 0xFFFF, options=Options(mss=1460))
    assert encode_packet(segment, HOST_A, HOST_B)[20:] == packet("syn-mss-only")[20:]


def test_options_are_found_at_each_alignment_and_unknown_ones_skipped():
    assert decode_packet(packet("syn-odd-alignment"))[1].options.mss == 1400
    assert decode_packet(packet("syn-unknown-options"))[1].options.mss == 1300
    linux = decode_packet(packet("syn-linux-options"))[1].options
    assert (linux.mss, linux.sack_permitted, linux.window_scale) == (1460, True, 10)


@pytest.mark.parametrize(
    ("octets", "options"),
    [
        ("02000000", Options(malformed=True)),
        ("020405b4 0501", Options(mss=1460, malformed=True)),
        ("020405b4 03", Options(mss=1460, malformed=True)),
        ("020405b4 0309", Options(mss=1460, malformed=True)),
        ("0203 05 020405b4", Options(mss=1460)),
        ("0506 00000001 020405b4", Options(mss=1460)),
        ("00 020405b4", Options()),
        ("03030f", Options(window_scale=14)),
        ("02040001 02040002", Options(mss=2)),
    ],
)
def test_illegal_lengths_end_the_options_and_wrong_ones_are_skipped(octets, options):
    assert Options.decode(bytes.fromhex(octets)) == options


@pytest.mark.parametrize("path", sorted(TCP_DATA.glob("*.pcap")), ids=lambda path: path.stem)
def test_each_tcp_packet_of_linux_is_taken(path):
    taken = 0
    for captured in read_packets(path):
        if captured.octets[12:14] != b"\x08\x00" or captured.octets[23] != 6:
            continue
        found, segment = decode_packet(captured.octets[14:])
        assert Packet.decode(found.encode()) == found
        assert segment.payload == found.payload[(found.payload[12] >> 4) * 4 :]
        taken += 1
    assert taken > 5


@given(SEGMENTS)
def test_what_is_encoded_is_decoded(segment):
    assert decode_packet(encode_packet(segment, HOST_A, HOST_B))[1] == segment


@given(SEGMENTS, st.data())
def test_one_wrong_bit_of_the_segment_is_found(segment, data):
    octets = bytearray(segment.encode(HOST_A, HOST_B))
    bit = data.draw(st.integers(0, len(octets) * 8 - 1))
    octets[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedError, match="TCP_CHECKSUM"):
        Segment.decode(bytes(octets), HOST_A, HOST_B)


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"\x45" * 19, Reason.IP_SHORT),
        (b"\x65" + bytes(19), Reason.IP_VERSION),
        (b"\x44" + bytes(19), Reason.IP_HEADER_LENGTH),
        (b"\x46" + bytes(19), Reason.IP_HEADER_LENGTH),
        (Packet(HOST_A, HOST_B, b"", protocol=17).encode(), Reason.IP_PROTOCOL),
        (Packet(HOST_A, HOST_B, bytes(19)).encode(), Reason.TCP_SHORT),
        (encode_packet(Segment(1, 1, 0), HOST_A, IPv4Address("224.0.0.1")), Reason.IP_DESTINATION),
        (encode_packet(Segment(1, 1, 0), HOST_A, BROADCAST), Reason.IP_DESTINATION),
        (SOURCE_ROUTE, Reason.IP_SOURCE_ROUTE),
        (encode_packet(Segment(0, 1, 0), HOST_A, HOST_B), Reason.TCP_PORT),
        (encode_packet(Segment(1, 0, 0), HOST_A, HOST_B), Reason.TCP_PORT),
    ],
)
def test_malformed_headers_are_refused_by_name(octets, reason):
    with pytest.raises(MalformedError, match=reason.name) as caught:
        decode_packet(octets)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (Options(mss=65536), "MSS 65536"),
        (Options(window_scale=15), "window scale 15"),
        (Options(sack=((0, 1),) * 5), "5 SACK blocks"),
        (Options(mss=1, window_scale=0, sack=((0, 1),) * 4), "bytes of options"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        options.encode()
