"""The connection manager in an event loop: `open_connection` and `accept_connection`."""

import asyncio
import threading
from typing import Unpack

from stagecoach.host_driver.cm_initiator import ConnectOptions, Initiation
from stagecoach.host_driver.cm_responder import AcceptOptions, ConnectionRequest
from stagecoach.host_driver.errors import WaitTimeout, require_type
from stagecoach.host_driver.full_operation import awaiting_rtr, has_rtr
from stagecoach.host_driver.mpa_errors import StartupStep
from stagecoach.host_driver.mpa_exchange import Deadline, FrameReader
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.qp import QP
from stagecoach.host_driver.transport.base import ByteStream

_POLL_SECONDS = 0.002
"""How often it looks for the Reply, for the first FPDU, and for the end of the RTR frame."""


async def open_connection(qp: QP, host: str, port: int, **options: Unpack[ConnectOptions]) -> bytes:
    """`connect` for an event loop that goes on: parameters, result and errors are the same.

    A task that waits can be cancelled: the connection is closed, and the QP can be connected again
    unless it was waiting for the RTR frame. A peer that does not answer its SYN is the exception:
    the try goes on in a thread, up to its `timeout`, and what it opens is closed at once.
    """
    attempt = Initiation(qp, host, port, **options)
    stream = await _open(attempt)
    with attempt.using(stream):
        reply = await _read(attempt.send_request(stream), attempt.deadline)
        attempt.check(reply, stream)
        await asyncio.sleep(attempt.delay)
        connection = attempt.operate(reply, stream)
        if has_rtr(connection):
            with awaiting_rtr(qp, attempt.deadline, 0.0, stream.peer_address):
                await _hidden_done(qp, attempt.deadline)
    return reply.private_data


async def accept_connection(
    request: ConnectionRequest, qp: QP, **options: Unpack[AcceptOptions]
) -> None:
    """`request.accept(qp)` for an event loop that goes on: parameters and errors are the same.

    It waits for the peer only if the request is `peer_to_peer`. A task that waits can be cancelled:
    the connection is closed, and the QP can be connected again unless the RTR frame, a Send, was
    on its way.
    """
    require_type("qp", qp, QP)
    accepted = request._send_reply(qp, **options)
    with accepted._closed_if_it_fails():
        if accepted.connection.peer_to_peer:
            while not accepted.poll():
                await asyncio.sleep(_POLL_SECONDS)
        accepted._operate(qp)
        if has_rtr(accepted.connection):
            with awaiting_rtr(qp, accepted.deadline, 0.0, accepted.peer_address):
                await _hidden_done(qp, accepted.deadline)


async def _open(attempt: Initiation) -> ByteStream:
    """Opens the TCP connection in a thread: name servers and the kernel wait in their own way."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[ByteStream] = loop.create_future()

    def tell(stream: ByteStream | None, error: BaseException | None) -> None:
        if stream is not None and opened.cancelled():
            stream.close()
        elif stream is not None:
            opened.set_result(stream)
        elif error is not None and not opened.cancelled():
            opened.set_exception(error)

    def run() -> None:
        stream, problem = None, None
        try:
            stream = attempt.open()
        except BaseException as error:
            problem = error
        try:
            loop.call_soon_threadsafe(tell, stream, problem)
        except RuntimeError:  # the loop was closed
            if stream is not None:
                stream.close()

    threading.Thread(target=run, name="open connection", daemon=True).start()
    try:
        return await opened
    except asyncio.CancelledError:
        # Cancelled when it was there already, and the task had not gone on yet.
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            opened.result().close()
        raise


async def _read(reader: FrameReader, deadline: Deadline) -> StartupFrame:
    while (frame := reader.poll()) is None:
        if not deadline.left:
            raise reader.timeout(deadline.seconds)
        await asyncio.sleep(_POLL_SECONDS)
    return frame


async def _hidden_done(qp: QP, deadline: Deadline) -> None:
    while not qp._hidden_done():
        late = not deadline.left
        qp.context.process_events(ask=late)
        if late and not qp._hidden_done():
            raise WaitTimeout(f"{StartupStep.FIRST_FPDU}: nothing within {deadline.seconds} s")
        await asyncio.sleep(_POLL_SECONDS)
