"""RDMAP headers (RFC 5040, 4; RFC 7306, 5): control octet, opcodes, queue numbers, messages.

Wire fields as in `gateware/ddp/headers.py`: read them with `from_wire`, write them with `to_wire`.
"""

from amaranth import unsigned
from amaranth.lib import data, enum

from stagecoach.gateware.ddp.headers import CONTROL as CONTROL_OCTET
from stagecoach.gateware.ddp.headers import TAGGED_HEADER, UNTAGGED_HEADER, octets
from stagecoach.gateware.encodings import encoding
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS
from stagecoach.hw.interface import wire
from stagecoach.hw.interface.wire import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    ATOMIC_RESPONSE_HEADER_OCTETS,
    IMMEDIATE_DATA_OCTETS,
    READ_REQUEST_HEADER_OCTETS,
    TERMINATE_CONTROL_OCTETS,
    TERMINATE_LENGTH_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)

Opcode = encoding(
    "Opcode",
    wire.Opcode.__members__,
    unsigned(4),
    "RDMA Message opcodes (RFC 5040, Figure 4; RFC 7306, Figure 2).",
    enum.IntEnum,
)

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

TERMINATE_HEADER_OCTETS = (
    TERMINATE_CONTROL_OCTETS
    + TERMINATE_LENGTH_OCTETS
    + UNTAGGED_HEADER_OCTETS
    + READ_REQUEST_HEADER_OCTETS
)
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

ATOMIC_RESPONSE_HEADER = data.StructLayout({"identifier": octets(4), "original": octets(8)})
"""Atomic Response header (RFC 7306, 5.2.2)."""

READ_REQUEST_ULPDU = data.StructLayout({"ddp": UNTAGGED_HEADER, "rdmap": READ_REQUEST_HEADER})
"""A whole RDMA Read Request: untagged DDP header and Read Request header."""

ATOMIC_REQUEST_ULPDU = data.StructLayout({"ddp": UNTAGGED_HEADER, "rdmap": ATOMIC_REQUEST_HEADER})
"""A whole Atomic Request."""

ATOMIC_RESPONSE_ULPDU = data.StructLayout({"ddp": UNTAGGED_HEADER, "rdmap": ATOMIC_RESPONSE_HEADER})
"""A whole Atomic Response."""

TERMINATE_ULPDU = data.StructLayout(
    {
        "ddp": UNTAGGED_HEADER,
        "control": TERMINATE_CONTROL,
        "length": octets(TERMINATE_LENGTH_OCTETS),
        "ddp_control": CONTROL_OCTET,
        "rsvd_ulp": octets(5),
        "qn": octets(4),
        "msn": octets(4),
    }
)
"""A Terminate as far as the MSN of the terminated DDP header, if that is there and untagged."""

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
assert ATOMIC_REQUEST_HEADER.size == 8 * ATOMIC_REQUEST_HEADER_OCTETS
assert ATOMIC_RESPONSE_HEADER.size == 8 * ATOMIC_RESPONSE_HEADER_OCTETS
assert ULPDU_HEADER.size == 8 * ULPDU_HEADER_OCTETS
