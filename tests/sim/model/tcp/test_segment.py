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
from tests.sim.model.tcp.vectors import TCP_DATA, VECTORS, packet, vectors

requirement = pytest.mark.requirement
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


@requirement("CKS-1-01", "TCP-3.1-03", "IPV4-3.1-02")
@pytest.mark.parametrize("vector", vectors("checksum"))
def test_checksum(vector):
    octets = bytes.fromhex(vector["data_hex"])
    assert f"{ones_complement_sum(octets):04x}" == vector["sum"]
    assert f"{checksum(octets):04x}" == vector["checksum"]


@requirement("TCP-MUST-3")
def test_linux_may_send_the_other_zero():
    # A sum of all ones is zero as well; Linux leaves it in the checksum field.
    octets = packet("data-checksum-zero")
    assert octets[36:38] == b"\0\0"
    other = octets[:36] + b"\xff\xff" + octets[38:]
    assert decode_packet(other)[1] == decode_packet(octets)[1]


@requirement("CK-3-01")
@pytest.mark.parametrize("vector", vectors("incremental"))
def test_incremental_update(vector):
    words = (int(vector[key], 16) for key in ("old_checksum", "old_word", "new_word"))
    assert f"{update(*words):04x}" == vector["new_checksum"]


@requirement("TCP-MUST-3", "TCP-3.1-01", "IPV4-3.1-01", "IP-1122-3.2.1.2-01")
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


@requirement("TCP-MUST-2", "TCP-3.1-03")
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


@requirement("TCP-MUST-6", "TCP-MUST-64")
def test_options_are_found_at_each_alignment_and_unknown_ones_skipped():
    assert decode_packet(packet("syn-odd-alignment"))[1].options.mss == 1400
    assert decode_packet(packet("syn-unknown-options"))[1].options.mss == 1300
    linux = decode_packet(packet("syn-linux-options"))[1].options
    assert (linux.mss, linux.sack_permitted, linux.window_scale) == (1460, True, 10)


@requirement("TCP-MUST-7", "TCP-MUST-4", "TCP-MUST-68", "WS-2.3-03")
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


@requirement("TCP-MUST-3")
@given(SEGMENTS, st.data())
def test_one_wrong_bit_of_the_segment_is_found(segment, data):
    octets = bytearray(segment.encode(HOST_A, HOST_B))
    bit = data.draw(st.integers(0, len(octets) * 8 - 1))
    octets[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedError, match="TCP_CHECKSUM"):
        Segment.decode(bytes(octets), HOST_A, HOST_B)


@requirement("IP-1122-3.2.1.1-01", "TCP-MUST-57", "IPV4-3.1-01")
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


@requirement("WS-2.3-03")
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


@requirement("TCP-MUST-6", "TCP-MUST-68", "TCP-MUST-4")
@pytest.mark.parametrize("kind", [6, 7, 8, 19, 28, 34, 69, 253, 255])
def test_unknown_option_of_each_length_is_skipped(kind):
    for length in range(2, 37):
        octets = bytes((kind, length)) + bytes(length - 2) + bytes.fromhex("020405b4")
        assert Options.decode(octets) == Options(mss=1460)


@requirement("TCP-MUST-64", "TCP-MUST-4")
@pytest.mark.parametrize("start", range(36))
def test_option_may_start_at_any_byte(start):
    octets = b"\1" * start + bytes.fromhex("020405b4") + b"\1" * (36 - start)
    segment = Segment(1, 2, 3, flags=Flags.SYN).encode(HOST_A, HOST_B)
    segment = segment[:12] + b"\xf0" + segment[13:16] + b"\0\0" + segment[18:] + octets
    pseudo = HOST_A.packed + HOST_B.packed + (6).to_bytes(2, "big") + b"\0" + bytes((len(segment),))
    summed = segment[:16] + checksum(pseudo + segment).to_bytes(2, "big") + segment[18:]
    assert Segment.decode(summed, HOST_A, HOST_B).options == Options(mss=1460)


@requirement("WS-3.2-04", "TCP-MUST-5")
def test_timestamps_are_skipped():
    _, segment = decode_packet(packet("data-1448-timestamps"))
    assert (len(segment.payload), segment.options) == (1448, Options())


@requirement("TCP-MUST-69")
@given(OPTIONS)
def test_header_has_whole_words_and_no_end_of_options(options):
    octets = options.encode()
    assert len(octets) % 4 == 0
    assert Options.decode(octets + b"\1" * 4 + bytes.fromhex("02040001")).mss == 1


@requirement("TCP-3.1-02")
@pytest.mark.parametrize("reserved", range(1, 16))
def test_reserved_bits_are_ignored_and_sent_as_zero(reserved):
    octets = Segment(1, 2, 3, payload=b"x").encode(HOST_A, HOST_B)
    assert octets[12] & 15 == 0
    sum_ = update(int.from_bytes(octets[16:18], "big"), 0x5000, 0x5000 | reserved << 8)
    changed = octets[:12] + bytes((0x50 | reserved,)) + octets[13:16] + sum_.to_bytes(2, "big")
    taken = Segment.decode(changed + octets[18:], HOST_A, HOST_B)
    assert taken == Segment(1, 2, 3, payload=b"x")


@requirement("TCP-MUST-50", "IP-1122-3.2.1.8-01", "IPV4-3.1-01")
@pytest.mark.parametrize("words", range(1, 11))
@pytest.mark.parametrize("option", ["01", "00", "4404 0000", "0704 0000", "9404 0000", "ff02"])
def test_options_of_ipv4_are_skipped(words, option):
    options = bytes.fromhex(option).ljust(4 * words, b"\0")[: 4 * words]
    packet = encode_packet(Segment(1, 2, 3, payload=b"x"), HOST_A, HOST_B)
    total = len(packet) + len(options)
    header = bytes((0x45 + words, 0)) + total.to_bytes(2, "big") + packet[4:10] + bytes(2)
    header += packet[12:20] + options
    header = header[:10] + checksum(header).to_bytes(2, "big") + header[12:]
    assert decode_packet(header + packet[20:])[1] == Segment(1, 2, 3, payload=b"x")


@requirement("IPV4-3.1-03", "ID-4.3-01", "ID-4.1-01")
def test_each_packet_has_df_and_is_no_fragment():
    # So it is atomic (RFC 6864, 4.1), and its identification means nothing.
    for size in (0, 1, 1460, 8960):
        octets = encode_packet(Segment(1, 2, 3, payload=bytes(size)), HOST_A, HOST_B)
        assert octets[6:8] == bytes.fromhex("4000")


@requirement("IPV4-3.2-01", "IPV4-3.1-01")
@pytest.mark.parametrize("padding", range(7))
def test_packet_of_576_bytes_is_taken_and_padding_left_out(padding):
    octets = encode_packet(Segment(1, 2, 3, payload=bytes(536)), HOST_A, HOST_B)
    assert len(octets) == 576
    assert len(decode_packet(octets + b"\xff" * padding)[1].payload) == 536
