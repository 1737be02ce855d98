"""Why a QP stopped: one number per check, with the Terminate code that it gives and its words.

The codes are those of RFC 5040 4.8, RFC 5041 7.2, RFC 5044 8, RFC 7306 8. No Amaranth here.
"""

from enum import Enum, IntEnum
from typing import NamedTuple


class TerminateCode(NamedTuple):
    """Layer, error type and error code of a Terminate message (RFC 5040, 4.8)."""

    layer: int
    error_type: int
    error_code: int

    @property
    def can_be_sent(self) -> bool:
        """Not so if the connection is gone (RFC 5044, 8)."""
        return self != LLP_LOST


LLP_LOST = TerminateCode(2, 0, 0x01)


class HeaderCopy(Enum):
    """Which headers of the offending segment a Terminate copies (RFC 5040, 4.8)."""

    NONE = 0
    DDP = 1  # with the DDP Segment Length
    READ_REQUEST = 2  # and the RDMA Read Request header


class Cause(IntEnum):
    """The check that failed first on a QP."""

    NONE = 0
    # MPA and the LLP
    LLP_CLOSED = 1
    CRC_ERROR = 2
    MARKER_MISMATCH = 3
    ULPDU_TOO_SHORT = 4
    LLP_CLOSED_INSIDE_FPDU = 5
    # DDP, tagged
    TAGGED_STAG_INVALID = 8
    TAGGED_BOUNDS = 9
    TAGGED_STAG_NOT_ASSOCIATED = 10
    TAGGED_TO_WRAP = 11
    TAGGED_DDP_VERSION = 12
    WRITE_NOT_PERMITTED = 13
    READ_RESPONSE_STAG = 14
    READ_RESPONSE_RANGE = 15
    # DDP, untagged
    UNTAGGED_QN = 16
    UNTAGGED_NO_BUFFER = 17
    UNTAGGED_MSN = 18
    UNTAGGED_MO = 19
    UNTAGGED_TOO_LONG = 20
    UNTAGGED_DDP_VERSION = 21
    # RDMAP
    RDMAP_VERSION = 24
    UNEXPECTED_OPCODE = 25
    UNSOLICITED_READ_RESPONSE = 26
    READ_REQUEST_TOO_SHORT = 27
    READ_REQUEST_TOO_LONG = 28
    TOO_MANY_READ_REQUESTS = 29
    READ_STAG_INVALID = 30
    READ_BOUNDS = 31
    READ_NOT_PERMITTED = 32
    READ_STAG_NOT_ASSOCIATED = 33
    READ_TO_WRAP = 34
    TERMINATE_RECEIVED = 35
    INVALIDATE_NOT_ASSOCIATED = 36
    INVALIDATE_REFUSED = 37
    TERMINATE_MALFORMED = 38
    IMMEDIATE_TOO_SHORT = 39
    # local
    LOCAL_SEND_PROTECTION = 40
    LOCAL_RECEIVE_PROTECTION = 41
    LOCAL_BAD_ENTRY = 42
    HOST_READ_ERROR = 43
    HOST_WRITE_ERROR = 44
    CQ_OVERFLOW = 45
    STOPPED_BY_DRIVER = 46
    LOCAL_STAG_OPERATION = 47
    # Atomic Operations (RFC 7306)
    ATOMIC_REQUEST_TOO_LONG = 48
    ATOMIC_REQUEST_TOO_SHORT = 49
    ATOMIC_OPERATION_UNSUPPORTED = 50
    ATOMIC_STAG_INVALID = 51
    ATOMIC_BOUNDS = 52
    ATOMIC_NOT_PERMITTED = 53
    ATOMIC_STAG_NOT_ASSOCIATED = 54
    ATOMIC_TO_WRAP = 55
    ATOMIC_MISALIGNED = 56
    UNSOLICITED_ATOMIC_RESPONSE = 57
    ATOMIC_RESPONSE_TOO_LONG = 58
    ATOMIC_RESPONSE_TOO_SHORT = 59
    ATOMIC_RESPONSE_IDENTIFIER = 60
    # A shared receive queue, which goes on
    SRQ_LIMIT_REACHED = 61


READ_CAUSES = (
    Cause.READ_STAG_INVALID,
    Cause.READ_BOUNDS,
    Cause.READ_NOT_PERMITTED,
    Cause.READ_STAG_NOT_ASSOCIATED,
    Cause.READ_TO_WRAP,
)
"""Failed checks of what a Read Request reads."""

CODES: dict[Cause, tuple[TerminateCode | None, str]] = {
    Cause.NONE: (None, "no error"),
    Cause.LLP_CLOSED: (LLP_LOST, "connection closed or lost"),
    Cause.LLP_CLOSED_INSIDE_FPDU: (LLP_LOST, "connection closed or lost inside an FPDU"),
    Cause.CRC_ERROR: (TerminateCode(2, 0, 0x02), "MPA CRC error"),
    Cause.MARKER_MISMATCH: (
        TerminateCode(2, 0, 0x03),
        "Marker and ULPDU_Length disagree",
    ),
    Cause.ULPDU_TOO_SHORT: (
        TerminateCode(2, 0, 0x03),
        "ULPDU shorter than its DDP header",
    ),
    Cause.TAGGED_STAG_INVALID: (
        TerminateCode(1, 1, 0x00),
        "invalid STag in a tagged segment",
    ),
    Cause.TAGGED_BOUNDS: (
        TerminateCode(1, 1, 0x01),
        "tagged segment outside base and bounds",
    ),
    Cause.TAGGED_STAG_NOT_ASSOCIATED: (
        TerminateCode(1, 1, 0x02),
        "STag of another Protection Domain or stream",
    ),
    Cause.TAGGED_TO_WRAP: (TerminateCode(1, 1, 0x03), "Tagged Offset wraps"),
    Cause.TAGGED_DDP_VERSION: (
        TerminateCode(1, 1, 0x04),
        "invalid DDP version, tagged",
    ),
    Cause.WRITE_NOT_PERMITTED: (
        TerminateCode(1, 1, 0x00),
        "STag without remote write right",
    ),
    Cause.READ_RESPONSE_STAG: (
        TerminateCode(1, 1, 0x00),
        "Read Response to another STag",
    ),
    Cause.READ_RESPONSE_RANGE: (
        TerminateCode(1, 1, 0x01),
        "Read Response outside the range that was requested",
    ),
    Cause.UNTAGGED_QN: (TerminateCode(1, 2, 0x01), "invalid Queue Number"),
    Cause.UNTAGGED_NO_BUFFER: (
        TerminateCode(1, 2, 0x02),
        "no receive buffer available",
    ),
    Cause.UNTAGGED_MSN: (
        TerminateCode(1, 2, 0x03),
        "Message Sequence Number not expected",
    ),
    Cause.UNTAGGED_MO: (TerminateCode(1, 2, 0x04), "invalid Message Offset"),
    Cause.UNTAGGED_TOO_LONG: (
        TerminateCode(1, 2, 0x05),
        "message too long for its buffer",
    ),
    Cause.UNTAGGED_DDP_VERSION: (
        TerminateCode(1, 2, 0x06),
        "invalid DDP version, untagged",
    ),
    Cause.RDMAP_VERSION: (TerminateCode(0, 2, 0x05), "invalid RDMAP version"),
    Cause.UNEXPECTED_OPCODE: (TerminateCode(0, 2, 0x06), "unexpected RDMAP opcode"),
    Cause.UNSOLICITED_READ_RESPONSE: (
        TerminateCode(0, 2, 0x06),
        "Read Response without an outstanding Read Request",
    ),
    Cause.READ_REQUEST_TOO_SHORT: (TerminateCode(0, 2, 0xFF), "Read Request too short"),
    Cause.READ_REQUEST_TOO_LONG: (TerminateCode(1, 2, 0x05), "Read Request too long"),
    Cause.TOO_MANY_READ_REQUESTS: (
        TerminateCode(1, 2, 0x02),
        "more Read and Atomic Requests than IRD",
    ),
    Cause.READ_STAG_INVALID: (
        TerminateCode(0, 1, 0x00),
        "Read Request of an invalid STag",
    ),
    Cause.READ_BOUNDS: (
        TerminateCode(0, 1, 0x01),
        "Read Request outside base and bounds",
    ),
    Cause.READ_NOT_PERMITTED: (
        TerminateCode(0, 1, 0x02),
        "STag without remote read right",
    ),
    Cause.READ_STAG_NOT_ASSOCIATED: (
        TerminateCode(0, 1, 0x03),
        "Read Request to an STag of another Protection Domain or stream",
    ),
    Cause.READ_TO_WRAP: (
        TerminateCode(0, 1, 0x04),
        "Tagged Offset of a Read Request wraps",
    ),
    Cause.INVALIDATE_NOT_ASSOCIATED: (
        TerminateCode(0, 1, 0x09),
        "STag to invalidate belongs to another Protection Domain or stream",
    ),
    Cause.INVALIDATE_REFUSED: (
        TerminateCode(0, 2, 0x09),
        "STag to invalidate is unknown or shared by several streams",
    ),
    Cause.TERMINATE_RECEIVED: (None, "the peer sent a Terminate message"),
    Cause.TERMINATE_MALFORMED: (
        None,
        "Terminate of several segments, or of another length than its M, D and R say",
    ),
    Cause.IMMEDIATE_TOO_SHORT: (
        TerminateCode(0, 2, 0xFF),
        "Immediate Data of fewer than 8 bytes, or of several segments",
    ),
    Cause.LOCAL_SEND_PROTECTION: (
        TerminateCode(0, 0, 0x00),
        "local element of a send entry fails its STag check",
    ),
    Cause.LOCAL_RECEIVE_PROTECTION: (
        TerminateCode(0, 0, 0x00),
        "local element of a receive entry fails its STag check",
    ),
    Cause.LOCAL_BAD_ENTRY: (
        TerminateCode(0, 0, 0x00),
        "send entry with an invalid field",
    ),
    Cause.HOST_READ_ERROR: (
        TerminateCode(0, 0, 0x00),
        "error response to a host memory read",
    ),
    Cause.HOST_WRITE_ERROR: (
        TerminateCode(0, 0, 0x00),
        "error response to a host memory write",
    ),
    Cause.CQ_OVERFLOW: (TerminateCode(0, 0, 0x00), "completion queue overflow"),
    Cause.STOPPED_BY_DRIVER: (None, "stopped by the driver"),
    Cause.LOCAL_STAG_OPERATION: (
        TerminateCode(0, 0, 0x00),
        "STag that the work request may not invalidate or register",
    ),
    Cause.ATOMIC_REQUEST_TOO_LONG: (TerminateCode(1, 2, 0x05), "Atomic Request too long"),
    Cause.ATOMIC_REQUEST_TOO_SHORT: (TerminateCode(0, 2, 0xFF), "Atomic Request too short"),
    Cause.ATOMIC_OPERATION_UNSUPPORTED: (
        TerminateCode(0, 2, 0x06),
        "Atomic Request with an AOpCode that is not supported",
    ),
    Cause.ATOMIC_STAG_INVALID: (
        TerminateCode(0, 1, 0x00),
        "Atomic Request to an invalid STag",
    ),
    Cause.ATOMIC_BOUNDS: (
        TerminateCode(0, 1, 0x01),
        "Atomic Request outside base and bounds",
    ),
    Cause.ATOMIC_NOT_PERMITTED: (
        TerminateCode(0, 1, 0x02),
        "STag without remote read and write right for an Atomic Request",
    ),
    Cause.ATOMIC_STAG_NOT_ASSOCIATED: (
        TerminateCode(0, 1, 0x03),
        "Atomic Request to an STag of another Protection Domain or stream",
    ),
    Cause.ATOMIC_TO_WRAP: (
        TerminateCode(0, 1, 0x04),
        "Tagged Offset of an Atomic Request wraps",
    ),
    Cause.ATOMIC_MISALIGNED: (
        TerminateCode(0, 2, 0x07),
        "target of an Atomic Request is not 64-bit aligned",
    ),
    Cause.UNSOLICITED_ATOMIC_RESPONSE: (
        TerminateCode(1, 2, 0x02),
        "Atomic Response, and the oldest outstanding request is not an Atomic Request",
    ),
    Cause.ATOMIC_RESPONSE_TOO_LONG: (TerminateCode(1, 2, 0x05), "Atomic Response too long"),
    Cause.ATOMIC_RESPONSE_TOO_SHORT: (TerminateCode(0, 2, 0xFF), "Atomic Response too short"),
    Cause.ATOMIC_RESPONSE_IDENTIFIER: (
        TerminateCode(0, 2, 0xFF),
        "Atomic Response with the identifier of another request",
    ),
    Cause.SRQ_LIMIT_REACHED: (None, "fewer entries in the shared receive queue than its limit"),
}


_REMOTE_PROTECTION = (0, 1)
_COPYING = (_REMOTE_PROTECTION, (0, 2), (1, 1), (1, 2))
"""Layer and type of the errors that name a segment (RFC 5040, Figure 10)."""


def header_copy(cause: Cause) -> HeaderCopy:
    """What the Terminate for `cause` copies; the Read Request header only if that is refused."""
    code, _ = CODES[cause]
    if code is None or (code.layer, code.error_type) not in _COPYING:
        return HeaderCopy.NONE
    if (code.layer, code.error_type) == _REMOTE_PROTECTION and cause in READ_CAUSES:
        return HeaderCopy.READ_REQUEST
    return HeaderCopy.DDP
