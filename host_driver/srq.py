"""Shared Receive Queues: receive work requests that several QPs take."""

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, Self
from weakref import ref

from stagecoach.host_driver import registers
from stagecoach.host_driver.cq import CQ
from stagecoach.host_driver.device import CommandOpcode, Device
from stagecoach.host_driver.dropped import Droppable
from stagecoach.host_driver.enums import EventType, WCOpcode
from stagecoach.host_driver.errors import ResourceError, require_integer, require_type
from stagecoach.host_driver.events import AsyncEvent
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.ring import Ring, check_entries
from stagecoach.host_driver.work_queue import Posted, check_elements, write_receive_entry
from stagecoach.host_driver.wr import RecvWR, require_requests
from stagecoach.hw.interface.queue_entries import (
    RECEIVE_ENTRY_OCTETS,
    SCATTER_GATHER_ELEMENTS,
)


@dataclass(frozen=True)
class SRQInitAttr:
    """What an SRQ is made of.

    Attributes
    ----------
    max_wr: work requests that may be outstanding, 1 to 32768. max_sge: elements of one, 1 to 4.

    Raises `TypeError` or `ValueError` for what is not allowed.
    """

    max_wr: int = 64
    max_sge: int = SCATTER_GATHER_ELEMENTS

    def __post_init__(self) -> None:
        check_entries(self.max_wr)
        require_integer("SRQInitAttr.max_sge", self.max_sge)
        if not 1 <= self.max_sge <= SCATTER_GATHER_ELEMENTS:
            raise ValueError(
                f"SRQInitAttr.max_sge is {self.max_sge}; allowed: 1 to {SCATTER_GATHER_ELEMENTS}"
            )


@dataclass(frozen=True)
class SRQAttr:
    """What an SRQ is now: its sizes, and the limit that is armed, 0 if none is."""

    max_wr: int
    max_sge: int
    srq_limit: int


class TakingQP(Protocol):
    """A QP that takes from an SRQ."""

    rcq: CQ

    @property
    def _receives(self) -> "SharedReceives":
        """What it has taken."""


class SRQ(Droppable):
    """A Shared Receive Queue: the QPs that are made with it take its work requests.

    The first segment of a Send takes the oldest one for its QP. What one QP receives completes in
    order in its CQ; there is no order between QPs.

    Parameters
    ----------
    pd: the Protection Domain, also that of the QPs.
    init_attr: sizes.

    Attributes
    ----------
    number: that of its ring on the device, which no QP with a receive queue of its own has.

    Raises `ResourceError` if the device has no receive ring left, `QuotaExceeded`, and `ValueError`
    if the PD is closed or the device has no SRQs.
    """

    def __init__(self, pd: PD, init_attr: SRQInitAttr):
        require_type("pd", pd, PD)
        require_type("init_attr", init_attr, SRQInitAttr)
        self.pd = pd
        self.context = context = pd.context
        self._init_attr = init_attr
        self._limit = 0
        self._producer = 0
        # Work requests that no QP is known to have taken, by number modulo 2^16, the oldest first
        self._posted: dict[int, Posted] = {}
        self._qps: dict[int, ref[TakingQP]] = {}  # a QP has its SRQ, so this does not have it
        with context.lock:
            pd._require_open()
            if not context.attr.max_srq:
                raise ValueError("this device has no SRQs; allowed: QPs with receive queues")
            self.number = context._take_ring()
            with context.resources.reserve(srqs=1), ExitStack() as undo:
                self._ring = Ring(context.transport, init_attr.max_wr, RECEIVE_ENTRY_OCTETS)
                undo.callback(self._ring.close)
                self._create()
                undo.pop_all()
            context.srqs[self.number] = self
            context._srq_numbers.add(self.number)
            context._adopt(self)
            pd.children[self] = None
            self._opened(context)

    def _create(self) -> None:
        context = self.context
        context.write(registers.QP_NUMBER, qp=self.number)
        context.write_wide(
            registers.QP_RECEIVE_BASE_LOW, registers.QP_RECEIVE_BASE_HIGH, self._ring.address
        )
        context.write(registers.QP_RINGS, receive_log2=self._ring.log2)
        context.command(CommandOpcode.SRQ_CREATE)

    def __repr__(self) -> str:
        about = f"{self.max_wr} work requests, PD {self.pd.number}"
        return f"<SRQ {self.number}: {about}{', closed' if self._closed else ''}>"

    @property
    def max_wr(self) -> int:
        """Work requests that may be outstanding."""
        return self._init_attr.max_wr

    def _require_open(self) -> None:
        """Raises `ValueError` if the SRQ is closed: its number may be that of another one."""
        if self._closed:
            raise ValueError(f"SRQ {self.number} is closed; allowed: an open SRQ")

    def query(self) -> SRQAttr:
        """Its sizes, and the limit that is armed."""
        with self.context.lock:
            self._require_open()
            self.context.process_events()
            return SRQAttr(self.max_wr, self._init_attr.max_sge, self._limit)

    # Posting

    def post_recv(self, *requests: RecvWR) -> None:
        """Posts receive work requests, with one doorbell for all of them.

        Raises `ResourceError` if the queue has no room, `ValueError` for too many elements or if
        the SRQ is closed; nothing is posted then.
        """
        require_requests(requests, RecvWR)
        with self.context.lock:
            self._require_open()
            self._take_entries()
            outstanding = len(self._posted)
            if outstanding + len(requests) > self.max_wr:
                raise ResourceError(
                    f"{len(requests)} more work requests for SRQ {self.number}, which holds "
                    f"{self.max_wr} and has {outstanding}; allowed: {self.max_wr - outstanding}"
                )
            for request in requests:
                check_elements(request.sg, self._init_attr.max_sge)
            for request in requests:
                self._post(request)
            self.context.write(registers.RECEIVE_DOORBELL, qp=self.number, producer=self._producer)

    post_srq_recv = post_recv

    def _post(self, request: RecvWR) -> None:
        number = self._producer
        if number in self._posted:
            self._find_taker(number)
        self._posted[number] = Posted(
            number, number, 0, request.wr_id, WCOpcode.RECV, hidden=False, signaled=True
        )
        write_receive_entry(self._ring, number, request)
        self._producer = number + 1 & 0xFFFF

    def _find_taker(self, number: int) -> None:
        """Binds a request to the QP that has it since all 2^16 numbers before were used.

        If none has it, its message was lost with the writes of a QP that has stopped.
        """
        for qp_num, taking in self._qps.items():
            if read_taken(self.context, qp_num) == number:
                if (qp := taking()) is not None:
                    qp._receives.claim(number)
                    return
        del self._posted[number]

    def _take_entries(self) -> None:
        qps = [qp for taking in self._qps.values() if (qp := taking()) is not None]
        for cq in {qp.rcq for qp in qps}:
            cq._take_entries()

    # The limit

    def modify(self, *, srq_limit: int) -> None:
        """Has one event tell when there are fewer work requests to take than `srq_limit`.

        It is SRQ_LIMIT_REACHED, and comes at once if that is so already. After it, or with 0, there
        is no limit until the next call. Raises `ValueError` for more than `max_wr`.
        """
        if not 0 <= srq_limit <= self.max_wr:
            raise ValueError(f"srq_limit is {srq_limit}; allowed: 0 to {self.max_wr}")
        with self.context.lock:
            self._require_open()
            self.context.process_events()
            self._limit = srq_limit
            self._arm()

    def _arm(self) -> None:
        context = self.context
        context.write(registers.QP_NUMBER, qp=self.number)
        context.write(registers.SRQ_LIMIT, limit=self._limit, producer=self._producer)
        context.command(CommandOpcode.SRQ_LIMIT)

    def _told(self, event: AsyncEvent) -> bool:
        """Takes an event of this SRQ; whether the program is told of it. The lock is held."""
        if event.event_type != EventType.SRQ_LIMIT_REACHED:
            return True
        armed, self._limit = self._limit != 0, 0
        return armed

    def _events_lost(self) -> None:
        """Events did not come: that of the limit comes again. The lock is held."""
        if self._limit:
            self._arm()

    # Its QPs; the lock of the context is held

    def _bind(self, number: int, qp: TakingQP) -> None:
        """A new QP takes from here."""
        self._qps[number] = ref(qp)

    def _unbind(self, number: int) -> None:
        """Takes back a `_bind`."""
        self._qps.pop(number)

    def _has(self, index: int) -> bool:
        """Whether the request with that number is outstanding, and not known to be taken."""
        return index in self._posted

    def _take(self, index: int) -> Posted:
        """The request with that number, which is not outstanding here any more."""
        return self._posted.pop(index)

    @property
    def outstanding(self) -> int:
        """Requests that no QP is known to have taken."""
        return len(self._posted)

    def close(self) -> None:
        """Frees the SRQ; the QPs that take from it must be closed before, else `ResourceError`.

        What was posted and not taken never completes.
        """
        with self.context.lock:
            if self._closed:
                return
            if self._qps:
                raise ResourceError(
                    f"SRQ {self.number} is in use by QPs {sorted(self._qps)}; "
                    "allowed: an SRQ without QPs"
                )
            context = self.context
            context._forget(self)
            self.pd.children.pop(self, None)
            context.write(registers.QP_NUMBER, qp=self.number)
            context.command(CommandOpcode.SRQ_DESTROY)
            self._closed = True
            # Its events are in the ring: they are not for the next SRQ of this number.
            context.process_events()
            context.srqs.pop(self.number, None)
            context._srq_numbers.discard(self.number)
            context.resources.used.give(srqs=1)
            self._ring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedReceives:
    """The receive queue of a QP that takes from an SRQ, as far as it is the QP's.

    Attributes
    ----------
    posted: requests that the QP has taken and not completed, as far as that is known.
    """

    name = "receive"

    def __init__(self, srq: SRQ):
        self.srq = srq
        self.posted: deque[Posted] = deque()

    def claim(self, index: int) -> None:
        """The QP has taken the request with that number."""
        if self.srq._has(index):
            self.posted.append(self.srq._take(index))

    def is_posted(self, index: int) -> bool:
        """Whether the QP may complete the request with that number."""
        return any(each.index == index for each in self.posted) or self.srq._has(index)

    def has_lost_one(self, index: int) -> bool:
        """Never: the requests between two of one QP may be those of others."""
        return False

    def take(self, index: int) -> Posted | None:
        """The request with that number, which is completed; `None` if it is not outstanding."""
        if self.posted and self.posted[0].index == index:
            return self.posted.popleft()
        return self.srq._take(index) if self.srq._has(index) else None

    @property
    def allowed(self) -> str:
        """What may complete, in words."""
        return f"one that is outstanding in SRQ {self.srq.number}, or that the QP has taken"

    def of_message(self, msn: int) -> Sequence[Posted]:
        """What the message with that number has taken: the QP has one message under way."""
        return list(self.posted)

    def close(self) -> None:
        """What the QP has not completed is the program's again."""
        self.posted.clear()


def read_taken(device: Device, qp_num: int) -> int | None:
    """Number of the request that a QP has taken for a message that is not delivered, if any."""
    device.write(registers.QP_NUMBER, qp=qp_num)
    found = device.read(registers.QP_TAKEN)
    return found["index"] if found["taken"] else None
