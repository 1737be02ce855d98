"""A QP of RPC-over-RDMA: Sends and receives in registered buffers, completions awaited."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count

from stagecoach.host_driver import (
    PD,
    QP,
    WC,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    QPStateError,
    RecvWR,
    SendFlags,
    SendWR,
    StagecoachError,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.ulp.oncrpc.budget import Budget
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.rpcrdma.errors import UnexpectedCompletion
from stagecoach.ulp.rpcrdma.pump import CompletionPump
from stagecoach.ulp.rpcrdma.slots import Slots

SEND_REQUESTS = 96
"""Work requests that may be in the send queue."""

_BATCH = SEND_REQUESTS // 4
"""The last of so many is signaled, so that room comes back before the queue is full."""

DRAIN_SECONDS = 1.0
"""What was sent may take so long to leave when this end closes the connection."""

OnMessage = Callable[[int, bytes, int | None], None]
"""Called with the slot of a receive, the bytes of its Send, and the STag that it invalidated."""


@dataclass(frozen=True, slots=True)
class _Posted:
    """A signaled request that is outstanding, with the silent ones before it.

    Attributes
    ----------
    opcode: that its completion has. requests: how many are done then. done: who waits for them.
    """

    opcode: WCOpcode
    requests: int
    done: "asyncio.Future[None]"


class Channel:
    """One connection, made in the loop that runs, and used in it alone.

    Whatever completes in another way than was posted, such as Immediate Data of the peer, ends the
    connection with `UnexpectedCompletion`: nothing else is done with it.

    Parameters
    ----------
    context: the open device.
    receives: that are posted all the time, but for those whose slots are not given back.
    sends: that may be under way. octets: of each.
    on_message: for each Send that comes. on_end: once, when the connection is over, with why.

    Attributes
    ----------
    pd: of the connection alone (RFC 8166, 8.1.1). qp: not connected yet.
    error: why it is over, `None` as long as it is not.

    Raises `ResourceError` or `QuotaExceeded` if the device has too little left.
    """

    def __init__(
        self,
        context: Context,
        *,
        receives: int,
        sends: int,
        octets: int,
        on_message: OnMessage,
        on_end: Callable[[RpcConnectionError], None],
    ):
        self.loop = asyncio.get_running_loop()
        self.error: RpcConnectionError | None = None
        self._on_message, self._on_end = on_message, on_end
        self._numbers = count()
        # What is outstanding, the oldest first; no number is given twice.
        self._posted: dict[int, _Posted] = {}
        self._receiving: dict[int, int] = {}  # number to slot
        self._room = Budget(SEND_REQUESTS)
        self._send_slots, self._free_slots = Budget(sends), list(range(sends))
        self._closing: asyncio.Task[None] | None = None
        self._drain_seconds: float | None = None
        self._pump = CompletionPump.acquire(context)
        with ExitStack() as undo:
            undo.callback(self._pump.release)
            self.pd = PD(context)
            undo.callback(self.pd.close)
            cap = QPCap(SEND_REQUESTS, receives)
            self.qp = QP(self.pd, QPInitAttr(self._pump.cq, self._pump.cq, cap))
            self._receives = Slots(self.pd, receives, octets, AccessFlags.LOCAL_WRITE)
            self._sends = Slots(self.pd, sends, octets, AccessFlags(0))
            self._pump.add(self)
            self.qp.post_recv(*(self._receive(slot) for slot in range(receives)))
            undo.pop_all()

    def _receive(self, slot: int) -> RecvWR:
        number = next(self._numbers)
        self._receiving[number] = slot
        return RecvWR(number, [self._receives.element(slot)])

    @property
    def ord(self) -> int:
        """RDMA Reads that may be under way from this end."""
        return 0 if self.qp.connection is None else self.qp.connection.ord

    @property
    def ird(self) -> int:
        """RDMA Reads that may be under way towards this end."""
        return 0 if self.qp.connection is None else self.qp.connection.ird

    def give_back(self, slot: int) -> None:
        """Posts the receive of a slot again."""
        if self.error is None:
            self.qp.post_recv(self._receive(slot))

    async def post(self, requests: Sequence[SendWR]) -> "asyncio.Future[None]":
        """Posts requests that are not signaled, in order; the future is done when all are complete.

        What others post may come between them, but not between the last 24. Raises, as the future
        does, `RpcConnectionError` if the connection is over.
        """
        assert requests
        for start in range(0, len(requests), _BATCH):
            batch = requests[start : start + _BATCH]
            await self._room.take(len(batch))
            future = self._post_batch(batch)
        return future

    def _post_batch(self, batch: Sequence[SendWR]) -> "asyncio.Future[None]":
        number, future = next(self._numbers), self.loop.create_future()
        future.add_done_callback(_look_at)
        last = replace(batch[-1], wr_id=number, send_flags=SendFlags.SIGNALED)
        self._posted[number] = _Posted(last.opcode.completed_as, len(batch), future)
        try:
            self.require_open()
            self.qp.post_send(*batch[:-1], last)
        except BaseException as error:
            del self._posted[number]
            self._room.give(len(batch))
            if isinstance(error, QPStateError):
                raise RpcConnectionError(str(error)) from error
            raise
        return future

    async def send(
        self, octets: bytes, *, before: Sequence[SendWR] = (), invalidate: int | None = None
    ) -> "asyncio.Future[None]":
        """Posts a Send after the requests `before` it, with which it is complete.

        `invalidate` is an STag of the peer that the Send invalidates.
        """
        await self._send_slots.take()
        slot = self._free_slots.pop()
        try:
            self._sends.view(slot)[: len(octets)] = octets
            request = SendWR(
                opcode=WROpcode.SEND if invalidate is None else WROpcode.SEND_WITH_INV,
                sg=[self._sends.element(slot, len(octets))],
                rkey=invalidate or 0,
                send_flags=SendFlags(0),
            )
            future = await self.post([*before, request])
        except BaseException:
            self._give_slot(slot)
            raise
        future.add_done_callback(lambda _: self._give_slot(slot))
        return future

    def _give_slot(self, slot: int) -> None:
        self._free_slots.append(slot)
        self._send_slots.give()

    def require_open(self) -> None:
        """Raises `error` if the connection is over: then nothing can be registered any more."""
        if self.error is not None:
            raise self.error

    # Called by the pump

    def deliver(self, completions: list[WC]) -> None:
        """Completions of the QP."""
        for found in completions:
            if self.error is not None:
                return
            if found.status != WCStatus.SUCCESS:
                self.lost(found.describe())
            elif found.opcode == WCOpcode.RECV and self._is_next_receive(found):
                self._received(found)
            elif self._is_next_send(found):
                self._sent(found)
            else:
                self._end(UnexpectedCompletion(found))
                self._begin_closing()

    def _is_next_receive(self, found: WC) -> bool:
        """Whether a Send of the peer has taken the oldest receive."""
        flags = found.wc_flags & ~(WCFlags.WITH_INV | WCFlags.SOLICITED)
        is_next = found.wr_id == next(iter(self._receiving), None)
        return is_next and found.byte_len <= self._receives.octets and not flags

    def _is_next_send(self, found: WC) -> bool:
        """Whether the oldest signaled request is done."""
        number, posted = next(iter(self._posted.items()), (None, None))
        return found.wr_id == number and posted is not None and found.opcode == posted.opcode

    def _received(self, found: WC) -> None:
        slot = self._receiving.pop(found.wr_id)
        octets = bytes(self._receives.view(slot)[: found.byte_len])
        invalidated = found.wc_flags & WCFlags.WITH_INV
        self._on_message(slot, octets, found.invalidated_rkey if invalidated else None)

    def _sent(self, found: WC) -> None:
        posted = self._posted.pop(found.wr_id)
        self._room.give(posted.requests)
        if not posted.done.done():
            posted.done.set_result(None)

    def lost(self, why: str) -> None:
        """The connection is over; what the QP has is freed."""
        if self.error is None:
            self._end(RpcConnectionError(f"the connection is lost: {why}"))
            self._begin_closing()

    def _end(self, error: RpcConnectionError) -> None:
        self.error = error
        # What was posted hears of it first, in its order.
        for posted in self._posted.values():
            if not posted.done.done():
                posted.done.set_exception(error)
        self._room.fail(error)
        self._send_slots.fail(error)
        self._on_end(error)

    # The end

    async def close(self) -> None:
        """Ends the connection; when it returns nothing of it is registered. Repeatable."""
        if self.error is None:
            self._drain_seconds = DRAIN_SECONDS
            self._end(RpcConnectionError("the connection was closed"))
        await asyncio.shield(self._begin_closing())

    def _begin_closing(self) -> "asyncio.Task[None]":
        if self._closing is None:
            self._closing = self.loop.create_task(asyncio.to_thread(self._free))
        return self._closing

    def _free(self) -> None:
        """May wait for the peer, so it is called in a thread."""
        with ExitStack() as steps:
            steps.callback(self._pump.release)
            steps.callback(self.pd.close)
            steps.callback(self.qp.close)
            steps.callback(self._pump.remove, self)
            steps.callback(self._disconnect)

    def _disconnect(self) -> None:
        with suppress(StagecoachError):  # it has no stream, or the device is gone
            self.qp.disconnect(drain=self._drain_seconds)


def _look_at(future: "asyncio.Future[None]") -> None:
    """Nobody may be waiting for what failed: the connection itself tells."""
    if not future.cancelled():
        future.exception()
