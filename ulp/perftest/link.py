"""What both ends have: two QPs, one for the exchange and one for the test, and a CQ for both."""

import mmap
import time
from collections import deque
from collections.abc import Callable
from typing import Self

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    AccessFlags,
    Cause,
    Context,
    QPCap,
    QPError,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    StreamEnd,
    WaitTimeout,
    WCOpcode,
    WCStatus,
)
from stagecoach.ulp.perftest.errors import PeerClosed, PerftestError
from stagecoach.ulp.perftest.messages import DESTINATION_OCTETS, shown

_SLOTS = 2
"""Receives that are posted for the exchange: the tools send the next message after the answer."""

_BATCH = 64
_SLICE = 0.1  # of waiting: Ctrl-C is heeded between two
_NAP = 50e-6  # between two looks at memory
_GRACE = 5.0
"""Seconds without progress for what the peer still owes when it has gone on with the exchange: that
is another connection, and may be the faster one."""


class Link:
    """The two QPs of an end, not connected yet.

    Parameters
    ----------
    context: the open device; what is made from it is closed with `close`.
    sends, receives: most that are outstanding on the QP of the test.
    patience: seconds without anything from the peer, after which it is given up.

    Attributes
    ----------
    control, data: the QPs of the exchange and of the test.
    completed: completions of the QP of the test, the oldest first.
    data_may_end: whether it is no error any more that the peer ends the connection of the test.
    """

    def __init__(self, context: Context, *, sends: int, receives: int, patience: float):
        self.context = context
        self.patience = patience
        self.completed: deque[WC] = deque()
        self._messages: deque[bytes] = deque()
        self.data_may_end = False
        self._sent = 0
        self._failed: PerftestError | None = None
        self._owed = "everything"
        self.pd = PD(context)
        try:
            self._cq = CQ(context, sends + receives + 2 * _SLOTS)
            self.control = self._qp(QPCap(_SLOTS, _SLOTS))
            self.data = self._qp(QPCap(sends, receives))
            # The first slot is for what is sent, the others for what comes.
            self._slots = mmap.mmap(-1, DESTINATION_OCTETS * (1 + _SLOTS))
            self._slots_mr = MR(self.pd, self._slots, qp=self.control)
            for slot in range(1, 1 + _SLOTS):
                self._post_receive(slot)
        except BaseException:
            self.pd.close()
            raise

    def _qp(self, cap: QPCap) -> QP:
        return QP(self.pd, QPInitAttr(self._cq, self._cq, cap))

    def register(self, octets: int, access: AccessFlags) -> MR:
        """Registers zeros for the peer of the test's QP alone (RFC 5040, 8.1.1)."""
        return MR(self.pd, mmap.mmap(-1, octets), access | AccessFlags.LOCAL_WRITE, qp=self.data)

    # The exchange

    def _element(self, slot: int, octets: int) -> SGE:
        return SGE(self._slots_mr.addr + DESTINATION_OCTETS * slot, octets, self._slots_mr.lkey)

    def _post_receive(self, slot: int) -> None:
        self.control.post_recv(RecvWR(slot, [self._element(slot, DESTINATION_OCTETS)]))

    def send(self, octets: bytes) -> None:
        """Sends a message of the exchange and waits until it has left."""
        self._slots[: len(octets)] = octets
        goal = self._sent + 1
        self.control.post_send(SendWR(sg=[self._element(0, len(octets))]))
        self.wait(lambda: self._sent >= goal, "the completion of a Send of the exchange")

    def receive(self, octets: int, what: str) -> bytes:
        """The next message of the exchange.

        Raises `PerftestError` for another length, and as `wait`.
        """
        self.wait(lambda: bool(self._messages), what)
        message = self._messages.popleft()
        if len(message) != octets:
            raise PerftestError(
                f"{what} has {len(message)} bytes ({shown(message)}); allowed: {octets}. "
                "Both ends need the same test"
            )
        return message

    @property
    def peer_went_on(self) -> bool:
        """Whether the peer has sent a message of the exchange that nobody has taken."""
        return bool(self._messages)

    # Waiting

    def wait(self, done: Callable[[], bool], what: str, *, memory: bool = False) -> None:
        """Takes completions until something is done.

        Parameters
        ----------
        what: the peer owes, for messages. memory: it may be done without any completion.

        Raises `PerftestError` if a QP has stopped, `PeerClosed`; `WaitTimeout` if for `patience`
        seconds nothing has completed, and the device has neither sent nor received an FPDU; sooner
        `PerftestError` if the peer has gone on with the exchange.
        """
        self._owed = what
        passed = self._fpdus()
        end = time.monotonic() + self.patience
        hurry = False
        while not done():
            # What came before the failure may have been enough.
            self.require_no_failure()
            if self.take(0.0 if memory else _SLICE):
                end = time.monotonic() + self._seconds
                continue
            if self.peer_went_on and not hurry:
                hurry = True
                end = time.monotonic() + self._seconds
            self._look_for_end()
            if memory:
                time.sleep(_NAP)
            if time.monotonic() > end:
                before, passed = passed, self._fpdus()
                if passed == before:
                    raise self._missing(what)
                end = time.monotonic() + self._seconds

    @property
    def _seconds(self) -> float:
        """For which the peer may do nothing."""
        return min(_GRACE, self.patience) if self.peer_went_on else self.patience

    def _missing(self, what: str) -> Exception:
        if self.peer_went_on:
            return PerftestError(
                f"the peer went on with the exchange, and still owes {what}; both ends need the "
                "same test and -n"
            )
        return WaitTimeout(f"{what}: nothing from the peer in {self.patience:g} s")

    def require_no_failure(self) -> None:
        """Raises the first failure of a QP, if there was one."""
        if self._failed is not None:
            raise self._failed

    @property
    def data_ended(self) -> bool:
        """Whether the connection of the test has ended."""
        return self.data.state == QPState.ERR

    def _fpdus(self) -> tuple[int, int]:
        return self.context.fpdus_sent, self.context.fpdus_received

    def take(self, seconds: float = 0.0) -> bool:
        """Takes completions, for the first one waiting some seconds; whether there was any."""
        found = self._cq.poll(_BATCH)
        if not found and seconds:
            try:
                found = self._cq.wait(1, seconds)
            except WaitTimeout:
                return False
        for each in found:
            self._keep(each)
        return bool(found)

    def _keep(self, found: WC) -> None:
        ours = found.qp_num == self.control.qp_num
        if found.status != WCStatus.SUCCESS:
            self._fail(self.control if ours else self.data, found.describe())
        elif not ours:
            self.completed.append(found)
        elif found.opcode == WCOpcode.RECV:
            start = DESTINATION_OCTETS * found.wr_id
            self._messages.append(self._slots[start : start + found.byte_len])
            self._post_receive(found.wr_id)
        else:
            self._sent += 1

    def _look_for_end(self) -> None:
        """Looks for a QP that has stopped; it may have had nothing to complete."""
        for qp in (self.data, self.control):
            if qp.state == QPState.ERR:
                self._fail(qp, str(QPError(qp.qp_num, qp.cause, qp.terminate, qp.stream_end)))

    def _fail(self, qp: QP, text: str) -> None:
        """Keeps the first failure, for who waits."""
        closed = qp.cause == Cause.LLP_CLOSED
        ended = closed or qp.cause == Cause.LLP_CLOSED_INSIDE_FPDU
        if self._failed is not None or (ended and self.data_may_end and qp is self.data):
            return
        name = "exchange" if qp is self.control else "test"
        how = qp.stream_end or StreamEnd.CLOSED
        if not closed:
            self._failed = PerftestError(f"connection of the {name}: {text}")
        elif how is StreamEnd.CLOSED:
            self._failed = PeerClosed(
                f"the peer closed the connection of the {name}; it still owed {self._owed}"
            )
        else:
            self._failed = PeerClosed(
                f"connection of the {name}: {how.words}; it still owed {self._owed}"
            )

    # The end

    def await_end(self, qp: QP, seconds: float) -> None:
        """Waits until the peer has ended a connection, at most some seconds."""
        end = time.monotonic() + seconds
        while qp.state != QPState.ERR and time.monotonic() < end:
            self.take(_SLICE)

    def close(self) -> None:
        """Ends the connections, and frees all that the link has."""
        self.pd.close()
        self._cq.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
