"""Offers a buffer in the device's own memory to all peers that connect."""

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock, Thread
from typing import Self

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    AccessFlags,
    AsyncEvent,
    Cause,
    ConnectionListener,
    ConnectionRequest,
    Context,
    DeviceMemory,
    ListenerClosed,
    QPCap,
    QPInitAttr,
    ResourceError,
    StagecoachError,
    StartupError,
    StartupOptions,
    StartupStep,
    StartupTimeout,
    listen,
)
from stagecoach.ulp.memory_server.protocol import DEFAULT_PORT, Region

_LISTEN_SECONDS = 3600.0
_ENTRIES = 2
"""Of the CQ, for each QP: one send and one receive, of which none is posted."""

_DEFAULT_STARTUP = StartupOptions()


def silent(_: str) -> None:
    """Tells nobody."""


class MemoryServer:
    """Listens. Once a peer is connected it reads, writes and does atomics without this program.

    All peers have the same memory: nothing keeps them apart. A peer that names bytes outside loses
    its connection, and no other notices. A QP is free again when its connection has ended.

    Parameters
    ----------
    context: the open device. octets: bytes of its own memory that are offered; all of it if not
        given. They hold what was there before.
    address, port: where to listen; an empty address is all, port 0 any free one.
    startup: what this end asks for in MPA startup.
    tell: called with a line for each peer that comes or goes. report: the same for each peer with
        which something went wrong. Other threads call both.

    Attributes
    ----------
    memory: the `DeviceMemory`, for setting it up. region: what peers are told. port: in use.

    Raises what `DeviceMemory` and `listen` do.
    """

    def __init__(
        self,
        context: Context,
        octets: int | None = None,
        *,
        address: str = "",
        port: int = DEFAULT_PORT,
        startup: StartupOptions = _DEFAULT_STARTUP,
        tell: Callable[[str], None] = silent,
        report: Callable[[str], None] = silent,
    ):
        self._context, self._startup = context, startup
        self._tell, self._report = tell, report
        self._lock = Lock()  # of what follows
        self._served: dict[int, tuple[QP, str]] = {}  # number: the QP, and who the peer is
        self._closed = False
        everything = max(1, context.attr.max_dm_size)
        with ExitStack() as undo:
            self.memory = DeviceMemory(context, everything if octets is None else octets)
            undo.callback(self.memory.close)
            self._cq = CQ(context, _ENTRIES * context.attr.max_qp)
            undo.callback(self._cq.close)
            self._pd = PD(context)
            undo.callback(self._pd.close)
            rights = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_ATOMIC
            mr = MR(self._pd, self.memory, rights, addr=0)
            self.region = Region(mr.addr, mr.length, mr.rkey)
            self._listener: ConnectionListener = listen(
                context, address, port, request_timeout=startup.timeout
            )
            undo.callback(self._listener.close)
            self.port = self._listener.port
            context.add_event_handler(self._stopped)
            undo.callback(context.remove_event_handler, self._stopped)
            self._mr = mr
            self._undo = undo.pop_all()

    def serve(self) -> None:
        """Takes peers in until it is interrupted, or `close` ends it."""
        while True:
            try:
                request = self._listener.get_request(_LISTEN_SECONDS)
            except ListenerClosed:
                return
            except StartupError as error:
                if not (isinstance(error, StartupTimeout) and error.step == StartupStep.PEER):
                    self._report(str(error))
                continue
            # One that is slow with its RTR frame holds up no other.
            Thread(target=self._admit, args=(request,), name="memory peer", daemon=True).start()

    def _admit(self, request: ConnectionRequest) -> None:
        peer = "{}:{}".format(*request.peer_address)
        try:
            qp = self._open(peer)
        except ResourceError as error:
            request.reject()
            self._report(f"{peer}: refused: {error}")
            return
        except (StagecoachError, ValueError):
            return  # the server is closed
        try:
            request.accept(qp, private_data=self.region.pack(), ord=0, **self._startup.arguments)
        except (StagecoachError, ValueError) as error:
            self._forget(qp.qp_num)
            if not self._closed:
                self._report(f"{peer}: {error}")
        else:
            self._tell(f"{peer} has connected")

    def _open(self, peer: str) -> QP:
        """A QP for a peer; its number is known before anything can be heard of it."""
        with self._lock:
            cap = QPCap(max_send_wr=1, max_recv_wr=1)
            init = QPInitAttr(self._cq, self._cq, cap, rfc7306=bool(self._context.attr.atomics))
            qp = QP(self._pd, init)
            self._served[qp.qp_num] = qp, peer
            return qp

    def _forget(self, number: int) -> str | None:
        """Closes a QP; who its peer was, if it was open."""
        with self._lock:
            found = self._served.pop(number, None)
        if found is None:
            return None
        qp, peer = found
        qp.close()
        return peer

    def _stopped(self, event: AsyncEvent) -> None:
        """The connection of a peer has ended."""
        peer = self._forget(event.qp_num)
        if peer is None:
            return
        if event.cause == Cause.LLP_CLOSED:
            self._tell(f"{peer} has gone: {event.reason}")
        else:
            self._report(f"{peer}: {event.describe()}")

    def close(self) -> None:
        """Ends all connections, and `serve`; frees the memory."""
        self._closed = True
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
