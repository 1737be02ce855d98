"""The checks of a DDP Segment (RFC 5041, 7.1), each with the cause that it gives.

A check is a condition that must not hold and its `Cause`. Checks are listed in the order in which
they count: `first_cause` gives the cause of the first one that fails.
"""

from collections.abc import Sequence

from amaranth.hdl import Const, Mux, Value, ValueLike
from amaranth.lib import data

from stagecoach.gateware.ddp.headers import from_wire
from stagecoach.gateware.layouts import StagStatus
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.wire import DDP_VERSION, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS

CAUSE_BITS = 8

Check = tuple[ValueLike, Cause]


def first_cause(checks: Sequence[Check]) -> Value:
    """The cause of the first check whose condition holds, `Cause.NONE` if none does."""
    result: Value = Const(Cause.NONE, CAUSE_BITS)
    for failed, cause in reversed(checks):
        result = Mux(failed, Const(cause, CAUSE_BITS), result)
    return result


def header_checks(control: data.View, ulpdu_length: Value) -> list[Check]:
    """The checks of the first byte of a ULPDU; the header may be missing in part or whole."""
    bad_version = control.version != DDP_VERSION
    return [
        (ulpdu_length < TAGGED_HEADER_OCTETS, Cause.ULPDU_TOO_SHORT),
        (
            ~control.tagged & (ulpdu_length < UNTAGGED_HEADER_OCTETS),
            Cause.ULPDU_TOO_SHORT,
        ),
        (control.tagged & bad_version, Cause.TAGGED_DDP_VERSION),
        (~control.tagged & bad_version, Cause.UNTAGGED_DDP_VERSION),
    ]


def queue_checks(header: data.View, last_qn: int, last_used: ValueLike = 1) -> list[Check]:
    """The Queue Number of an untagged header must be one of 0 to `last_qn`.

    Of that itself there are messages only with `last_used`.
    """
    qn = from_wire(header.qn)
    unknown = (qn > last_qn) | ((qn == last_qn) & ~Value.cast(last_used))
    return [(~header.control.tagged & unknown, Cause.UNTAGGED_QN)]


def untagged_checks(
    *, wrong_msn: ValueLike, no_buffer: ValueLike, no_buffer_cause: Cause, wrong_mo: ValueLike
) -> list[Check]:
    """The order of the checks of an untagged segment before its payload is looked at.

    A wrong MSN counts before a missing buffer: only the next message may take the next buffer.
    """
    return [
        (wrong_msn, Cause.UNTAGGED_MSN),
        (no_buffer, no_buffer_cause),
        (wrong_mo, Cause.UNTAGGED_MO),
    ]


def tagged_status_checks(status: ValueLike, not_permitted: Cause) -> list[Check]:
    """What a failed STag check means for a tagged segment (RFC 5041, 7.2).

    There is no DDP error code for a missing right, so the caller names its own cause.
    """
    causes = {
        StagStatus.INVALID: Cause.TAGGED_STAG_INVALID,
        StagStatus.NOT_ASSOCIATED: Cause.TAGGED_STAG_NOT_ASSOCIATED,
        StagStatus.NOT_PERMITTED: not_permitted,
        StagStatus.WRAP: Cause.TAGGED_TO_WRAP,
        StagStatus.BOUNDS: Cause.TAGGED_BOUNDS,
    }
    return [(status == value, cause) for value, cause in causes.items()]
