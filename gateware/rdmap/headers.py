"""RDMAP headers (RFC 5040, 4; RFC 7306, 5): control octet, opcodes, queue numbers, messages.

Wire fields as in `gateware/ddp/headers.py`: read them with `from_wire`, write them with `to_wire`.
"""

from amaranth import unsigned
from amaranth.lib import data, enum

from stagecoach.gateware.ddp.headers import CONTROL as CONTROL_OCTET
from stagecoach.gateware.ddp.headers import TAGGED_HEADER, UNTAGGED_HEADER, octets
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS
from stagecoach.hw.interface.queue_entries import IMMEDIATE_DATA_OCTETS

RDMAP_VERSION = 1
"""The only RV that is sent and accepted (RFC 5040, 4.1; RFC 5044, C.2)."""


class Opcode(enum.IntEnum, shape=unsigned(4)):
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


QN_SEND = 0
"""Queue of the Send messages (RFC 5040, Figure 5)."""

QN_READ_REQUEST = 1
"""Queue of RDMA Read Requests (RFC 5040, Figure 5) and Atomic Requests (RFC 7306, Figure 3)."""

QN_TERMINATE = 2
"""Queue of the Terminate message (RFC 5040, Figure 5)."""

QN_ATOMIC_RESPONSE = 3
"""Queue of Atomic Responses (RFC 7306, Figure 3)."""

CONTROL = data.StructLayout({"opcode": 4, "reserved": 2, "version": 2})
"""The RDMAP control octet (RFC 5040, 4.1), in RsvdULP[0:7] of DDP."""

READ_REQUEST_HEADER = data.StructLayout(
    {
        "sink_stag": octets(4),
        "sink_tagged_offset": octets(8),
        "length": octets(4),  # RDMARDSZ
        "source_stag": octets(4),
        "source_tagged_offset": octets(8),
    }
)
"""RDMA Read Request header (RFC 5040, 4.4)."""

READ_REQUEST_HEADER_OCTETS = 28

TERMINATE_CONTROL = data.StructLayout(
    {
        "error_type": 4,
        "layer": 4,
        "error_code": 8,
        "reserved_0": 5,
        "read_request_header": 1,  # R: the terminated RDMA Read Request header is there
        "ddp_header": 1,  # D: the terminated DDP header is there
        "length": 1,  # M: the DDP Segment Length is there
        "reserved_1": 8,
    }
)
"""Terminate Control Field (RFC 5040, 4.8)."""

TERMINATE_CONTROL_OCTETS = 4
TERMINATE_CONTROL_AS_SIW = data.StructLayout(
    {
        "layer": 4,
        "error_type": 4,
        "error_code": 8,
        "length": 1,
        "ddp_header": 1,
        "read_request_header": 1,
        "reserved": 13,
    }
)
"""The same as Linux siw sends it on little-endian hosts (tables.md, 10)."""
TERMINATE_LENGTH_OCTETS = 2
"""DDP Segment Length (RFC 5040, 4.8)."""

TERMINATE_HEADER_OCTETS = 52
"""Longest Terminate header: with DDP Segment Length, untagged DDP and Read Request header."""

ATOMIC_REQUEST_HEADER = data.StructLayout(
    {
        "reserved": octets(3),
        "operation": 4,  # AOpCode
        "reserved_3": 4,
        "identifier": octets(4),
        "stag": octets(4),
        "tagged_offset": octets(8),
        "data": octets(8),  # Add or Swap Data
        "mask": octets(8),  # Add or Swap Mask
        "compare": octets(8),  # Compare Data
        "compare_mask": octets(8),
    }
)
"""Atomic Request header (RFC 7306, 5.2.1)."""

ATOMIC_REQUEST_HEADER_OCTETS = 52

ATOMIC_RESPONSE_HEADER = data.StructLayout({"identifier": octets(4), "original": octets(8)})
"""Atomic Response header (RFC 7306, 5.2.2)."""

ATOMIC_RESPONSE_HEADER_OCTETS = 12

READ_REQUEST_ULPDU = data.StructLayout({"ddp": UNTAGGED_HEADER, "rdmap": READ_REQUEST_HEADER})
"""A whole RDMA Read Request: untagged DDP header and Read Request header."""

READ_REQUEST_ULPDU_OCTETS = 46

ATOMIC_REQUEST_ULPDU = data.StructLayout({"ddp": UNTAGGED_HEADER, "rdmap": ATOMIC_REQUEST_HEADER})
"""A whole Atomic Request."""

ATOMIC_REQUEST_ULPDU_OCTETS = 70

ATOMIC_RESPONSE_ULPDU = data.StructLayout({"ddp": UNTAGGED_HEADER, "rdmap": ATOMIC_RESPONSE_HEADER})
"""A whole Atomic Response."""

TERMINATE_ULPDU = data.StructLayout(
    {
        "ddp": UNTAGGED_HEADER,
        "control": TERMINATE_CONTROL,
        "length": octets(TERMINATE_LENGTH_OCTETS),
        "ddp_control": CONTROL_OCTET,
    }
)
"""A Terminate as far as the first octet of the terminated DDP header, if that is there."""

IMMEDIATE_ULPDU = data.StructLayout(
    {"ddp": UNTAGGED_HEADER, "immediate_data": 8 * IMMEDIATE_DATA_OCTETS}
)
"""A whole Immediate Data (RFC 7306, 6.2); its octets are opaque, octet i in bits [8i+7:8i]."""

ULPDU_HEADER = data.UnionLayout(
    {
        "tagged": TAGGED_HEADER,
        "untagged": UNTAGGED_HEADER,
        "read_request": READ_REQUEST_ULPDU,
        "atomic_request": ATOMIC_REQUEST_ULPDU,
        "atomic_response": ATOMIC_RESPONSE_ULPDU,
        "terminate": TERMINATE_ULPDU,
        "immediate": IMMEDIATE_ULPDU,
    }
)
"""The header of any ULPDU; T of the control octet, which all share, tells which it is."""

assert TERMINATE_CONTROL.size == TERMINATE_CONTROL_AS_SIW.size == 8 * TERMINATE_CONTROL_OCTETS
assert READ_REQUEST_HEADER.size == 8 * READ_REQUEST_HEADER_OCTETS
assert READ_REQUEST_ULPDU.size == 8 * READ_REQUEST_ULPDU_OCTETS
assert ATOMIC_REQUEST_ULPDU.size == 8 * ATOMIC_REQUEST_ULPDU_OCTETS
assert ATOMIC_RESPONSE_HEADER.size == 8 * ATOMIC_RESPONSE_HEADER_OCTETS
assert ULPDU_HEADER.size == 8 * ULPDU_HEADER_OCTETS
