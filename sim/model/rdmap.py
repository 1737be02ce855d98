"""RDMAP: opcodes, control octet, Read Request and Terminate headers (RFC 5040, 4)."""

import struct
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from stagecoach.sim.model import ddp
from stagecoach.sim.model.errors import NAMES, ErrorCode

__all__ = [
    "NAMES",
    "Control",
    "ErrorCode",
    "Form",
    "Opcode",
    "ReadRequest",
    "Terminate",
    "control_octet",
    "decode_control",
]

# RFC 5040, 4.1: the control octet, carried in RsvdULP[0:7] of DDP.
RDMAP_VERSION = 1
VERSION_SHIFT = 6
MASK_OPCODE = 0x0F
MASK_RESERVED = 0x30

# RFC 5040, Figure 5 and RFC 7306, Figure 3: untagged queues.
QN_SEND = 0
QN_READ_REQUEST = 1
QN_TERMINATE = 2
QN_ATOMIC_RESPONSE = 3


class Opcode(IntEnum):
    """RDMA Message opcodes (RFC 5040, Figure 4; RFC 7306, Figure 2)."""

    RDMA_WRITE = 0x0
    RDMA_READ_REQUEST = 0x1
    RDMA_READ_RESPONSE = 0x2
    SEND = 0x3
    SEND_WITH_INVALIDATE = 0x4
    SEND_WITH_SE = 0x5
    SEND_WITH_SE_AND_INVALIDATE = 0x6
    TERMINATE = 0x7
    IMMEDIATE_DATA = 0x8
    IMMEDIATE_DATA_WITH_SE = 0x9
    ATOMIC_REQUEST = 0xA
    ATOMIC_RESPONSE = 0xB


TAGGED_OPCODES = frozenset({Opcode.RDMA_WRITE, Opcode.RDMA_READ_RESPONSE})
SEND_OPCODES = frozenset(
    {
        Opcode.SEND,
        Opcode.SEND_WITH_INVALIDATE,
        Opcode.SEND_WITH_SE,
        Opcode.SEND_WITH_SE_AND_INVALIDATE,
    }
)
INVALIDATE_OPCODES = frozenset({Opcode.SEND_WITH_INVALIDATE, Opcode.SEND_WITH_SE_AND_INVALIDATE})
IMMEDIATE_OPCODES = frozenset({Opcode.IMMEDIATE_DATA, Opcode.IMMEDIATE_DATA_WITH_SE})
SOLICITED_OPCODES = frozenset(
    {
        Opcode.SEND_WITH_SE,
        Opcode.SEND_WITH_SE_AND_INVALIDATE,
        Opcode.IMMEDIATE_DATA_WITH_SE,
    }
)
# The queue that each untagged message uses.
QUEUE_OF = {
    Opcode.RDMA_READ_REQUEST: QN_READ_REQUEST,
    Opcode.SEND: QN_SEND,
    Opcode.SEND_WITH_INVALIDATE: QN_SEND,
    Opcode.SEND_WITH_SE: QN_SEND,
    Opcode.SEND_WITH_SE_AND_INVALIDATE: QN_SEND,
    Opcode.TERMINATE: QN_TERMINATE,
    Opcode.IMMEDIATE_DATA: QN_SEND,
    Opcode.IMMEDIATE_DATA_WITH_SE: QN_SEND,
    Opcode.ATOMIC_REQUEST: QN_READ_REQUEST,
    Opcode.ATOMIC_RESPONSE: QN_ATOMIC_RESPONSE,
}


@dataclass(frozen=True)
class Control:
    """The RDMAP control octet taken apart; ``opcode`` may be an unassigned number."""

    opcode: int
    version: int
    reserved: int


def control_octet(opcode: int, *, version: int = RDMAP_VERSION, reserved: int = 0) -> int:
    """The RDMAP control octet, 8 bits."""
    return version << VERSION_SHIFT | reserved | opcode


def decode_control(octet: int) -> Control:
    """The parts of a RDMAP control octet."""
    return Control(octet & MASK_OPCODE, octet >> VERSION_SHIFT, octet & MASK_RESERVED)


# RFC 5040, 4.4: SinkSTag, SinkTO, RDMARDSZ, SrcSTag, SrcTO.
_READ_REQUEST = struct.Struct(">IQIIQ")
READ_REQUEST_OCTETS = _READ_REQUEST.size


@dataclass(frozen=True)
class ReadRequest:
    """RDMA Read Request header (RFC 5040, 4.4)."""

    sink_stag: int
    sink_tagged_offset: int
    size: int
    source_stag: int
    source_tagged_offset: int

    def encode(self) -> bytes:
        return _READ_REQUEST.pack(
            self.sink_stag,
            self.sink_tagged_offset,
            self.size,
            self.source_stag,
            self.source_tagged_offset,
        )

    @classmethod
    def decode(cls, payload: bytes) -> "ReadRequest":
        if len(payload) != READ_REQUEST_OCTETS:
            raise ValueError(
                f"Read Request header of {len(payload)} bytes; {READ_REQUEST_OCTETS} are required"
            )
        return cls(*_READ_REQUEST.unpack(payload))

    def advanced(self, octets: int) -> "ReadRequest":
        """What is left of it after ``octets`` of its Read Response (RFC 5040, 4.8)."""
        return replace(
            self,
            sink_tagged_offset=(self.sink_tagged_offset + octets) % 2**64,
            size=self.size - octets,
            source_tagged_offset=(self.source_tagged_offset + octets) % 2**64,
        )


# RFC 5040, 4.8: Terminate header.
TERMINATE_CONTROL_OCTETS = 4
FLAG_SEGMENT_LENGTH = 0x80
FLAG_DDP_HEADER = 0x40
FLAG_RDMAP_HEADER = 0x20
_SIW_RESERVED = 0xF8  # of the octet with the flags, which siw has in reverse
_LENGTH_OCTETS = 2
# With all that it may copy: the longest DDP header and that of a Read Request.
TERMINATE_OCTETS = (
    TERMINATE_CONTROL_OCTETS + _LENGTH_OCTETS + ddp.UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS
)


class Form(Enum):
    """How the Terminate control field is laid out."""

    RFC = "RFC 5040, 4.8"
    # Measured: on little-endian hosts the fields of each octet stand in the reverse order.
    SIW = "Linux siw"


def _reversed_flags(flags: int) -> int:
    """M, D, R at 0x80, 0x40, 0x20 for those at 0x01, 0x02, 0x04, and the other way round."""
    return int(f"{flags:08b}"[::-1], 2)


@dataclass(frozen=True)
class Terminate:
    """Terminate header (RFC 5040, 4.8).

    ``segment_length`` is the ULPDU_Length of the offending segment, ``ddp_header`` the copy of
    its header (14 or 18 octets), ``rdmap_header`` that of a Read Request (28 octets).
    """

    error: ErrorCode
    segment_length: int | None = None
    ddp_header: bytes = b""
    rdmap_header: bytes = b""
    form: Form = Form.RFC

    def encode(self) -> bytes:
        flags = 0
        tail = b""
        if self.segment_length is not None:
            flags |= FLAG_SEGMENT_LENGTH
        if self.ddp_header:
            flags |= FLAG_DDP_HEADER
        if self.rdmap_header:
            flags |= FLAG_RDMAP_HEADER
        if self.segment_length is not None or self.ddp_header:
            tail = (self.segment_length or 0).to_bytes(_LENGTH_OCTETS, "big")
        high, low = self.error.layer, self.error.etype
        if self.form is Form.SIW:
            high, low, flags = low, high, _reversed_flags(flags)
        control = bytes([high << 4 | low, self.error.code, flags, 0])
        return control + tail + self.ddp_header + self.rdmap_header

    @classmethod
    def decode(cls, payload: bytes, form: Form = Form.RFC) -> "Terminate":
        """The header as ``form`` has it; ``terminate.readings`` finds out which form it is.

        Raises ``ValueError`` when its length is not what its HdrCt bits say. Linux siw may leave
        the Read Request header out although R says it is there.
        """
        if len(payload) < TERMINATE_CONTROL_OCTETS:
            raise ValueError(
                f"Terminate header of {len(payload)} bytes; {TERMINATE_CONTROL_OCTETS} or more "
                "are required"
            )
        layer, etype, flags = payload[0] >> 4, payload[0] & 0x0F, payload[2]
        if form is Form.SIW:
            if flags & _SIW_RESERVED or payload[3]:
                raise ValueError("reserved bits are set, which Linux siw does not do")
            layer, etype, flags = etype, layer, _reversed_flags(flags)
        length = None
        start = end = TERMINATE_CONTROL_OCTETS
        if flags & (FLAG_SEGMENT_LENGTH | FLAG_DDP_HEADER):
            start = end = end + _LENGTH_OCTETS
            length = int.from_bytes(payload[TERMINATE_CONTROL_OCTETS:start], "big")
        if flags & FLAG_DDP_HEADER:
            # Without its first octet the copy could be a tagged header at least.
            first = payload[start] if len(payload) > start else ddp.FLAG_TAGGED
            end += ddp.header_octets(first)
        needed = end + (READ_REQUEST_OCTETS if flags & FLAG_RDMAP_HEADER else 0)
        if len(payload) != needed and not (form is Form.SIW and len(payload) == end):
            raise ValueError(f"Terminate header of {len(payload)} bytes; {needed} are required")
        error = ErrorCode(layer, etype, payload[1])
        return cls(error, length, payload[start:end], payload[end:needed], form)
