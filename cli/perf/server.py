"""The server: has the buffer, and receives posted when messages take them."""

import sys
from collections.abc import Callable
from contextlib import nullcontext

from stagecoach.cli.perf.end import FOREVER, End
from stagecoach.cli.perf.operations import Operation, Remote
from stagecoach.cli.perf.pingpong import Player, parse_note, pingpong_note
from stagecoach.cli.perf.settings import PerfError, ServerPlan, pack_remote
from stagecoach.host_driver import cm
from stagecoach.host_driver.cm_responder import ConnectionRequest
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.mpa_errors import (
    ListenerClosed,
    StartupError,
    StartupStep,
    StartupTimeout,
)
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.host_driver.wr import SGE, RecvWR
from stagecoach.sim.transport import SimulatedDevice

STEP = b"perf step"
"""Private data of the Request whose connection keeps the devices in step instead."""

NO_STEP = b"perf no step"
"""Private data of the answer of a server whose device is a board, which runs as it does."""

END = (1 << 64) - 1
"""The client's last note; others are receives to be posted on each QP, or those of a ping-pong.

They are sent back when that is done, or the server is ready.
"""

_LISTEN_SECONDS = 3600.0


def serve(
    context: Context,
    operation: Operation,
    address: str,
    port: int,
    listening: Callable[[int], None],
    connected: Callable[[], None] = lambda: None,
) -> None:
    """Waits for a client and serves it to its end.

    `listening` is called with the port, `connected` when the client is there.

    Raises `PerfError` if the client wants something else, or goes before its end.
    """
    with cm.listen(context, address, port) as listener:
        listening(listener.port)
        request, stream = _first_request(context, listener)
        with stream or nullcontext():
            plan = _plan(request, operation)
            with End(
                context,
                qps=plan.qps,
                octets=plan.octets * (1 if plan.back is None else 2),
                access=operation.access,
                sends=1 if plan.back is None else 2,
                receives=max(plan.receives, 1),
                rfc7306=operation.rfc7306,
            ) as end:
                remote = pack_remote(Remote(end.mr.addr, end.mr.rkey))
                request.accept(
                    end.control, private_data=remote, emss=plan.emss, markers=plan.markers
                )
                for qp in end.qps:
                    listener.get_request().accept(qp, emss=plan.emss, markers=plan.markers)
                if stream is not None:
                    end.run_in_step(stream)
                connected()
                _post_receives(end, plan, operation)


def _first_request(
    context: Context, listener: cm.ConnectionListener
) -> tuple[ConnectionRequest, SocketStream | None]:
    """The first Request of a client, and the connection that keeps the devices in step.

    That comes before if both devices are simulated; there is none if the client's is a board. Peers
    that begin otherwise are refused.
    """
    while True:
        try:
            request = listener.get_request(_LISTEN_SECONDS)
        except ListenerClosed:
            raise
        except StartupError as error:
            if not (isinstance(error, StartupTimeout) and error.step == StartupStep.PEER):
                print(f"stagecoach perf: {error}", file=sys.stderr, flush=True)
            continue
        if request.private_data.startswith(ServerPlan.MAGIC):
            return request, None
        if request.private_data != STEP:
            request.reject(b"this is stagecoach perf")
        elif isinstance(context.transport, SimulatedDevice):
            stream = request.reject(STEP, keep_open=True)
            if isinstance(stream, SocketStream):
                return listener.get_request(), stream
        else:
            request.reject(NO_STEP)


def _plan(request: ConnectionRequest, operation: Operation) -> ServerPlan:
    try:
        plan = ServerPlan.unpack(request.private_data)
        if plan.operation != operation.name:
            raise PerfError(f"the client measures {plan.operation}, the server {operation.name}")
    except PerfError as error:
        request.reject(str(error).encode())
        raise
    return plan


def _post_receives(end: End, plan: ServerPlan, operation: Operation) -> None:
    receive = RecvWR(0, [SGE(end.mr.addr, plan.octets, end.mr.lkey)])
    while (number := end.receive(FOREVER)) != END:
        if plan.back is not None and (asked := parse_note(number)) is not None:
            _answer(end, plan, operation, plan.back, *asked)
            continue
        if number > plan.receives:
            raise PerfError(f"the client wants {number} receives; announced: {plan.receives}")
        for qp in end.qps if number else []:
            qp.post_recv(*[receive] * (number - qp.receives_posted))
        end.take()
        end.send(number)


def _answer(
    end: End, plan: ServerPlan, operation: Operation, back: Remote, messages: int, size: int
) -> None:
    """Answers messages of a ping-pong, each with one of the same size."""
    if not 1 <= size <= plan.octets:
        raise PerfError(f"the client wants a message of {size}; allowed: 1 to {plan.octets}")
    player = Player(end, operation, back, plan.octets, size)
    end.send(pingpong_note(messages, size))
    for _ in range(messages):
        player.receive()
        player.send()
