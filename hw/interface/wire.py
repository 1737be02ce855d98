"""Numbers of the wire that gateware and driver share: MPA, DDP and RDMAP.

The reference model (`sim/model`) has its own, written from the RFCs.
"""

from enum import IntEnum

ULPDU_LENGTH_OCTETS = 2
"""The field before a ULPDU (RFC 5044, 4.1)."""

FPDU_CRC_OCTETS = 4
"""The field after a ULPDU and its pad (RFC 5044, 4.1)."""

CRC32C_POLYNOMIAL = 0x82F63B78
"""0x11EDC6F41 with its bits reflected, without the highest one (RFC 3720, 12.1)."""

DDP_VERSION = 1
"""The only valid DV (RFC 5041, 4.1)."""

TAGGED_HEADER_OCTETS = 14
"""Length of the tagged header (RFC 5041, 4.2)."""

UNTAGGED_HEADER_OCTETS = 18
"""Length of the untagged header (RFC 5041, 4.3)."""

FIRST_MSN = 1
"""MSN of the first message of a stream on every queue (RFC 5041, 4.3)."""

RDMAP_VERSION = 1
"""The only RV that is sent and accepted (RFC 5040, 4.1; RFC 5044, C.2)."""


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


QN_SEND = 0
"""Queue of the Send messages (RFC 5040, Figure 5)."""

QN_READ_REQUEST = 1
"""Queue of RDMA Read Requests (RFC 5040, Figure 5) and Atomic Requests (RFC 7306, Figure 3)."""

QN_TERMINATE = 2
"""Queue of the Terminate message (RFC 5040, Figure 5)."""

QN_ATOMIC_RESPONSE = 3
"""Queue of Atomic Responses (RFC 7306, Figure 3)."""

READ_REQUEST_HEADER_OCTETS = 28
"""After the DDP header (RFC 5040, 4.4)."""

ATOMIC_REQUEST_HEADER_OCTETS = 52
"""After the DDP header (RFC 7306, 5.2.1)."""

ATOMIC_RESPONSE_HEADER_OCTETS = 12
"""After the DDP header (RFC 7306, 5.2.2)."""

IMMEDIATE_DATA_OCTETS = 8
"""Immediate Data is eight octets, no more and no less (RFC 7306, 6.2)."""

ATOMIC_OCTETS = 8
"""What an atomic reads and changes (RFC 7306, 5.1)."""

TERMINATE_CONTROL_OCTETS = 4
"""Terminate Control Field (RFC 5040, 4.8)."""

TERMINATE_LENGTH_OCTETS = 2
"""DDP Segment Length (RFC 5040, 4.8)."""
