"""What a QP is made of, and what can be asked of it."""

from dataclasses import dataclass
from dataclasses import field as dataclass_field

from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import require_integer, require_type
from stagecoach.host_driver.ring import check_entries
from stagecoach.host_driver.srq import SRQ
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    SCATTER_GATHER_ELEMENTS,
    SEND_ENTRY_OCTETS,
    SEND_UNIT_OCTETS,
)

ENTRY_UNITS = SEND_ENTRY_OCTETS // SEND_UNIT_OCTETS
"""Units of the longest send entry."""

MAXIMUM_INLINE_DATA = 4096
"""Bytes that a QP can be made to copy from a send work request, at most."""


@dataclass(frozen=True)
class QPCap:
    """Sizes of the queues of a QP, in work requests of any kind, and of what they hold.

    Attributes
    ----------
    max_send_wr, max_recv_wr: work requests that may be outstanding, 1 to 16384 and 1 to 32768.
    max_send_sge, max_recv_sge: elements of one, 1 to 4.
    max_inline_data: bytes of a request with `SendFlags.INLINE`, 0 to 4096. The QP has a region of
        `max_send_wr` times as many, which counts against the quotas.

    Raises `TypeError` or `ValueError` for what is not allowed.

    >>> QPCap(max_send_wr=16, max_inline_data=64).max_recv_wr
    64
    >>> QPCap(max_send_sge=5)
    Traceback (most recent call last):
        ...
    ValueError: QPCap.max_send_sge is 5; allowed: 1 to 4
    """

    max_send_wr: int = 64
    max_recv_wr: int = 64
    max_send_sge: int = SCATTER_GATHER_ELEMENTS
    max_recv_sge: int = SCATTER_GATHER_ELEMENTS
    max_inline_data: int = 0

    def __post_init__(self) -> None:
        check_entries(self.max_send_wr, ENTRY_UNITS)
        check_entries(self.max_recv_wr)
        for name, least, most in (
            ("max_send_sge", 1, SCATTER_GATHER_ELEMENTS),
            ("max_recv_sge", 1, SCATTER_GATHER_ELEMENTS),
            ("max_inline_data", 0, MAXIMUM_INLINE_DATA),
        ):
            value = getattr(self, name)
            require_integer(f"QPCap.{name}", value)
            if not least <= value <= most:
                raise ValueError(f"QPCap.{name} is {value}; allowed: {least} to {most}")


@dataclass(frozen=True)
class QPInitAttr:
    """What a QP is made of.

    Attributes
    ----------
    scq, rcq: CQ of the send queue, CQ of the receive queue. cap: sizes.
    rfc7306: the QP has atomics and Immediate Data (RFC 7306), both ways. Without, it sends none,
        and stops with `Cause.UNEXPECTED_OPCODE` if its peer does (RFC 5040, 7.2).
    sq_sig_all: every send work request is signaled, whatever its flags.
    srq: the QP takes its receives from there, an SRQ of its PD, and has no receive queue of its
        own: `cap.max_recv_wr` and `cap.max_recv_sge` say nothing then.
    """

    scq: CQ
    rcq: CQ
    cap: QPCap = dataclass_field(default_factory=QPCap)
    rfc7306: bool = False
    sq_sig_all: bool = False
    srq: SRQ | None = None

    def __post_init__(self) -> None:
        require_type("cap", self.cap, QPCap)


@dataclass(frozen=True)
class QPAttr:
    """What a QP is now.

    Attributes
    ----------
    qp_state, cause: as the device has them. cap: the sizes that it was made with.
    max_rd_atomic: ORD, how many RDMA Reads and atomics of this end are under way at a time.
    max_dest_rd_atomic: IRD, the same of the peer. Both are `None` before the QP is connected.
    path_emss: the largest TCP payload in bytes; `None` before.
    """

    qp_state: QPState
    cause: Cause
    cap: QPCap
    max_rd_atomic: int | None
    max_dest_rd_atomic: int | None
    path_emss: int | None
