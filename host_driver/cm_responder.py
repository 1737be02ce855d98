"""The connection manager as MPA Responder: answering a Request (RFC 5044 7.1, RFC 6581).

`ConnectionRequest.accept` waits in its thread, `cm_async.accept_connection` in an event loop.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypedDict, Unpack

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.dropped import Droppable
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import require_type
from stagecoach.host_driver.full_operation import (
    await_rtr,
    check_emss,
    choose_emss,
    enter_full_operation,
)
from stagecoach.host_driver.mpa_errors import InsufficientIRD, StartupError, StartupStep
from stagecoach.host_driver.mpa_exchange import (
    DEFAULT_TIMEOUT,
    Deadline,
    await_first_fpdu,
    require_quiet,
    send_octets,
)
from stagecoach.host_driver.mpa_negotiation import (
    accepting_reply,
    check_request,
    limit_reads,
    rejecting_reply,
    require_revision,
    told_reads,
)
from stagecoach.host_driver.mpa_startup import ENHANCED_REVISION, RTR, StartupFrame
from stagecoach.host_driver.mpa_terms import DEFAULT_RTR, Connection, Terms, octets_of
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.transport.base import ByteStream, TransportError, TransportTimeout


class AcceptOptions(TypedDict, total=False):
    """What `accept` and `accept_connection` may be asked for; the former describes it."""

    private_data: bytes
    ord: int | None
    ird: int | None
    minimum_ord: int
    crc: bool
    markers: bool
    rtr: RTR
    revision: int
    peer_to_peer: bool
    emss: int | None
    timeout: float


class ConnectionRequest(Droppable):
    """A peer that sent a good MPA Request and waits for the Reply: `accept` it, or `reject` it.

    Attributes
    ----------
    private_data: what the peer sent with its request.
    revision: of MPA, 1 or 2; the Reply has the same.
    ird, ord: the peer's, `None` if it leaves them to the ULP (RFC 6581, 9.1).
    peer_to_peer, rtr: whether the peer begins with an RTR frame, and which it can send.
    crc, markers: whether the peer wants CRCs, and Markers in what it receives.
    peer_address, local_address: host and port of both ends.
    """

    def __init__(self, context: Context, stream: ByteStream, request: StartupFrame):
        self._context = context
        self._stream: ByteStream | None = stream
        self._lock = threading.Lock()
        self._request = request
        self.private_data = request.private_data
        self.revision = request.revision
        self.ird, self.ord = told_reads(request.ird), told_reads(request.ord)
        self.peer_to_peer, self.rtr = request.peer_to_peer, request.agreed_rtr
        self.crc, self.markers = request.crc, request.markers
        context._adopt(self)
        self._opened(context)

    def __repr__(self) -> str:
        stream = self._stream
        peer = "answered or closed" if stream is None else "from {}:{}".format(*stream.peer_address)
        return f"<ConnectionRequest {peer}, IRD {self.ird}, ORD {self.ord}>"

    @property
    def peer_address(self) -> tuple[str, int]:
        """Host and port of the Initiator."""
        return self._require_stream().peer_address

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""
        return self._require_stream().local_address

    def _require_stream(self) -> ByteStream:
        self._context.lock.check()
        if self._stream is None:
            raise StartupError("the request was answered or closed; allowed: one answer")
        return self._stream

    def _take_stream(self) -> ByteStream:
        self._context.lock.check()
        with self._lock:
            stream = self._require_stream()
            self._stream = None
            self._closed = True
        self._context._forget(self)
        return stream

    def accept(self, qp: QP | None, **options: Unpack[AcceptOptions]) -> "AcceptedRequest":
        """Accepts: sends the Reply and connects the QP as MPA Responder.

        The QP sends nothing before the first FPDU has arrived (RFC 5044, 7.1.2 item 4). With a
        `peer_to_peer` request that is the RTR frame, and this returns when it comes: the QP may
        send at once then. What was agreed is in `qp.connection`. `accept_connection` is the same
        for an event loop.

        Parameters
        ----------
        qp: `None` to send the Reply alone: no QP is needed before the peer sends its first FPDU.
            Wait for that with what is returned, and connect a QP with receives then.
        minimum_ord: refuse a peer whose IRD is smaller, telling it (RFC 6581, 9.1).
        rtr: RTR frames that this end takes. A Send takes a receive of the driver, so it is
            possible only if none is posted before this returns.
        revision: of MPA; 1 takes no Request of revision 2, like an end without RFC 6581, and
            closes the connection without a Reply (RFC 5044, 7.1.1).
        peer_to_peer: refuse a peer that does not begin with an RTR frame.
        timeout: seconds for the Reply and the RTR frame, or without a QP for the first FPDU; 10 if
            not given.
        Others as in `connect`. Private data has at most 508 bytes, 512 if the Request has no
        IRD and ORD. All options have defaults: those of `connect`, 0 for `minimum_ord`, and for
        `rtr` a Write or a Read of length 0, any revision, any peer.

        Raises `ValueError` for arguments that do not fit, and the request can still be answered;
        `StartupError` for what goes wrong in startup, and the connection is closed.
        """
        accepted = self._send_reply(qp, **options)
        if qp is not None:
            if accepted.connection.peer_to_peer:
                accepted.wait()
            accepted.connect(qp)
        return accepted

    def _send_reply(
        self,
        qp: QP | None,
        *,
        private_data: bytes = b"",
        ord: int | None = None,
        ird: int | None = None,
        minimum_ord: int = 0,
        crc: bool = True,
        markers: bool = False,
        rtr: RTR = DEFAULT_RTR,
        revision: int = ENHANCED_REVISION,
        peer_to_peer: bool = False,
        emss: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> "AcceptedRequest":
        """The first step of `accept`: sends the Reply, which promises what `qp` can do."""
        if qp is not None:
            self._require_usable(qp)
        request = self._request
        terms = Terms.check(
            self._context.attr.max_qp_rd_atom,
            ord=ord,
            ird=ird,
            crc=crc,
            markers=markers,
            rtr=rtr,
            private_data=private_data,
        )
        if not 0 <= minimum_ord <= terms.ord:
            raise ValueError(f"minimum_ord {minimum_ord}; allowed: 0 to the ORD, {terms.ord}")
        check_emss(emss)
        # A QP with an SRQ has no receive of its own for the RTR frame.
        receives_posted = qp is None or qp.srq is not None or qp.receives_posted > 0
        reply, connection = accepting_reply(terms, request, receives_posted=receives_posted)
        octets = reply.encode()
        deadline = Deadline(timeout)
        require_revision(revision, peer_to_peer=peer_to_peer)
        self._refuse_unfit(minimum_ord, revision, peer_to_peer)
        stream = self._take_stream()
        with _closed_if_it_fails(stream):
            segment = choose_emss(stream, emss)
            require_quiet(stream)
            send_octets(stream, octets, StartupStep.REPLY, deadline)
        return AcceptedRequest(self._context, stream, connection, segment, deadline)

    def _require_usable(self, qp: QP) -> None:
        require_type("qp", qp, QP)
        if qp.context is not self._context:
            raise ValueError(
                "the QP belongs to another device; allowed: a QP of the listener's device"
            )
        qp._require(QPState.INIT)

    def _refuse_unfit(self, minimum_ord: int, revision: int, peer_to_peer: bool) -> None:
        """Rejects a peer with which no QP can be connected, and raises why."""
        if self.revision > revision:
            self.close()
            raise StartupError(
                f"MPA revision {self.revision} in the Request; allowed here: {revision}"
            )
        if peer_to_peer and not self.peer_to_peer:
            self.reject()
            raise StartupError(
                "the Request does not ask for a peer-to-peer connection; allowed: one that does"
            )
        try:
            check_request(self._request, minimum_ord=minimum_ord)
        except InsufficientIRD as error:
            self.reject(ord=error.required)
            raise

    def reject(
        self,
        private_data: bytes = b"",
        *,
        ord: int | None = None,
        keep_open: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> ByteStream | None:
        """Refuses: sends a Reply that rejects, and closes the connection.

        Parameters
        ----------
        ord: the ORD that this end needs, told to the peer (RFC 6581, 9.1).
        keep_open: return the TCP connection, open, for other purposes (RFC 5044, 7.1.2 item 2).

        Raises `ValueError` for arguments that do not fit, and the request can still be answered.
        A peer that has gone is no error.
        """
        limit = self._context.attr.max_qp_rd_atom
        needed = limit_reads(limit, self.ird) if ord is None else ord
        octets = rejecting_reply(
            self._request, octets_of(private_data), ird=limit, ord=needed
        ).encode()
        deadline = Deadline(timeout)
        stream = self._take_stream()
        try:
            stream.sendall(octets, deadline.left)
        except TransportError:
            pass  # the peer has gone: nobody is left to be told
        except BaseException:
            keep_open = False
            raise
        finally:
            if not keep_open:
                stream.close()
        return stream if keep_open else None

    def close(self) -> None:
        """Closes the connection without a Reply, unless the request has been answered."""
        self._context.lock.check()
        with self._lock:
            stream, self._stream = self._stream, None
            self._closed = True
        if stream is not None:
            self._context._forget(self)
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AcceptedRequest(Droppable):
    """A peer whose Request was accepted, and that has to send its first FPDU next.

    A program with many peers takes a QP only when that comes: a peer that falls silent costs none.
    If it was accepted with a QP, only `connection` is of use.

    Attributes
    ----------
    connection: what was agreed. deadline: of the first FPDU.
    """

    def __init__(
        self,
        context: Context,
        stream: ByteStream,
        connection: Connection,
        emss: int,
        deadline: Deadline,
    ):
        self.connection, self.deadline = connection, deadline
        self._context, self._stream, self._emss = context, stream, emss
        context._adopt(self)
        self._opened(context)

    def __repr__(self) -> str:
        host, port = self.peer_address
        about = f"IRD {self.connection.ird}, ORD {self.connection.ord}"
        return f"<AcceptedRequest from {host}:{port}, {about}>"

    @property
    def peer_address(self) -> tuple[str, int]:
        """Host and port of the Initiator."""
        return self._stream.peer_address

    def wait(self) -> None:
        """Waits until the first FPDU begins to arrive.

        Raises `StartupError` if it does not in the time of `ConnectionRequest.accept`; the
        connection is closed then.
        """
        self._context.lock.check()
        with self._closed_if_it_fails():
            await_first_fpdu(self._stream, self.deadline)

    def poll(self) -> bool:
        """Whether it has begun by now; raises as `wait`."""
        self._context.lock.check()
        try:
            self._stream.wait_readable(0.0)
        except TransportTimeout:
            if not self.deadline.left:
                self.wait()  # it raises, unless a byte has just come
            return False
        except TransportError:
            self.wait()
        return True

    def connect(self, qp: QP) -> None:
        """Connects a QP as MPA Responder. Raises as `ConnectionRequest.accept`."""
        self._context.lock.check()
        with self._closed_if_it_fails():
            self._operate(qp)
            await_rtr(qp, self.connection, self.deadline, self.peer_address)

    def _operate(self, qp: QP) -> None:
        """The first step of `connect`: gives the stream to the QP."""
        enter_full_operation(qp, self._stream, self.connection, self._emss)
        self._forget()

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        """Closes the connection at an exception; that of a transport becomes a `StartupError`."""
        with _closed_if_it_fails(self._stream, self._forget):
            yield

    def _forget(self) -> None:
        self._closed = True
        self._context._forget(self)

    def close(self) -> None:
        """Closes the connection, unless it was given to a QP."""
        self._context.lock.check()
        self._forget()
        self._stream.close()


@contextmanager
def _closed_if_it_fails(
    stream: ByteStream, also: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Closes the stream at an exception; that of a transport becomes a `StartupError`."""
    try:
        yield
    except BaseException as error:
        # No Terminate: nothing may be sent before the first FPDU (RFC 5044, 7.1.2 item 4).
        stream.close()
        also()
        if isinstance(error, TransportError):
            raise StartupError(f"MPA startup: {error}") from error
        raise
