"""The client: connects, and measures size after size."""

from contextlib import nullcontext

from stagecoach.cli.perf.end import End
from stagecoach.cli.perf.measure import Meter, Progress
from stagecoach.cli.perf.notes import END
from stagecoach.cli.perf.operations import Remote
from stagecoach.cli.perf.result import Point
from stagecoach.cli.perf.server import NO_STEP, STEP
from stagecoach.cli.perf.settings import PerfError, Plan, unpack_remote
from stagecoach.host_driver import cm
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.enums import AccessFlags
from stagecoach.host_driver.mpa_errors import ConnectionRejected
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.transport import SimulatedDevice


def measure(
    context: Context, plan: Plan, address: str, port: int, progress: Progress
) -> list[Point]:
    """Measures everything of a plan with the server at an address.

    Raises `PerfError` if the server does not want it, or goes away.
    """
    with End(
        context,
        qps=plan.qps,
        octets=plan.octets * (1 + plan.server_sends),
        access=plan.operation.access if plan.server_sends else AccessFlags.LOCAL_WRITE,
        sends=max(plan.depth, 2),
        receives=max(plan.receives, 1) if plan.server_sends else 1,
        rfc7306=plan.operation.rfc7306,
    ) as end:
        back = None
        if plan.server_sends:
            back = Remote(end.mr.addr + plan.octets, end.mr.rkey)
        stream = None
        device = context.transport
        if isinstance(device, SimulatedDevice) and device.runs_in_step:
            stream = _step_stream(end, address, port, plan.startup.timeout)
        with stream or nullcontext():
            try:
                remote = unpack_remote(
                    cm.connect(
                        end.control,
                        address,
                        port,
                        private_data=plan.for_server(back).pack(),
                        **plan.connecting,
                    )
                )
            except ConnectionRejected as error:
                text = error.private_data.decode("ascii", "replace")
                raise PerfError(f"the server refused: {text}") from error
            for qp in end.qps:
                cm.connect(qp, address, port, **plan.connecting)
            if stream is not None:
                end.run_in_step(stream)
        meter = Meter(end, plan, remote, progress)
        points = [meter.measure(size) for size in plan.sizes]
        end.send(END)
        return points


def _step_stream(end: End, address: str, port: int, timeout: float) -> SocketStream:
    """The connection that keeps the devices in step: one that the server refuses for that."""
    try:
        cm.connect(
            end.control, address, port, private_data=STEP, keep_rejected=True, timeout=timeout
        )
    except ConnectionRejected as rejection:
        if rejection.private_data == STEP and isinstance(rejection.stream, SocketStream):
            return rejection.stream
        if rejection.stream is not None:
            rejection.stream.close()
        if rejection.private_data == NO_STEP:
            raise PerfError(
                "the server's device is a board, and with it a simulated one does not run in step; "
                "allowed: a board here, too, or only here"
            ) from rejection
    raise PerfError(f"no stagecoach perf server is waiting at {address}:{port}")
