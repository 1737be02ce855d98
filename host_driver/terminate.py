"""A Terminate of the peer: which error it names, about which segment (RFC 5040, 4.8)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from stagecoach.hw.interface.causes import TerminateCode
from stagecoach.hw.interface.wire import (
    READ_REQUEST_HEADER_OCTETS,
    TAGGED_HEADER_OCTETS,
    TERMINATE_CONTROL_OCTETS,
    TERMINATE_LENGTH_OCTETS,
    UNTAGGED_HEADER_OCTETS,
    Opcode,
)

# RFC 5041, 4.1 to 4.3
_FLAG_TAGGED = 0x80
_FLAG_LAST = 0x40

# RFC 5040, 4.1 and 4.8
_MASK_OPCODE = 0x0F
_FLAG_LENGTH, _FLAG_DDP_HEADER, _FLAG_READ_REQUEST = 0x80, 0x40, 0x20
_SIW_RESERVED = 0xF8  # in its octet order; RFC 5040 has reserved bits ignored, siw sets none

_MESSAGES: dict[int, str] = {
    Opcode.RDMA_WRITE: "RDMA Write",
    Opcode.RDMA_READ_REQUEST: "RDMA Read Request",
    Opcode.RDMA_READ_RESPONSE: "RDMA Read Response",
    Opcode.SEND: "Send",
    Opcode.SEND_WITH_INVALIDATE: "Send with Invalidate",
    Opcode.SEND_WITH_SE: "Send with SE",
    Opcode.SEND_WITH_SE_AND_INVALIDATE: "Send with SE and Invalidate",
    Opcode.TERMINATE: "Terminate",
    Opcode.IMMEDIATE_DATA: "Immediate Data",
    Opcode.IMMEDIATE_DATA_WITH_SE: "Immediate Data with SE",
    Opcode.ATOMIC_REQUEST: "Atomic Request",
    Opcode.ATOMIC_RESPONSE: "Atomic Response",
}
"""Names of the opcodes (RFC 5040, Figure 4; RFC 7306, Figure 2)."""
_INVALIDATING = (Opcode.SEND_WITH_INVALIDATE, Opcode.SEND_WITH_SE_AND_INVALIDATE)

_LAYERS = {0: "RDMAP", 1: "DDP", 2: "MPA"}
_LAYER_LLP = 2
_ERROR_TYPES = {
    (0, 0): "local catastrophic error",
    (0, 1): "remote protection error",
    (0, 2): "remote operation error",
    (1, 0): "local catastrophic error",
    (1, 1): "tagged buffer error",
    (1, 2): "untagged buffer error",
}
_ERRORS = {
    (0, 1): {
        0x00: "invalid STag",
        0x01: "base or bounds violation",
        0x02: "access rights violation",
        0x03: "STag not associated with RDMAP Stream",
        0x04: "TO wrap",
        0x09: "STag cannot be invalidated",
        0xFF: "unspecified error",
    },
    (0, 2): {
        0x05: "invalid RDMAP version",
        0x06: "unexpected opcode",
        0x07: "catastrophic error, localized to RDMAP Stream",
        0x08: "catastrophic error, global",
        0x09: "STag cannot be invalidated",
        0xFF: "unspecified error",
    },
    (1, 0): {0x00: "local catastrophic error"},
    (1, 1): {
        0x00: "invalid STag",
        0x01: "base or bounds violation",
        0x02: "STag not associated with DDP Stream",
        0x03: "TO wrap",
        0x04: "invalid DDP version",
    },
    (1, 2): {
        0x01: "invalid QN",
        0x02: "invalid MSN, no buffer available",
        0x03: "invalid MSN, MSN range is not valid",
        0x04: "invalid MO",
        0x05: "DDP Message too long for available buffer",
        0x06: "invalid DDP version",
    },
    (2, 0): {
        0x01: "TCP connection closed, terminated or lost",
        0x02: "CRC does not match",
        0x03: "Marker and ULPDU_Length do not agree",
        0x04: "invalid MPA Request or Reply frame",
        0x05: "local catastrophic error at startup",
        0x06: "insufficient IRD resources",
        0x07: "no matching RTR option",
    },
}
"""RFC 5040, Figure 9; RFC 5041, 7.2; RFC 5044, 8; RFC 6581, 8."""

# RFC 5044, 8 gives no error type: RFC 6580 says 0, some hardware sends the 3 that RFC 5041 keeps
# free for the LLP.
_LLP_TYPES = (0, 3)


class OctetOrder(Enum):
    """How the Terminate control field is laid out."""

    RFC = "RFC 5040"
    SIW = "Linux siw"  # on little-endian hosts the fields of a byte stand in the reverse order


@dataclass(frozen=True)
class SegmentHeader:
    """The DDP header of a segment, as far as its bytes are known; what is not there is `None`.

    Attributes
    ----------
    octets: as on the wire, perhaps the first ones only.

    >>> SegmentHeader(bytes.fromhex("c140123456780000000000001000")).describe()
    'RDMA Write, STag 0x12345678, TO 0x1000'
    """

    octets: bytes

    def _number(self, tagged: bool, start: int, end: int) -> int | None:
        if self.tagged is not tagged or len(self.octets) < end:
            return None
        return int.from_bytes(self.octets[start:end], "big")

    @property
    def tagged(self) -> bool | None:
        """Whether it goes to a Tagged Buffer."""
        return bool(self.octets[0] & _FLAG_TAGGED) if self.octets else None

    @property
    def last(self) -> bool | None:
        """Whether it is the last segment of its message."""
        return bool(self.octets[0] & _FLAG_LAST) if self.octets else None

    @property
    def opcode(self) -> int | None:
        """The RDMAP opcode."""
        return self.octets[1] & _MASK_OPCODE if len(self.octets) > 1 else None

    @property
    def stag(self) -> int | None:
        """STag, of a tagged segment."""
        return self._number(True, 2, 6)

    @property
    def tagged_offset(self) -> int | None:
        """Tagged Offset, of a tagged segment."""
        return self._number(True, 6, 14)

    @property
    def invalidate_stag(self) -> int | None:
        """STag that a Send with Invalidate is to invalidate."""
        return self._number(False, 2, 6) if self.opcode in _INVALIDATING else None

    @property
    def qn(self) -> int | None:
        """Queue Number, of an untagged segment."""
        return self._number(False, 6, 10)

    @property
    def msn(self) -> int | None:
        """Message Sequence Number, of an untagged segment."""
        return self._number(False, 10, 14)

    @property
    def mo(self) -> int | None:
        """Message Offset, of an untagged segment."""
        return self._number(False, 14, 18)

    def describe(self) -> str:
        """The message and where the segment wants to go."""
        if self.opcode is None:
            return "a segment without header"
        return ", ".join([_MESSAGES.get(self.opcode, f"opcode {self.opcode:#x}"), *self._places()])

    def _places(self) -> Iterator[str]:
        if self.stag is not None:
            yield f"STag 0x{self.stag:08x}"
        if self.tagged_offset is not None:
            yield f"TO {self.tagged_offset:#x}"
        if self.invalidate_stag is not None:
            yield f"Invalidate STag 0x{self.invalidate_stag:08x}"
        for name, value in (("QN", self.qn), ("MSN", self.msn), ("MO", self.mo)):
            if value is not None:
                yield f"{name} {value}"
        if self.last is False:
            yield "more to come"


@dataclass(frozen=True)
class Terminate:
    """What the Terminate says.

    Attributes
    ----------
    layer, error_type, error_code: which error the peer found.
    has_length, has_header, has_read_request: M, D, R. Linux siw may set R without a header.
    segment_length: ULPDU_Length of the segment in error; `None` if not there. Linux siw has that of
        the payload only.
    segment: its DDP header, `None` if not there.
    order: of the bytes in which the peer sent it.
    """

    layer: int
    error_type: int
    error_code: int
    has_length: bool
    has_header: bool
    has_read_request: bool
    segment_length: int | None
    segment: SegmentHeader | None
    order: OctetOrder = OctetOrder.RFC

    @property
    def code(self) -> TerminateCode:
        """The three numbers."""
        return TerminateCode(self.layer, self.error_type, self.error_code)

    @property
    def name(self) -> str | None:
        """Name of the error; `None` if no document gives it a meaning."""
        if self.layer == 0 and self.error_type == 0:
            return "local catastrophic error"  # whatever the code (RFC 5040, Figure 9)
        error_type = self.error_type
        if self.layer == _LAYER_LLP and error_type in _LLP_TYPES:
            error_type = 0
        return _ERRORS.get((self.layer, error_type), {}).get(self.error_code)

    def describe(self) -> str:
        """What the peer complains about, in one line."""
        where = _LAYERS.get(self.layer, f"layer {self.layer}")
        kind = _ERROR_TYPES.get((self.layer, self.error_type))
        name = self.name or "undefined error"
        if kind is not None and kind != name:
            where += f" ({kind})"
        text = f"{where}: {name} ({describe_code(self.code)})"
        if self.segment_length is not None:
            unit = "bytes of payload" if self.order is OctetOrder.SIW else "bytes"
            text += f"; about a segment of {self.segment_length} {unit}"
        if self.segment is not None:
            text += f": {self.segment.describe()}"
        if self.order is OctetOrder.SIW:
            text += "; in the octet order of Linux siw"
        return text


def describe_code(code: TerminateCode) -> str:
    """The numbers of a Terminate."""
    return f"layer {code.layer}, type {code.error_type}, code 0x{code.error_code:02X}"


def readings(octets: bytes, length: int) -> list[Terminate]:
    """What a Terminate header can mean, the likeliest first.

    The two byte orders are told apart by the length, which has to fit M, D and R, by the reserved
    bits, of which siw sets none, and by codes that only one of them gives a meaning. Where both
    have one, which takes a Terminate without headers, RFC 5040 wins: also 2/0/05 to 2/0/07, which
    either end may send, at any time (RFC 6581, 9.3), though they look like 0/2/05 to 0/2/07 of siw.

    Parameters
    ----------
    octets: its first bytes. length: bytes of the whole Terminate header.

    Raises `ValueError` if the length fits neither order, or too few bytes are given to tell.
    """
    fitting = []
    problems = []
    for order in OctetOrder:
        try:
            fitting.append(_decode(octets, length, order))
        except ValueError as problem:
            problems.append(problem)
    if not fitting:
        raise problems[0]

    return sorted(fitting, key=lambda reading: reading.name is None)


def read_terminate(octets: bytes, length: int) -> Terminate:
    """The likeliest of `readings`."""
    return readings(octets, length)[0]


def _decode(octets: bytes, length: int, order: OctetOrder) -> Terminate:
    if length < TERMINATE_CONTROL_OCTETS:
        raise ValueError(f"Terminate header of {length} bytes; allowed: 4 or more")
    if len(octets) < TERMINATE_CONTROL_OCTETS:
        raise ValueError(f"{len(octets)} bytes of a Terminate header; needed: 4 or more")
    layer, error_type, flags = octets[0] >> 4, octets[0] & 0x0F, octets[2]
    if order is OctetOrder.SIW:
        if flags & _SIW_RESERVED or octets[3]:
            raise ValueError(f"{order.value} with reserved bits: {octets[:4].hex()}; allowed: none")
        layer, error_type, flags = error_type, layer, int(f"{flags:08b}"[::-1], 2)
    has_header = bool(flags & _FLAG_DDP_HEADER)
    start = end = TERMINATE_CONTROL_OCTETS
    segment_length = None
    if flags & (_FLAG_LENGTH | _FLAG_DDP_HEADER):
        start = end = end + TERMINATE_LENGTH_OCTETS
        segment_length = int.from_bytes(octets[TERMINATE_CONTROL_OCTETS:start], "big")
    if has_header:
        if len(octets) <= start < length:
            raise ValueError(f"{len(octets)} bytes of a Terminate header; needed: {start + 1}")
        # Of a header that is missing, at least the shorter kind is.
        tagged = len(octets) <= start or octets[start] & _FLAG_TAGGED
        end += TAGGED_HEADER_OCTETS if tagged else UNTAGGED_HEADER_OCTETS
    needed = end + (READ_REQUEST_HEADER_OCTETS if flags & _FLAG_READ_REQUEST else 0)
    if length != needed and not (order is OctetOrder.SIW and length == end):
        raise ValueError(f"Terminate header of {length} bytes; M, D and R ask for {needed}")
    return Terminate(
        layer,
        error_type,
        octets[1],
        has_length=bool(flags & _FLAG_LENGTH),
        has_header=has_header,
        has_read_request=bool(flags & _FLAG_READ_REQUEST),
        segment_length=segment_length,
        segment=SegmentHeader(octets[start:end]) if has_header else None,
        order=order,
    )
