"""DDP: segment headers and segmentation (RFC 5041, 4 and 5)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from stagecoach.sim.model import checks

# RFC 5041, 4.1: the control octet.
FLAG_TAGGED = 0x80
FLAG_LAST = 0x40
MASK_RESERVED = 0x3C
MASK_VERSION = 0x03
DDP_VERSION = 1
TAGGED_HEADER_OCTETS = 14
UNTAGGED_HEADER_OCTETS = 18
# RFC 5041, 4.2: control, RsvdULP, STag, TO.
_TAGGED = struct.Struct(">BBIQ")
# RFC 5041, 4.3: control, RsvdULP (1 + 4 octets), QN, MSN, MO.
_UNTAGGED = struct.Struct(">BBIIII")
FIRST_MSN = 1


def _control(tagged: bool, last: bool, version: int, reserved: int) -> int:
    return (FLAG_TAGGED if tagged else 0) | (FLAG_LAST if last else 0) | reserved | version


@dataclass(frozen=True)
class TaggedHeader:
    """Tagged Buffer model header (RFC 5041, 4.2); ``rsvd_ulp`` has 8 bits."""

    stag: int
    tagged_offset: int
    last: bool = True
    rsvd_ulp: int = 0
    version: int = DDP_VERSION
    reserved: int = 0

    def encode(self) -> bytes:
        control = _control(True, self.last, self.version, self.reserved)
        return _TAGGED.pack(control, self.rsvd_ulp, self.stag, self.tagged_offset)


@dataclass(frozen=True)
class UntaggedHeader:
    """Untagged Buffer model header (RFC 5041, 4.3).

    The 40 bits of RsvdULP are given as the first 8 (``rsvd_ulp``) and the other 32
    (``rsvd_ulp_word``).
    """

    qn: int
    msn: int
    mo: int = 0
    last: bool = True
    rsvd_ulp: int = 0
    rsvd_ulp_word: int = 0
    version: int = DDP_VERSION
    reserved: int = 0

    def encode(self) -> bytes:
        control = _control(False, self.last, self.version, self.reserved)
        return _UNTAGGED.pack(
            control, self.rsvd_ulp, self.rsvd_ulp_word, self.qn, self.msn, self.mo
        )


Header = TaggedHeader | UntaggedHeader


def header_octets(control: int) -> int:
    """Length of the header which starts with the octet ``control``."""
    return TAGGED_HEADER_OCTETS if control & FLAG_TAGGED else UNTAGGED_HEADER_OCTETS


def decode(segment: bytes) -> tuple[Header, bytes]:
    """Header and payload of a DDP Segment (a ULPDU). The version is not checked here.

    A segment too short for its header is a length that MPA cannot have meant: 2/0/03.
    """
    if not segment or len(segment) < header_octets(segment[0]):
        raise checks.ULPDU_HAS_HEADER.failed(
            f"ULPDU of {len(segment)} bytes is shorter than its DDP header"
        )
    control = segment[0]
    last = bool(control & FLAG_LAST)
    version, reserved = control & MASK_VERSION, control & MASK_RESERVED
    header: Header
    if control & FLAG_TAGGED:
        _, rsvd_ulp, stag, tagged_offset = _TAGGED.unpack_from(segment)
        header = TaggedHeader(stag, tagged_offset, last, rsvd_ulp, version, reserved)
    else:
        _, rsvd_ulp, word, qn, msn, mo = _UNTAGGED.unpack_from(segment)
        header = UntaggedHeader(qn, msn, mo, last, rsvd_ulp, word, version, reserved)
    return header, segment[header_octets(control) :]


def _pieces(length: int, largest: int) -> Iterator[tuple[int, int, bool]]:
    """Offset, end and L of every segment; an empty message is one empty segment."""
    if largest < 1:
        raise ValueError(f"no room for payload in a segment ({largest} bytes); 1 or more needed")
    offset = 0
    while True:
        end = min(offset + largest, length)
        yield offset, end, end == length
        if end == length:
            return
        offset = end


def segment_tagged(
    payload: bytes | bytearray | memoryview,
    *,
    stag: int,
    tagged_offset: int,
    mulpdu: int,
    rsvd_ulp: int = 0,
) -> list[bytes]:
    """The segments of a tagged DDP Message, each at most ``mulpdu`` octets (RFC 5041, 5.2)."""
    segments = []
    for offset, end, last in _pieces(len(payload), mulpdu - TAGGED_HEADER_OCTETS):
        header = TaggedHeader(stag, (tagged_offset + offset) % 2**64, last, rsvd_ulp)
        segments.append(header.encode() + bytes(payload[offset:end]))
    return segments


def segment_untagged(
    payload: bytes | bytearray | memoryview,
    *,
    qn: int,
    msn: int,
    mulpdu: int,
    rsvd_ulp: int = 0,
    rsvd_ulp_word: int = 0,
) -> list[bytes]:
    """The segments of an untagged DDP Message, each at most ``mulpdu`` octets (RFC 5041, 5.2)."""
    segments = []
    for offset, end, last in _pieces(len(payload), mulpdu - UNTAGGED_HEADER_OCTETS):
        header = UntaggedHeader(qn, msn, offset, last, rsvd_ulp, rsvd_ulp_word)
        segments.append(header.encode() + bytes(payload[offset:end]))
    return segments
