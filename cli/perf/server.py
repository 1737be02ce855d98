"""The server: has the buffer, and receives posted when messages take them."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from stagecoach.cli.perf.end import FOREVER, End
from stagecoach.cli.perf.flow import run
from stagecoach.cli.perf.notes import END, Asked, Part, parse_note, parse_receives
from stagecoach.cli.perf.operations import Operation, Remote
from stagecoach.cli.perf.pingpong import Player
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
from stagecoach.host_driver.mpa_exchange import DEFAULT_TIMEOUT
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.host_driver.wr import SGE, RecvWR
from stagecoach.sim.transport import SimulatedDevice

STEP = b"perf step"
"""Private data of the Request whose connection keeps the devices in step instead."""

NO_STEP = b"perf no step"
"""Private data of the answer of a server whose device is a board, which runs as it does."""

_LISTEN_SECONDS = 3600.0


def serve(
    context: Context,
    operation: Operation,
    address: str,
    port: int,
    listening: Callable[[int], None],
    connected: Callable[[], None] = lambda: None,
    timeout: float = DEFAULT_TIMEOUT,
) -> None:
    """Waits for a client and serves it to its end.

    `listening` is called with the port, `connected` when the client is there. `timeout`: seconds
    for MPA startup of each connection.

    Raises `PerfError` if the client wants something else, or goes before its end.
    """
    with cm.listen(context, address, port, request_timeout=timeout) as listener:
        listening(listener.port)
        request, stream = _first_request(context, listener, timeout)
        with stream or nullcontext():
            plan = _plan(request, operation)
            with End(
                context,
                qps=plan.qps,
                octets=plan.octets * (1 if plan.back is None else 2),
                access=operation.access,
                sends=1 if plan.back is None else max(plan.depth, 2),
                receives=max(plan.receives, 1),
                rfc7306=operation.rfc7306,
            ) as end:
                remote = pack_remote(Remote(end.mr.addr, end.mr.rkey))
                wanted: dict[str, Any] = {
                    "emss": plan.emss,
                    "markers": plan.markers,
                    "crc": plan.crc,
                    "timeout": timeout,
                }
                request.accept(end.control, private_data=remote, **wanted)
                for qp in end.qps:
                    listener.get_request(timeout).accept(qp, **wanted)
                if stream is not None:
                    end.run_in_step(stream)
                connected()
                _post_receives(end, plan, operation)


def _first_request(
    context: Context, listener: cm.ConnectionListener, timeout: float
) -> tuple[ConnectionRequest, SocketStream | None]:
    """The first Request of a client, and the connection that keeps the devices in step.

    That comes before if both devices are simulated; there is none if the client's is a board. Peers
    that begin otherwise are refused.
    """
    device = context.transport
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
        elif isinstance(device, SimulatedDevice) and device.runs_in_step:
            stream = request.reject(STEP, keep_open=True)
            if isinstance(stream, SocketStream):
                return listener.get_request(timeout), stream
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
    while (note := end.receive(FOREVER)) != END:
        if plan.back is not None and (asked := parse_note(note)) is not None:
            _take_part(end, plan, operation, plan.back, asked)
            continue
        wanted = parse_receives(note)
        if wanted.posted > plan.receives:
            raise PerfError(
                f"the client wants {wanted.posted} receives; announced: {plan.receives}"
            )
        end.await_receives(wanted.taken)
        for qp in end.qps if wanted.posted else []:
            qp.post_recv(*[receive] * (wanted.posted - qp.receives_posted))
        end.take()
        end.send(note)


def _take_part(
    end: End, plan: ServerPlan, operation: Operation, back: Remote, asked: Asked
) -> None:
    """Does what the client asks for; the note goes back before, and after it if that has an end."""
    if not 1 <= asked.size <= plan.octets:
        raise PerfError(f"the client wants a message of {asked.size}; allowed: 1 to {plan.octets}")
    if asked.part == Part.PINGPONG:
        player = Player(end, operation, back, plan.octets, asked.size)
        end.send(asked.note)
        for _ in range(asked.messages):
            player.receive()
            player.send()
        return
    requests = operation.requests(plan.qps, end.mr, back, asked.size)
    end.send(asked.note)
    receives = asked.messages if operation.takes_receive else 0
    run(end, requests, asked.messages, plan.depth, receives=receives)
    end.send(asked.note)
