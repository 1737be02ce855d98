"""What both ends of rping have: a QP, buffers, and one Send buffer in each direction."""

from collections import deque
from typing import Any, Self

from stagecoach.host_driver import (
    MR,
    PD,
    QP,
    SGE,
    WC,
    AccessFlags,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    StagecoachError,
    StreamEnd,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.ulp.rping.completions import Completions
from stagecoach.ulp.rping.messages import ADVERTISEMENT_OCTETS

PATIENCE = 120.0
"""Seconds that the other side may take for its part of a ping that has begun, at most."""

_REQUESTS = 4

COMPLETIONS = 2 * _REQUESTS
"""That a link may have outstanding."""


class RpingError(StagecoachError):
    """The other side does not do what rping does."""


class PeerClosed(RpingError):
    """The other side closed the connection, or it was lost and the device does not know that."""


class PeerLost(RpingError):
    """The connection was reset, or timed out."""


class PeerSilent(RpingError):
    """The other side did nothing for too long."""


class Link:
    """A QP that is not connected yet, with a receive posted.

    Parameters
    ----------
    context: the open device; what is made from it is closed with `close`.
    completions: of all links of the device, with room for `COMPLETIONS` of each; its own if not
        given.
    patience: seconds that the other side may take for its part of a ping that has begun.
    """

    def __init__(
        self,
        context: Context,
        completions: Completions | None = None,
        patience: float = PATIENCE,
    ):
        self._patience = patience
        self.pd = PD(context)
        try:
            self._own = completions is None
            self._completions = completions or Completions(context, COMPLETIONS)
            cq = self._completions.cq
            cap = QPCap(max_send_wr=_REQUESTS, max_recv_wr=_REQUESTS)
            self.qp = QP(self.pd, QPInitAttr(cq, cq, cap))
            self._completions.add(self.qp)
            self._sent, self._received = (bytearray(ADVERTISEMENT_OCTETS) for _ in range(2))
            self._sent_mr = MR(self.pd, self._sent, AccessFlags(0))
            self._received_mr = MR(self.pd, self._received)
            self._messages: deque[bytes] = deque()
            self._post_receive()
        except BaseException:
            self.pd.close()
            raise

    def register(self, buffer: Any, access: AccessFlags) -> MR:
        """Registers a buffer for the peer of this link alone (RFC 5040, 8.1.1)."""
        return MR(self.pd, buffer, access, qp=self.qp)

    def _post_receive(self) -> None:
        mr = self._received_mr
        self.qp.post_recv(RecvWR(sg=[SGE(mr.addr, mr.length, mr.lkey)]))

    def send(self, octets: bytes) -> None:
        """Sends a message and waits until it has left."""
        self._sent[:] = octets
        mr = self._sent_mr
        self.qp.post_send(SendWR(sg=[SGE(mr.addr, mr.length, mr.lkey)]))
        self._complete(WCOpcode.SEND)

    def receive(self, what: str, seconds: float | None = None) -> bytes:
        """The next message, 16 bytes; waits for its patience, or other `seconds`.

        Raises `RpingError` for another length, `PeerClosed`, `PeerLost` and `PeerSilent`, which say
        `what` was waited for.
        """
        while not self._messages:
            self._take(what, self._patience if seconds is None else seconds)
        return self._messages.popleft()

    def move(self, opcode: WROpcode, local: MR, length: int, addr: int, rkey: int) -> None:
        """An RDMA Write or Read of `length` bytes; returns when it is complete."""
        element = SGE(local.addr, length, local.lkey)
        self.qp.post_send(SendWR(0, opcode, [element], remote_addr=addr, rkey=rkey))
        self._complete(WCOpcode[opcode.name])

    def _complete(self, opcode: WCOpcode) -> None:
        while self._take(f"the completion of {opcode.name}", self._patience) != opcode:
            pass

    def _take(self, what: str, seconds: float) -> WCOpcode:
        """Waits for a completion; a message that it brings is kept, and another receive posted."""
        found = self._completions.next(self.qp, seconds)
        if found is None:
            raise PeerSilent(f"nothing from the peer in {seconds:g} s; it still owed {what}")
        if found.status != WCStatus.SUCCESS:
            raise self._failure(found, what)
        if found.opcode == WCOpcode.RECV:
            if found.byte_len != ADVERTISEMENT_OCTETS:
                raise RpingError(
                    f"a Send of {found.byte_len} bytes; allowed: {ADVERTISEMENT_OCTETS}"
                )
            self._messages.append(bytes(self._received))
            self._post_receive()
        return found.opcode

    def _failure(self, found: WC, what: str) -> RpingError:
        if self.qp.cause != Cause.LLP_CLOSED:
            return RpingError(found.describe())
        how = self.qp.stream_end or StreamEnd.CLOSED
        error = PeerClosed if how is StreamEnd.CLOSED else PeerLost
        return error(f"{how.words}; it still owed {what}")

    def close(self) -> None:
        """Ends the connection, and frees all that the link has."""
        self.pd.close()
        self._completions.remove(self.qp)
        if self._own:
            self._completions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
