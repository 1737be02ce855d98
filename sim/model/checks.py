"""Every check of a receiver, in the order in which it is made; the first that fails wins.

The order follows the way of an FPDU upwards: MPA hands only good FPDUs to DDP (RFC 5044, 6), DDP
validates a segment before its Placement (RFC 5041, 7.1), RDMAP the message (RFC 5040, 7.2). Two
things bend it. First, RDMAP's version and opcode are looked at directly after DDP's version:
DDP has no opcodes, but which buffer a segment has to have (a posted receive, the Read Request
queue, an outstanding RDMA Read) is known from the opcode alone, and nothing may be placed for a
message which is invalid. Second, all checks come before the first octet of their segment is
placed, those included which RDMAP could make after Delivery.

Some checks are of no RFC: this receiver refuses what they allow, for the reasons of `CHOICE`, the
decision page that is their source.

Inside one segment the RFCs leave the order open: RFC 5040, 7.1 (4) asks for the first *message*
in error. Chosen here, too, where they are silent:

* An MSN other than the next is reported before a missing buffer (RFC 5041, 7.1, check 5 before
  check 2), because a wrong MSN has no buffer in any case.
* TO wrap is reported before bounds, of which it is a part; otherwise it would never be seen.
  A range which ends at 2^64 wraps: its 64-bit sum is 0.
* More Read Requests than the IRD find no buffer on queue 1.
* A ULPDU_Length above 64768, which no sender may use, makes an FPDU invalid before its CRC came.
* A ULPDU shorter than its DDP header is a length that MPA cannot have meant.
* RFC 5041 has no code for a Write without remote write right: the STag is invalid for it.
* The opcode of a Send must not change between its segments.
* A Read Response ends when all octets asked for are there: with the last of them, or with an
  empty segment after it.
* What a Send with Invalidate names may not be invalidated by a Remote Peer if it is shared.
* RFC 7306, 8.2 lists only the alignment of what an Atomic Operation is to change; its STag, rights
  (to read and to write) and range are checked like those of a Read Request, before the alignment,
  which is known from the address alone. More Atomic and Read Requests than the IRD find no buffer.
* An Atomic Response without an outstanding Atomic Request finds no buffer on queue 3. One with
  another Request Identifier than that request is invalid without a code of its own.
* Immediate Data takes its receive whatever the size of that, and is too long for its eight octets.
"""

from dataclasses import dataclass

from stagecoach.sim.model import errors
from stagecoach.sim.model.errors import ErrorCode, MpaError, StreamError

_LAYER_LLP = 2
CHOICE = "docs/decisions/stricter-than-the-rfcs.md"


@dataclass(frozen=True)
class Check:
    """What must hold, the code if it does not, and the text that says so."""

    demand: str
    error: ErrorCode
    source: str

    def failed(self, detail: str) -> StreamError:
        """The exception to raise; ``detail`` says what was found."""
        kind = MpaError if self.error.layer == _LAYER_LLP else StreamError
        return kind(self.error, detail, self.source)


@dataclass(frozen=True)
class AccessChecks:
    """The checks of one kind of access to an STag."""

    valid: Check
    associated: Check
    rights: Check
    wrap: Check
    bounds: Check

    @property
    def order(self) -> tuple[Check, ...]:
        """In the order in which they are made."""
        return (self.valid, self.associated, self.rights, self.wrap, self.bounds)


# MPA
ULPDU_LENGTH = Check("ULPDU_Length is at most 64768", errors.MPA_CRC, "RFC 5044, 3")
CRC = Check("the CRC is that of the FPDU", errors.MPA_CRC, "RFC 5044, 4.4")
MARKER = Check(
    "FPDUPTR leads to the ULPDU_Length field", errors.MPA_MARKER_MISMATCH, "RFC 5044, 8 (3)"
)
ULPDU_HAS_HEADER = Check(
    "the ULPDU holds a DDP header", errors.MPA_MARKER_MISMATCH, "RFC 5041, 4.2 and 4.3"
)
# DDP and RDMAP headers
TAGGED_VERSION = Check("DV is 1", errors.DDP_TAGGED_INVALID_VERSION, "RFC 5041, 4.1")
UNTAGGED_VERSION = Check("DV is 1", errors.DDP_UNTAGGED_INVALID_VERSION, "RFC 5041, 4.1")
RDMAP_VERSION = Check("RV is 1", errors.RDMAP_INVALID_VERSION, "RFC 5040, 7.2")
OPCODE = Check("the opcode is known", errors.RDMAP_UNEXPECTED_OPCODE, "RFC 5040, 7.2")
BUFFER_MODEL = Check("T fits the opcode", errors.RDMAP_UNEXPECTED_OPCODE, "RFC 5040, 4.1, Figure 4")
QUEUE = Check("the QN is known", errors.DDP_INVALID_QN, "RFC 5041, 7.1 (1)")
QUEUE_OF_OPCODE = Check(
    "the QN is that of the opcode", errors.RDMAP_UNEXPECTED_OPCODE, "RFC 5040, 4.1, Figure 4"
)
# Untagged Buffers
MSN = Check("the MSN is the next one", errors.DDP_INVALID_MSN, "RFC 5041, 7.1 (5)")
RECEIVE_BUFFER = Check("a receive is posted", errors.DDP_NO_BUFFER, "RFC 5041, 7.1 (2)")
READ_REQUEST_BUFFER = Check(
    "no more Read and Atomic Requests than the IRD", errors.DDP_NO_BUFFER, "RFC 5040, 6.1"
)
MO = Check("the MO is inside the buffer", errors.DDP_INVALID_MO, "RFC 5041, 7.1 (3)")
MO_NEXT = Check("the MO is the next octet", errors.DDP_INVALID_MO, CHOICE)
ONE_SEGMENT = Check(
    "a message of fixed length is one DDP Segment", errors.RDMAP_OPERATION_UNSPECIFIED, CHOICE
)
MESSAGE_LENGTH = Check(
    "the message fits its buffer", errors.DDP_MESSAGE_TOO_LONG, "RFC 5041, 7.1 (4)"
)
SEND_OPCODE = Check("one Send has one opcode", errors.RDMAP_UNEXPECTED_OPCODE, "RFC 5041, 4.3")
INVALIDATE_VALID = Check(
    "the Invalidate STag is valid", errors.RDMAP_OPERATION_CANNOT_INVALIDATE, "RFC 5040, 7.2 (4)"
)
INVALIDATE_ASSOCIATED = Check(
    "the Invalidate STag is associated with the stream",
    errors.RDMAP_PROTECTION_CANNOT_INVALIDATE,
    "RFC 5040, 7.2 (5)",
)
INVALIDATE_UNSHARED = Check(
    "the Invalidate STag is not shared",
    errors.RDMAP_OPERATION_CANNOT_INVALIDATE,
    "RFC 5040, 8.1.1 (7)",
)
READ_REQUEST_WHOLE = Check(
    "the Read Request is whole", errors.RDMAP_OPERATION_UNSPECIFIED, "RFC 5040, 4.4"
)
SOURCE = AccessChecks(
    Check("the Data Source STag is valid", errors.RDMAP_INVALID_STAG, "RFC 5040, 7.2 (4a)"),
    Check(
        "the Data Source STag is associated with the stream",
        errors.RDMAP_STAG_NOT_ASSOCIATED,
        "RFC 5040, 7.2 (4b)",
    ),
    Check(
        "the Data Source STag has remote read right",
        errors.RDMAP_ACCESS_RIGHTS,
        "RFC 5040, 8.1.1 (5)",
    ),
    Check("the Data Source range does not wrap", errors.RDMAP_TO_WRAP, "RFC 5040, 7.2 (4e)"),
    Check("the Data Source range is registered", errors.RDMAP_BASE_OR_BOUNDS, "RFC 5040, 7.2 (4d)"),
)
# Atomic Operations and Immediate Data
IMMEDIATE_WHOLE = Check(
    "Immediate Data has eight octets", errors.RDMAP_OPERATION_UNSPECIFIED, "RFC 7306, 6.3"
)
ATOMIC_REQUEST_WHOLE = Check(
    "the Atomic Request is whole", errors.RDMAP_OPERATION_UNSPECIFIED, "RFC 7306, 5.2.1"
)
ATOMIC_OPERATION = Check(
    "the AOpCode is supported", errors.RDMAP_UNEXPECTED_OPCODE, "RFC 7306, 5.2.1 (4)"
)
ATOMIC_TARGET = AccessChecks(
    Check("the Remote STag is valid", errors.RDMAP_INVALID_STAG, "RFC 7306, 5"),
    Check(
        "the Remote STag is associated with the stream",
        errors.RDMAP_STAG_NOT_ASSOCIATED,
        "RFC 7306, 5",
    ),
    Check(
        "the Remote STag has remote read and write right",
        errors.RDMAP_ACCESS_RIGHTS,
        "RFC 7306, 5",
    ),
    Check("the target does not wrap", errors.RDMAP_TO_WRAP, "RFC 7306, 5"),
    Check("the target is registered", errors.RDMAP_BASE_OR_BOUNDS, "RFC 7306, 5"),
)
ATOMIC_ALIGNMENT = Check(
    "the address of the target is 64-bit aligned",
    errors.RDMAP_CATASTROPHIC_STREAM,
    "RFC 7306, 8.2",
)
ATOMIC_OUTSTANDING = Check(
    "an Atomic Request is outstanding", errors.DDP_NO_BUFFER, "RFC 7306, 5.2.2 (5)"
)
ATOMIC_RESPONSE_WHOLE = Check(
    "the Atomic Response is whole", errors.RDMAP_OPERATION_UNSPECIFIED, "RFC 7306, 5.2.2"
)
ATOMIC_IDENTIFIER = Check(
    "the Original Request Identifier is that of the Atomic Request",
    errors.RDMAP_OPERATION_UNSPECIFIED,
    "RFC 7306, 5.2.2 (7)",
)
TERMINATE_WHOLE = Check(
    "the Terminate has the length that its header control bits give",
    errors.RDMAP_OPERATION_UNSPECIFIED,
    "RFC 5040, 4.8",
)
# Tagged Buffers
TARGET = AccessChecks(
    Check("the STag is valid", errors.DDP_INVALID_STAG, "RFC 5041, 7.1 (1)"),
    Check(
        "the STag is associated with the stream",
        errors.DDP_STAG_NOT_ASSOCIATED,
        "RFC 5041, 7.1 (1)",
    ),
    Check("the STag has write right", errors.DDP_INVALID_STAG, "RFC 5041, 7.1 (2)"),
    Check("the range does not wrap", errors.DDP_TO_WRAP, "RFC 5041, 7.1 (5)"),
    Check("the range is registered", errors.DDP_BASE_OR_BOUNDS, "RFC 5041, 7.1 (4)"),
)
READ_OUTSTANDING = Check(
    "an RDMA Read is outstanding", errors.RDMAP_UNEXPECTED_OPCODE, "RFC 5040, 5.2.2"
)
RESPONSE_STAG = Check(
    "the STag is that of the Read Request", errors.DDP_INVALID_STAG, "RFC 5040, 5.2.2"
)
RESPONSE_OFFSET = Check(
    "the range is of what the Read Request asked for",
    errors.DDP_BASE_OR_BOUNDS,
    "RFC 5040, 5.2.2",
)
RESPONSE_NEXT = Check("the TO is the next of the Read Request", errors.DDP_BASE_OR_BOUNDS, CHOICE)
RESPONSE_LENGTH = Check(
    "the Read Response has the length of the Read Request",
    errors.DDP_BASE_OR_BOUNDS,
    "RFC 5040, 5.2.2",
)

MPA_ORDER = (ULPDU_LENGTH, CRC, MARKER)
HEADER_ORDER = (
    ULPDU_HAS_HEADER,
    TAGGED_VERSION,
    UNTAGGED_VERSION,
    RDMAP_VERSION,
    OPCODE,
    BUFFER_MODEL,
    QUEUE,
    QUEUE_OF_OPCODE,
)
SEND_ORDER = (
    MSN,
    RECEIVE_BUFFER,
    MO,
    MO_NEXT,
    MESSAGE_LENGTH,
    SEND_OPCODE,
    INVALIDATE_VALID,
    INVALIDATE_ASSOCIATED,
    INVALIDATE_UNSHARED,
)
READ_REQUEST_ORDER = (
    MSN,
    READ_REQUEST_BUFFER,
    MO,
    MO_NEXT,
    MESSAGE_LENGTH,
    ONE_SEGMENT,
    READ_REQUEST_WHOLE,
    *SOURCE.order,
)
IMMEDIATE_ORDER = (
    MSN,
    RECEIVE_BUFFER,
    MO,
    MO_NEXT,
    MESSAGE_LENGTH,
    SEND_OPCODE,
    ONE_SEGMENT,
    IMMEDIATE_WHOLE,
)
ATOMIC_REQUEST_ORDER = (
    MSN,
    READ_REQUEST_BUFFER,
    MO,
    MO_NEXT,
    MESSAGE_LENGTH,
    ONE_SEGMENT,
    ATOMIC_REQUEST_WHOLE,
    ATOMIC_OPERATION,
    *ATOMIC_TARGET.order,
    ATOMIC_ALIGNMENT,
)
ATOMIC_RESPONSE_ORDER = (
    MSN,
    ATOMIC_OUTSTANDING,
    MO,
    MO_NEXT,
    MESSAGE_LENGTH,
    ONE_SEGMENT,
    ATOMIC_RESPONSE_WHOLE,
    ATOMIC_IDENTIFIER,
)
TERMINATE_ORDER = (MSN, MO, MO_NEXT, ONE_SEGMENT, TERMINATE_WHOLE)
WRITE_ORDER = TARGET.order
READ_RESPONSE_ORDER = (
    READ_OUTSTANDING,
    RESPONSE_STAG,
    RESPONSE_OFFSET,
    RESPONSE_NEXT,
    RESPONSE_LENGTH,
    *TARGET.order,
)
