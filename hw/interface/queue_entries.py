"""Queue entries in host memory: the one table from which gateware, driver and docs are made.

All entries are little endian. The offset of a field is the sum of the bytes before it. A send
entry takes one or two units of its ring (`send_units`), every other entry has a fixed size.
No Amaranth here.
"""

from enum import IntEnum, IntFlag
from typing import NamedTuple

from stagecoach.hw.interface.wire import IMMEDIATE_DATA_OCTETS, UNTAGGED_HEADER_OCTETS, Opcode


class Field(NamedTuple):
    """A field of `octets` bytes, and in words what is in it."""

    name: str
    octets: int
    about: str = ""


Fields = tuple[Field, ...]

SCATTER_GATHER_ELEMENT: Fields = (
    Field("tagged_offset", 8, "In the TO space of the region: base and position."),
    Field("length", 4, "Bytes."),
    Field("stag", 4, "Local STag."),
)
SCATTER_GATHER_ELEMENT_OCTETS = 16
SCATTER_GATHER_ELEMENTS = 4
"""Scatter/gather elements of a send or receive entry; unused ones are at the end, length 0."""

SEND_ENTRY: Fields = (
    Field("opcode", 1, "SendOpcode."),
    Field("flags", 1, "SendFlags."),
    Field("element_count", 1, "Used elements, 0 to 4."),
    Field("atomic_operation", 1, "AtomicOperation of an ATOMIC."),
    Field("length", 4, "Bytes of the message: the sum over the elements, 8 of Immediate Data."),
    Field(
        "remote_stag",
        4,
        "RDMA Write, RDMA Read, ATOMIC; the STag that a Send invalidates; that of a "
        "LOCAL_INVALIDATE; that which a FAST_REGISTER gives its region.",
    ),
    Field("reserved_1", 4),
    Field("remote_tagged_offset", 8, "RDMA Write, RDMA Read, ATOMIC, FAST_REGISTER."),
    Field("immediate_data", IMMEDIATE_DATA_OCTETS, "Of an IMMEDIATE: the bytes as they are sent."),
    Field(
        "elements",
        SCATTER_GATHER_ELEMENTS * SCATTER_GATHER_ELEMENT_OCTETS,
        "Scatter/gather elements; two are in the first unit.",
    ),
    Field("add_or_swap_data", 8, "ATOMIC, if the operation has it (RFC 7306, 5.2.1)."),
    Field("add_or_swap_mask", 8, "The same."),
    Field("compare_data", 8, "The same."),
    Field("compare_mask", 8, "The same."),
)
SEND_ENTRY_OCTETS = 128
SEND_UNIT_OCTETS = 64
"""What a send ring is made of; all numbers of the send queue count units.

An entry of two may begin in the last unit of the ring and end in the first. Its number is that of
its first unit, and one doorbell posts both.
"""
SEND_UNIT_ELEMENTS = 2
"""Elements in the first unit of a send entry."""

RECEIVE_ENTRY: Fields = (
    Field(
        "elements",
        SCATTER_GATHER_ELEMENTS * SCATTER_GATHER_ELEMENT_OCTETS,
        "Scatter/gather elements; unused ones have length 0.",
    ),
)
RECEIVE_ENTRY_OCTETS = 64

COMPLETION_ENTRY: Fields = (
    Field("qp", 2, "QP number."),
    Field("index", 2, "Which entry of the send or receive queue: its running number modulo 2^16."),
    Field("length", 4, "Bytes of the message, 8 of Immediate Data."),
    Field(
        "immediate_data",
        IMMEDIATE_DATA_OCTETS,
        "With CompletionFlags.IMMEDIATE: the bytes as they came.",
    ),
    Field("reserved_0", 8),
    Field("invalidated_stag", 4, "With CompletionFlags.INVALIDATED."),
    Field("opcode", 1, "CompletionOpcode."),
    Field("flags", 1, "CompletionFlags."),
    Field("reserved_2", 1),
    Field("phase", 1, "Bit 0: inverted every turn of the ring, 1 in the first turn."),
)
COMPLETION_ENTRY_OCTETS = 32

EVENT_HEADER_OCTETS = UNTAGGED_HEADER_OCTETS
"""Bytes of the offending ULPDU that an event carries: its DDP header. Of a received Terminate
the first bytes after its DDP header; the next two are in `index`."""

EVENT_ENTRY: Fields = (
    Field("qp", 2, "QP number, or the number of a shared receive ring."),
    Field(
        "index",
        2,
        "Running number modulo 2^16 of the work request at fault (local causes). Of a received "
        "Terminate its two bytes after those in `header`, the first one in bits 15 to 8: the end "
        "of the MSN or Tagged Offset in a DDP header that it carries.",
    ),
    Field("ulpdu_length", 2, "Of the offending segment, 0 if none."),
    Field("cause", 1, "Cause."),
    Field("srq", 1, "1 if the event is of a shared receive ring, 0 if it is of a QP."),
    Field("header", EVENT_HEADER_OCTETS, "First bytes of the offending ULPDU, as on the wire."),
    Field("reserved_1", 5),
    Field("phase", 1, "As in a completion entry."),
)
EVENT_ENTRY_OCTETS = 32


class SendOpcode(IntEnum):
    """Operation of a send entry; the value is the RDMAP opcode (RFC 5040, 4.3; RFC 7306, 4.1).

    Immediate Data has no elements: its bytes stand in the entry. An ATOMIC has one of 8 bytes,
    which gets the Original Remote Data Value in the byte order of host memory. The operations on
    local STags have values that are no RDMAP opcodes. A LOCAL_INVALIDATE has no elements. A
    FAST_REGISTER has one, which is not an element of a message: host address, length and, in place
    of the STag, `Rights` of the region; `remote_tagged_offset` is the TO of its first byte,
    `length` its length.
    """

    RDMA_WRITE = Opcode.RDMA_WRITE
    RDMA_READ = Opcode.RDMA_READ_REQUEST
    SEND = Opcode.SEND
    SEND_WITH_INVALIDATE = Opcode.SEND_WITH_INVALIDATE
    SEND_WITH_SE = Opcode.SEND_WITH_SE
    SEND_WITH_SE_AND_INVALIDATE = Opcode.SEND_WITH_SE_AND_INVALIDATE
    IMMEDIATE = Opcode.IMMEDIATE_DATA
    IMMEDIATE_WITH_SE = Opcode.IMMEDIATE_DATA_WITH_SE
    ATOMIC = Opcode.ATOMIC_REQUEST
    LOCAL_INVALIDATE = 0xC
    FAST_REGISTER = 0xD


def send_units(opcode: int, element_count: int) -> int:
    """Units that a send entry takes: a second one for more elements, or for operands."""
    return 2 if element_count > SEND_UNIT_ELEMENTS or opcode == SendOpcode.ATOMIC else 1


IMMEDIATE_OPERATIONS = (SendOpcode.IMMEDIATE, SendOpcode.IMMEDIATE_WITH_SE)

ANSWERED_OPERATIONS = (SendOpcode.RDMA_READ, SendOpcode.ATOMIC)
"""The operations that complete when the peer has answered; ORD counts them."""

STAG_OPERATIONS = (SendOpcode.LOCAL_INVALIDATE, SendOpcode.FAST_REGISTER)
"""The operations that send nothing."""


class AtomicOperation(IntEnum):
    """AOpCodes (RFC 7306, Figure 5); Swap is that of draft-ietf-storm-rdmap-ext-00."""

    FETCH_ADD = 0
    SWAP = 1
    CMP_SWAP = 2


class SendFlags(IntFlag):
    """Flags of a send entry."""

    SIGNALED = 1
    FENCE = 2  # begins when all before it in the queue have completed


class CompletionOpcode(IntEnum):
    """What a completion entry completes: a send entry, with its opcode, or a receive entry."""

    RDMA_WRITE = SendOpcode.RDMA_WRITE
    RDMA_READ = SendOpcode.RDMA_READ
    SEND = SendOpcode.SEND
    SEND_WITH_INVALIDATE = SendOpcode.SEND_WITH_INVALIDATE
    SEND_WITH_SE = SendOpcode.SEND_WITH_SE
    SEND_WITH_SE_AND_INVALIDATE = SendOpcode.SEND_WITH_SE_AND_INVALIDATE
    IMMEDIATE = SendOpcode.IMMEDIATE
    IMMEDIATE_WITH_SE = SendOpcode.IMMEDIATE_WITH_SE
    ATOMIC = SendOpcode.ATOMIC
    LOCAL_INVALIDATE = SendOpcode.LOCAL_INVALIDATE
    FAST_REGISTER = SendOpcode.FAST_REGISTER
    RECEIVE = 0x80


class CompletionFlags(IntFlag):
    """Flags of a completion entry."""

    SOLICITED = 1  # the peer asked for an event
    INVALIDATED = 2  # the peer invalidated an STag
    IMMEDIATE = 4  # a receive that Immediate Data consumed: nothing is in its elements


class Rights(IntFlag):
    """Access rights of a memory region (RFC 5042, 5.3)."""

    LOCAL_READ = 1
    LOCAL_WRITE = 2
    REMOTE_READ = 4
    REMOTE_WRITE = 8


def offset_of(fields: Fields, name: str) -> int:
    """Offset in bytes of field `name`; `KeyError` names an unknown field."""
    position = 0
    for field, octets, _ in fields:
        if field == name:
            return position
        position += octets
    raise KeyError(f"no field {name!r}; allowed: {[field.name for field in fields]}")


def size_of(fields: Fields) -> int:
    """Size in bytes of the whole entry."""
    return sum(field.octets for field in fields)


assert size_of(SEND_ENTRY) == SEND_ENTRY_OCTETS == 2 * SEND_UNIT_OCTETS
assert (
    offset_of(SEND_ENTRY, "elements") + SEND_UNIT_ELEMENTS * SCATTER_GATHER_ELEMENT_OCTETS
    == SEND_UNIT_OCTETS
)
assert size_of(RECEIVE_ENTRY) == RECEIVE_ENTRY_OCTETS
assert size_of(COMPLETION_ENTRY) == COMPLETION_ENTRY_OCTETS
assert size_of(EVENT_ENTRY) == EVENT_ENTRY_OCTETS
