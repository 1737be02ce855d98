"""The connection manager: MPA startup over a byte stream, then the stream belongs to the QP.

This end as Initiator; the Responder is in `cm_listener` and `cm_responder`. RFC 5044 7.1, RFC 6581.
"""

import contextlib
import time

from stagecoach.host_driver.cm_listener import ConnectionListener
from stagecoach.host_driver.cm_responder import ConnectionRequest
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import require_type
from stagecoach.host_driver.full_operation import (
    MAXIMUM_EMSS,
    MINIMUM_EMSS,
    await_rtr,
    check_emss,
    choose_emss,
    enter_full_operation,
)
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

__all__ = [
    "DEFAULT_TIMEOUT",
    "FIRST_FPDU_DELAY",
    "MAXIMUM_EMSS",
    "MINIMUM_EMSS",
    "ConnectionListener",
    "ConnectionRequest",
    "connect",
    "listen",
]

FIRST_FPDU_DELAY = 0.02
"""Seconds from the Reply to the first FPDU: Linux siw sends the one before it can take the other,
and does not look at an FPDU that comes at once until more octets follow."""


def connect(
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
) -> bytes:
    """Connects a QP as MPA Initiator and returns the private data of the Reply.

    What was agreed is in `qp.connection`.

    Parameters
    ----------
    private_data: for the peer, at most 508 octets, 512 in revision 1.
    ord, ird: RDMA Reads under way from this end, and towards it; the device's limit if not given.
        The ORD comes down to the peer's IRD, and the IRD goes up to its ORD (RFC 6581, 9.1).
    negotiate_reads: False leaves ORD and IRD to the ULPs, which then must give fitting ones; the
        Request is one of revision 1 then, unless it is `peer_to_peer` (RFC 6581, 10).
    crc: whether this end wants CRCs; they are off only if neither end wants them.
    markers: whether this end wants Markers in what it receives.
    peer_to_peer: the peer may send first; the driver begins with an RTR frame of its own, of
        which no CQ tells (RFC 6581, 9.2). `rtr`: which ones are possible here.
    revision: of MPA. 1 is RFC 5044 alone: ORD and IRD are not negotiated.
    emss: largest TCP payload in octets; the connection's own if not given.
    timeout: seconds for the connection and MPA startup together.
    first_fpdu_delay: seconds between the Reply and the first FPDU; see `FIRST_FPDU_DELAY`.
    keep_rejected: a connection that the peer refused stays open, and is in the exception.

    Raises `ConnectionRejected` if the peer refuses, another `StartupError` for everything else
    that goes wrong in startup; the QP can be connected again then, unless it was stopped after
    its RTR frame.
    """
    require_type("qp", qp, QP)
    context = qp.context
    context.require_open()
    qp.require(QPState.INIT)
    terms = Terms.check(
        context.attr.max_qp_rd_atom,
        ord=ord,
        ird=ird,
        crc=crc,
        markers=markers,
        rtr=rtr,
        private_data=private_data,
    )
    check_emss(emss)
    request = request_frame(
        terms, revision=revision, negotiate_reads=negotiate_reads, peer_to_peer=peer_to_peer
    )
    octets = request.encode()
    deadline = Deadline(timeout)
    delay = Deadline(first_fpdu_delay, "first_fpdu_delay").seconds
    stream = open_stream(context.transport, host, port, deadline)
    try:
        segment = choose_emss(stream, emss)
        send_octets(stream, octets, StartupStep.REQUEST, deadline)
        reader = FrameReader(stream, reply=True, enhanced=request.enhanced)
        reply = reader.read(deadline)
        if reply.reject:
            raise _rejection(reply, stream if keep_rejected else None)
        check_reply(request, reply)
        if delay > deadline.left:
            raise StartupTimeout(
                StartupStep.FIRST_FPDU, deadline.seconds, f"first_fpdu_delay is {delay} s"
            )
        time.sleep(delay)
        connection = _operate(qp, stream, terms, request, reply, segment)
        await_rtr(qp, connection, deadline)
    except ConnectionRejected as rejection:
        if rejection.stream is None:
            stream.close()
        raise
    except TransportError as error:
        stream.close()
        raise StartupError(f"MPA startup with {host}:{port}: {error}") from error
    except BaseException:
        stream.close()
        raise
    return reply.private_data


def _rejection(reply: StartupFrame, stream: ByteStream | None) -> ConnectionRejected:
    return ConnectionRejected(
        reply.private_data,
        revision=reply.revision,
        ird=told_reads(reply.ird),
        ord=told_reads(reply.ord),
        stream=stream,
    )


def _operate(
    qp: QP,
    stream: ByteStream,
    terms: Terms,
    request: StartupFrame,
    reply: StartupFrame,
    emss: int,
) -> Connection:
    """From an accepting Reply to Full Operation; the Responder is told if that fails."""
    try:
        connection = settle(terms, request, reply)
        enter_full_operation(qp, stream, connection, emss)
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


def listen(
    context: Context,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    backlog: int = 64,
    request_timeout: float = DEFAULT_TIMEOUT,
) -> ConnectionListener:
    """Listens for peers; see `ConnectionListener`."""
    return ConnectionListener(context, host, port, backlog=backlog, request_timeout=request_timeout)
