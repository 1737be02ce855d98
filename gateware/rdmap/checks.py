"""The checks of an RDMA Message, as lists for `ddp.checks.first_cause`.

RFC 5040, 7.2; RFC 7306, 8.2.
"""

from collections.abc import Iterable

from amaranth.hdl import Cat, Mux, Value, ValueLike
from amaranth.lib import data

from stagecoach.gateware.ddp.checks import Check
from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.layouts import AtomicOperation, StagStatus
from stagecoach.gateware.rdmap.headers import CONTROL, TERMINATE_CONTROL_AS_SIW, Opcode
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.wire import (
    ATOMIC_REQUEST_HEADER_OCTETS,
    ATOMIC_RESPONSE_HEADER_OCTETS,
    DDP_VERSION,
    FIRST_MSN,
    IMMEDIATE_DATA_OCTETS,
    QN_ATOMIC_RESPONSE,
    QN_READ_REQUEST,
    QN_SEND,
    QN_TERMINATE,
    RDMAP_VERSION,
    READ_REQUEST_HEADER_OCTETS,
    TAGGED_HEADER_OCTETS,
    TERMINATE_CONTROL_OCTETS,
    TERMINATE_LENGTH_OCTETS,
    UNTAGGED_HEADER_OCTETS,
)

TAGGED_OPCODES = (Opcode.RDMA_WRITE, Opcode.RDMA_READ_RESPONSE)
"""The tagged messages that are received (RFC 5040, Figure 5)."""

SEND_OPCODES = (
    Opcode.SEND,
    Opcode.SEND_WITH_INVALIDATE,
    Opcode.SEND_WITH_SE,
    Opcode.SEND_WITH_SE_AND_INVALIDATE,
)
INVALIDATING_OPCODES = (Opcode.SEND_WITH_INVALIDATE, Opcode.SEND_WITH_SE_AND_INVALIDATE)
"""The Send messages (RFC 5040, 4.3)."""

IMMEDIATE_OPCODES = (Opcode.IMMEDIATE_DATA, Opcode.IMMEDIATE_DATA_WITH_SE)
"""The messages of 8 octets that go into a completion (RFC 7306, 6)."""

SOLICITING_OPCODES = (
    Opcode.SEND_WITH_SE,
    Opcode.SEND_WITH_SE_AND_INVALIDATE,
    Opcode.IMMEDIATE_DATA_WITH_SE,
)

QUEUES = {
    Opcode.RDMA_READ_REQUEST: QN_READ_REQUEST,
    **dict.fromkeys(SEND_OPCODES, QN_SEND),
    **dict.fromkeys(IMMEDIATE_OPCODES, QN_SEND),
    Opcode.TERMINATE: QN_TERMINATE,
    Opcode.ATOMIC_REQUEST: QN_READ_REQUEST,
    Opcode.ATOMIC_RESPONSE: QN_ATOMIC_RESPONSE,
}
"""The untagged messages that are received, with their queue (RFC 5040, Figure 5; RFC 7306, 3)."""

RFC_7306_OPCODES = (*IMMEDIATE_OPCODES, Opcode.ATOMIC_REQUEST, Opcode.ATOMIC_RESPONSE)
"""The messages that a QP takes only if its program asked for them; queue 3 is theirs alone."""

REQUEST_OPCODES = (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST)
RESPONSE_OPCODES = (Opcode.RDMA_READ_RESPONSE, Opcode.ATOMIC_RESPONSE)
"""What is asked for, and answered, in one order (RFC 7306, 5.2)."""

LAST_QN = max(QUEUES.values())


def rdmap_control(header: data.View) -> data.View:
    """The RDMAP control octet of a DDP header."""
    return data.View(CONTROL, header.rsvd_ulp)


def version_checks(header: data.View) -> list[Check]:
    """The RDMAP version."""
    return [(rdmap_control(header).version != RDMAP_VERSION, Cause.RDMAP_VERSION)]


def opcode_checks(header: data.View, rfc7306: ValueLike = 1) -> list[Check]:
    """The opcode is one that is received, and comes in the buffer model that it needs.

    `rfc7306`: the stream takes those of RFC 7306, too.
    """
    opcode = rdmap_control(header).opcode
    excluded = is_any(opcode, RFC_7306_OPCODES) & ~Value.cast(rfc7306)
    return [
        (
            header.control.tagged & ~is_any(opcode, TAGGED_OPCODES),
            Cause.UNEXPECTED_OPCODE,
        ),
        (~header.control.tagged & (~is_any(opcode, QUEUES) | excluded), Cause.UNEXPECTED_OPCODE),
    ]


def queue_opcode_checks(header: data.View) -> list[Check]:
    """The opcode of an untagged header comes on its queue."""
    opcode = rdmap_control(header).opcode
    qn = from_wire(header.qn)
    untagged = ~header.control.tagged
    return [
        (untagged & (opcode == expected) & (qn != queue), Cause.UNEXPECTED_OPCODE)
        for expected, queue in QUEUES.items()
    ]


def is_terminate(header: data.View) -> Value:
    """Whether it is the header of a Terminate, perhaps on a wrong queue; versions count."""
    control = rdmap_control(header)
    return (
        (header.control.version == DDP_VERSION)
        & (control.version == RDMAP_VERSION)
        & (control.opcode == Opcode.TERMINATE)
    )


def terminate_fits(ulpdu: data.View, ulpdu_length: Value) -> Value:
    """Two bits, one of them set if the length of a Terminate is right.

    It is that of the headers that M, D and R of its control field announce (RFC 5040, 4.8), as
    RFC 5040 lays the field out or as Linux siw does, which sets no reserved bit.
    """
    terminate = ulpdu.terminate
    tagged = terminate.ddp_control.tagged
    as_siw = data.View(TERMINATE_CONTROL_AS_SIW, terminate.control.as_value())
    fits = _terminate_length_fits(terminate.control, tagged, ulpdu_length, cut=False)
    fits_siw = _terminate_length_fits(as_siw, tagged, ulpdu_length, cut=True)
    return Cat(fits, fits_siw & (as_siw.reserved == 0))


def terminate_checks(ulpdu: data.View, fits: Value) -> list[Check]:
    """A Terminate ends the stream; queue 2 has one buffer, for one segment (RFC 5040, 5.4).

    `fits`: `terminate_fits`, or from a register if the ULPDU stands. The last check fails for every
    Terminate, the one before it tells of a wrong length.
    """
    header = ulpdu.untagged
    here = ~header.control.tagged & (rdmap_control(header).opcode == Opcode.TERMINATE)
    malformed = ~header.control.last | ~fits.any()
    return [
        (here & (from_wire(header.msn) != FIRST_MSN), Cause.UNTAGGED_MSN),
        (here & (from_wire(header.mo) != 0), Cause.UNTAGGED_MO),
        (here & malformed, Cause.TERMINATE_MALFORMED),
        (here, Cause.TERMINATE_RECEIVED),
    ]


def _terminate_length_fits(
    control: data.View, tagged: ValueLike, ulpdu_length: Value, *, cut: bool
) -> Value:
    """Whether the length is that of the announced headers.

    `tagged`: of the terminated DDP header; `cut`: the Read Request header may be missing.
    """
    start = UNTAGGED_HEADER_OCTETS + TERMINATE_CONTROL_OCTETS
    behind_length = start + TERMINATE_LENGTH_OCTETS
    untagged = control.ddp_header & ~tagged
    lengths = [
        (~control.ddp_header & ~control.length, start),
        (~control.ddp_header & control.length, behind_length),
        (control.ddp_header & tagged, behind_length + TAGGED_HEADER_OCTETS),
        (untagged, behind_length + UNTAGGED_HEADER_OCTETS),
    ]
    fits = []
    for announced, octets in lengths:
        with_request = ulpdu_length == octets + READ_REQUEST_HEADER_OCTETS
        without = ulpdu_length == octets
        request = control.read_request_header
        fits.append(announced & Mux(request, with_request | (without if cut else 0), without))
    return Cat(fits).any()


def read_request_length_checks(header_octets: Value, last: Value) -> list[Check]:
    """A Read Request is exactly its header, in one segment."""
    return [
        (header_octets > READ_REQUEST_HEADER_OCTETS, Cause.READ_REQUEST_TOO_LONG),
        ((header_octets < READ_REQUEST_HEADER_OCTETS) | ~last, Cause.READ_REQUEST_TOO_SHORT),
    ]


def immediate_checks(payload: Value, last: Value, *, inside_send: ValueLike) -> list[Check]:
    """Immediate Data is 8 octets in one segment (RFC 7306, 6.3), and no part of a Send."""
    return [
        (payload > IMMEDIATE_DATA_OCTETS, Cause.UNTAGGED_TOO_LONG),
        (inside_send, Cause.UNEXPECTED_OPCODE),
        ((payload < IMMEDIATE_DATA_OCTETS) | ~last, Cause.IMMEDIATE_TOO_SHORT),
    ]


def read_status_checks(status: ValueLike) -> list[Check]:
    """What a failed STag check means for the Data Source of a Read Request."""
    causes = {
        StagStatus.INVALID: Cause.READ_STAG_INVALID,
        StagStatus.NOT_ASSOCIATED: Cause.READ_STAG_NOT_ASSOCIATED,
        StagStatus.NOT_PERMITTED: Cause.READ_NOT_PERMITTED,
        StagStatus.WRAP: Cause.READ_TO_WRAP,
        StagStatus.BOUNDS: Cause.READ_BOUNDS,
    }
    return [(status == value, cause) for value, cause in causes.items()]


def atomic_request_checks(
    header_octets: Value, last: Value, operation: Value, strict: ValueLike
) -> list[Check]:
    """An Atomic Request is exactly its header, in one segment, with an AOpCode that is supported.

    With `strict` these are those of RFC 7306, without the Swap of the draft before it.
    """
    swap = (operation == AtomicOperation.SWAP.value) & ~Value.cast(strict)
    others = (AtomicOperation.FETCH_ADD.value, AtomicOperation.CMP_SWAP.value)
    return [
        (header_octets > ATOMIC_REQUEST_HEADER_OCTETS, Cause.ATOMIC_REQUEST_TOO_LONG),
        ((header_octets < ATOMIC_REQUEST_HEADER_OCTETS) | ~last, Cause.ATOMIC_REQUEST_TOO_SHORT),
        (~(swap | is_any(operation, others)), Cause.ATOMIC_OPERATION_UNSUPPORTED),
    ]


def atomic_status_checks(status: ValueLike) -> list[Check]:
    """What a failed STag check means for the target of an Atomic Request."""
    causes = {
        StagStatus.INVALID: Cause.ATOMIC_STAG_INVALID,
        StagStatus.NOT_ASSOCIATED: Cause.ATOMIC_STAG_NOT_ASSOCIATED,
        StagStatus.NOT_PERMITTED: Cause.ATOMIC_NOT_PERMITTED,
        StagStatus.WRAP: Cause.ATOMIC_TO_WRAP,
        StagStatus.BOUNDS: Cause.ATOMIC_BOUNDS,
    }
    return [(status == value, cause) for value, cause in causes.items()]


def atomic_response_checks(
    header_octets: Value, last: Value, *, other_identifier: ValueLike
) -> list[Check]:
    """An Atomic Response is exactly its header, in one segment, to the request that is answered."""
    return [
        (header_octets > ATOMIC_RESPONSE_HEADER_OCTETS, Cause.ATOMIC_RESPONSE_TOO_LONG),
        ((header_octets < ATOMIC_RESPONSE_HEADER_OCTETS) | ~last, Cause.ATOMIC_RESPONSE_TOO_SHORT),
        (other_identifier, Cause.ATOMIC_RESPONSE_IDENTIFIER),
    ]


def invalidate_status_checks(status: ValueLike) -> list[Check]:
    """What a failed STag check means for the STag that a Send invalidates (RFC 5040, 5.3).

    Only an STag of one stream may be invalidated from afar; its range does not matter.
    """
    causes = {
        StagStatus.INVALID: Cause.INVALIDATE_REFUSED,
        StagStatus.NOT_ASSOCIATED: Cause.INVALIDATE_NOT_ASSOCIATED,
        StagStatus.NOT_PERMITTED: Cause.INVALIDATE_REFUSED,
    }
    return [(status == value, cause) for value, cause in causes.items()]


def read_response_checks(
    *,
    none_outstanding: ValueLike,
    other_stag: ValueLike,
    other_offset: ValueLike,
    payload: Value,
    remaining: Value,
    last: Value,
) -> list[Check]:
    """A Read Response segment is the next part of what the oldest RDMA Read asked for.

    STag and TO of an empty segment mean nothing (RFC 5041, 5.2). L comes with the last of the
    `remaining` bytes or after it.
    """
    filled = payload != 0
    return [
        (none_outstanding, Cause.UNSOLICITED_READ_RESPONSE),
        (filled & other_stag, Cause.READ_RESPONSE_STAG),
        (filled & other_offset, Cause.READ_RESPONSE_RANGE),
        (payload > remaining, Cause.READ_RESPONSE_RANGE),
        (last & (payload != remaining), Cause.READ_RESPONSE_RANGE),
    ]


def is_any(value: Value, members: Iterable[int]) -> Value:
    """Whether `value` is one of `members`."""
    return Cat(value == member for member in members).any()
