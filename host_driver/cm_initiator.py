"""The connection manager as MPA Initiator: what it does between its waits (RFC 5044 7.1, RFC 6581).

`cm.connect` waits in its thread, `cm_async.open_connection` in an event loop.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import require_type
from stagecoach.host_driver.full_operation import check_emss, choose_emss, enter_full_operation
from stagecoach.host_driver.mpa_errors import (
    ConnectionRejected,
    InsufficientIRD,
    NoMatchingRTR,
    StartupError,
    StartupStep,
    StartupTimeout,
)
from stagecoach.host_driver.mpa_exchange import (
    DEFAULT_TIMEOUT,
    Deadline,
    FrameReader,
    open_stream,
    send_octets,
)
from stagecoach.host_driver.mpa_negotiation import (
    check_reply,
    request_frame,
    settle,
    told_reads,
)
from stagecoach.host_driver.mpa_startup import ENHANCED_REVISION, RTR, StartupFrame
from stagecoach.host_driver.mpa_terminate import SetupError, terminate_fpdu
from stagecoach.host_driver.mpa_terms import DEFAULT_RTR, Connection, Terms
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.transport.base import ByteStream, TransportError

FIRST_FPDU_DELAY = 0.02
"""Seconds from the Reply to the first FPDU: Linux siw sends the one before it can take the other,
and does not look at an FPDU that comes at once until more bytes follow."""


class ConnectOptions(TypedDict, total=False):
    """What `connect` and `open_connection` may be asked for; `connect` describes it."""

    private_data: bytes
    ord: int | None
    ird: int | None
    negotiate_reads: bool
    crc: bool
    markers: bool
    peer_to_peer: bool
    rtr: RTR
    revision: int
    emss: int | None
    timeout: float
    first_fpdu_delay: float
    keep_rejected: bool


class Initiation:
    """One try to connect a QP. Its steps are called in order; none waits long but `open`.

    Attributes
    ----------
    qp: the QP. deadline: of all steps together. delay: seconds between Reply and first FPDU.
    """

    def __init__(
        self,
        qp: QP,
        host: str,
        port: int,
        *,
        private_data: bytes = b"",
        ord: int | None = None,
        ird: int | None = None,
        negotiate_reads: bool = True,
        crc: bool = True,
        markers: bool = False,
        peer_to_peer: bool = False,
        rtr: RTR = DEFAULT_RTR,
        revision: int = ENHANCED_REVISION,
        emss: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        first_fpdu_delay: float = FIRST_FPDU_DELAY,
        keep_rejected: bool = False,
    ):
        require_type("qp", qp, QP)
        self.qp = qp
        qp.context._require_open()
        qp._require(QPState.INIT)
        self._peer = host, port
        self._terms = Terms.check(
            qp.context.attr.max_qp_rd_atom,
            ord=ord,
            ird=ird,
            crc=crc,
            markers=markers,
            rtr=rtr,
            private_data=private_data,
        )
        check_emss(emss)
        self._emss = emss
        self._request = request_frame(
            self._terms,
            revision=revision,
            negotiate_reads=negotiate_reads,
            peer_to_peer=peer_to_peer,
        )
        self._octets = self._request.encode()
        self._keep_rejected = keep_rejected
        self.deadline = Deadline(timeout)
        self.delay = Deadline(first_fpdu_delay, "first_fpdu_delay").seconds

    def open(self) -> ByteStream:
        """Waits for the TCP connection; raises `StartupError`."""
        return open_stream(self.qp.context.transport, *self._peer, self.deadline)

    @contextmanager
    def using(self, stream: ByteStream) -> Iterator[None]:
        """Closes the stream at an exception; that of a transport becomes a `StartupError`."""
        try:
            yield
        except ConnectionRejected as rejection:
            if rejection.stream is None:
                stream.close()
            raise
        except TransportError as error:
            stream.close()
            host, port = self._peer
            raise StartupError(f"MPA startup with {host}:{port}: {error}") from error
        except BaseException:
            stream.close()
            raise

    def send_request(self, stream: ByteStream) -> FrameReader:
        """Sends the Request; returns what reads the Reply."""
        self._segment = choose_emss(stream, self._emss)
        send_octets(stream, self._octets, StartupStep.REQUEST, self.deadline)
        return FrameReader(stream, reply=True, enhanced=self._request.enhanced)

    def check(self, reply: StartupFrame, stream: ByteStream) -> None:
        """Raises if the peer refuses, or no QP can be connected to it. `delay` begins now."""
        if reply.reject:
            raise ConnectionRejected(
                reply.private_data,
                revision=reply.revision,
                ird=told_reads(reply.ird),
                ord=told_reads(reply.ord),
                stream=stream if self._keep_rejected else None,
            )
        check_reply(self._request, reply)
        if self.delay > self.deadline.left:
            raise StartupTimeout(
                StartupStep.FIRST_FPDU,
                self.deadline.seconds,
                f"first_fpdu_delay is {self.delay} s",
            )

    def operate(self, reply: StartupFrame, stream: ByteStream) -> Connection:
        """From an accepting Reply to Full Operation; the Responder is told if that fails."""
        try:
            connection = settle(self._terms, self._request, reply)
            enter_full_operation(self.qp, stream, connection, self._segment)
            return connection
        except BaseException as error:
            _terminate(stream, reply, _setup_error(error))
            raise


def _setup_error(error: BaseException) -> SetupError:
    match error:
        case InsufficientIRD():
            return SetupError.INSUFFICIENT_IRD
        case NoMatchingRTR():
            return SetupError.NO_MATCHING_RTR
        case _:
            return SetupError.LOCAL_CATASTROPHIC


def _terminate(stream: ByteStream, reply: StartupFrame, code: SetupError) -> None:
    """Sends a Terminate as the first FPDU, if the Responder knows RFC 6581 (9.3)."""
    if not reply.enhanced:
        return
    with contextlib.suppress(TransportError):  # nobody is left to be told
        stream.sendall(terminate_fpdu(code, markers=reply.markers), 0.0)
