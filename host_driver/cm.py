"""The connection manager: MPA startup over a byte stream, then the stream belongs to the QP.

The steps are in `cm_initiator`, `cm_listener` and `cm_responder`. RFC 5044 7.1, RFC 6581.
"""

import time
from typing import Unpack

from stagecoach.host_driver.cm_initiator import FIRST_FPDU_DELAY, ConnectOptions, Initiation
from stagecoach.host_driver.cm_listener import ConnectionListener
from stagecoach.host_driver.cm_responder import ConnectionRequest
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.full_operation import MAXIMUM_EMSS, MINIMUM_EMSS, await_rtr
from stagecoach.host_driver.mpa_exchange import DEFAULT_TIMEOUT
from stagecoach.host_driver.qp import QP

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


def connect(qp: QP, host: str, port: int, **options: Unpack[ConnectOptions]) -> bytes:
    """Connects a QP as MPA Initiator and returns the private data of the Reply.

    What was agreed is in `qp.connection`. `open_connection` is the same for an event loop.

    Parameters
    ----------
    private_data: for the peer, at most 508 bytes, 512 in revision 1.
    ord, ird: RDMA Reads under way from this end, and towards it; the device's limit if not given.
        The ORD comes down to the peer's IRD, and the IRD goes up to its ORD (RFC 6581, 9.1).
    negotiate_reads: False leaves ORD and IRD to the ULPs, which then must give fitting ones; the
        Request is one of revision 1 then, unless it is `peer_to_peer` (RFC 6581, 10).
    crc: whether this end wants CRCs; they are off only if neither end wants them.
    markers: whether this end wants Markers in what it receives.
    peer_to_peer: the peer may send first; the driver begins with an RTR frame of its own, of
        which no CQ tells (RFC 6581, 9.2). `rtr`: which ones are possible here.
    revision: of MPA, 2 if not given. 1 is RFC 5044 alone: ORD and IRD are not negotiated.
    emss: largest TCP payload in bytes; the connection's own if not given.
    timeout: seconds for the connection and MPA startup together, 10 if not given.
    first_fpdu_delay: seconds between the Reply and the first FPDU; see `FIRST_FPDU_DELAY`.
    keep_rejected: a connection that the peer refused stays open, and is in the exception.

    Raises `ConnectionRejected` if the peer refuses, another `StartupError` for everything else
    that goes wrong in startup; the QP can be connected again then, unless it was stopped after
    its RTR frame.
    """
    attempt = Initiation(qp, host, port, **options)
    stream = attempt.open()
    with attempt.using(stream):
        reply = attempt.send_request(stream).read(attempt.deadline)
        attempt.check(reply, stream)
        time.sleep(attempt.delay)
        await_rtr(qp, attempt.operate(reply, stream), attempt.deadline, stream.peer_address)
    return reply.private_data


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
