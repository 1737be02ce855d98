"""Brings a QP and its stream from MPA startup into Full Operation, the RTR frame included."""

from collections.abc import Iterator
from contextlib import contextmanager

from stagecoach.host_driver.enums import QPState, WROpcode
from stagecoach.host_driver.errors import WaitTimeout, describe
from stagecoach.host_driver.mpa_errors import StartupError, StartupStep, StartupTimeout
from stagecoach.host_driver.mpa_exchange import Deadline
from stagecoach.host_driver.mpa_startup import RTR
from stagecoach.host_driver.mpa_terms import Connection
from stagecoach.host_driver.qp import FLUSH_SECONDS, QP
from stagecoach.host_driver.transport.base import ByteStream
from stagecoach.host_driver.wr import RecvWR, SendWR

MINIMUM_EMSS = 128
MAXIMUM_EMSS = 65535

# Nobody checks the STag and the Tagged Offset of a zero-length message (RFC 5041, 5.2). Some
# devices take STag 0 for something special.
_RTR_FRAMES = {
    RTR.WRITE: SendWR(opcode=WROpcode.RDMA_WRITE, rkey=1),
    RTR.READ: SendWR(opcode=WROpcode.RDMA_READ, rkey=1),
    RTR.SEND: SendWR(opcode=WROpcode.SEND),
}


def check_emss(emss: int | None) -> None:
    """Raises `ValueError` if no device takes this EMSS."""
    if emss is not None and not MINIMUM_EMSS <= emss <= MAXIMUM_EMSS:
        raise ValueError(f"EMSS {emss}; allowed: {MINIMUM_EMSS} to {MAXIMUM_EMSS}")


def choose_emss(stream: ByteStream, emss: int | None) -> int:
    """The EMSS that was asked for, else that of the connection.

    Below 128 bytes it does not matter: the MULPDU stays 128, and an FPDU needs several segments
    (RFC 5044, 4.5).
    """
    if emss is not None:
        return emss
    return max(MINIMUM_EMSS, min(stream.maximum_segment_size, MAXIMUM_EMSS))


def _takes_send(connection: Connection) -> bool:
    return not connection.initiator and connection.rtr == RTR.SEND


def enter_full_operation(qp: QP, stream: ByteStream, connection: Connection, emss: int) -> None:
    """Connects the QP, and posts what the RTR frame needs.

    The Initiator's RTR frame is the first work request of its send queue, so nothing precedes it
    (RFC 6581, 5). At the Responder a Send takes a receive work request. Both are the driver's
    own, and no CQ tells of them.
    """
    with qp.context.lock:
        qp._require(QPState.INIT)
        if _takes_send(connection):
            if qp.receives_posted:
                raise StartupError(
                    f"{qp.receives_posted} receives were posted while the RTR frame, a Send, was "
                    "waited for; allowed: none before accept returns"
                )
            qp._post_hidden_recv(RecvWR())
        qp.connect(
            stream,
            initiator=connection.initiator,
            crc=connection.crc,
            ord=connection.ord,
            ird=connection.ird,
            emss=emss,
            markers_tx=connection.markers_tx,
            markers_rx=connection.markers_rx,
        )
        qp.connection = connection
        if connection.initiator and connection.rtr:
            qp._post_hidden_send(_RTR_FRAMES[connection.rtr])


def has_rtr(connection: Connection) -> bool:
    """Whether a work request of the RTR frame is posted here."""
    return _takes_send(connection) or bool(connection.initiator and connection.rtr)


def await_rtr(qp: QP, connection: Connection, deadline: Deadline, peer: tuple[str, int]) -> None:
    """Returns when the work request of the RTR frame is completed, at once if there is none.

    `peer`: host and port of the other end, for messages.

    Raises `StartupError` if it is not in time, or the QP stops meanwhile; the QP is in ERR then.
    """
    if has_rtr(connection):
        with awaiting_rtr(qp, deadline, FLUSH_SECONDS, peer):
            qp.context.poll_until(qp._hidden_done, deadline.left, StartupStep.FIRST_FPDU)


@contextmanager
def awaiting_rtr(
    qp: QP, deadline: Deadline, flush_seconds: float, peer: tuple[str, int]
) -> Iterator[None]:
    """Around a wait for the RTR frame: ends the stream if that fails, see `await_rtr`.

    Waits up to `flush_seconds` for a peer that does not read.
    """
    try:
        yield
    except WaitTimeout as error:
        qp.disconnect(flush_seconds)
        raise StartupTimeout(
            StartupStep.FIRST_FPDU, deadline.seconds, f"QP {qp.qp_num} has not done it", peer
        ) from error
    except BaseException:
        qp.disconnect(flush_seconds)
        raise
    if qp.state != QPState.RTS:
        raise StartupError(
            f"QP {qp.qp_num} stopped at the {StartupStep.FIRST_FPDU}: "
            f"{describe(qp.cause, qp.terminate, qp.stream_end)}"
        )
