"""Serves an export at ports: NFS and MOUNT on every connection, over RDMA and over TCP."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from stagecoach.host_driver import Context, ListenerClosed
from stagecoach.ulp.nfs.server.clients import Clients
from stagecoach.ulp.nfs.server.ends import tell_ends
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.mounts import Mounts
from stagecoach.ulp.nfs.server.service import nfs_service
from stagecoach.ulp.nfs.threads import in_thread
from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.oncrpc.limits import Admission, Limits
from stagecoach.ulp.oncrpc.server import RpcServer
from stagecoach.ulp.oncrpc.tcp_server import TcpListener
from stagecoach.ulp.oncrpc.transport import ServerTransport
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.settings import ServerSettings

_LOG = logging.getLogger(__name__)
_COMPLAINTS = Complaints(_LOG)

_SWEEP_SECONDS = 10.0


class NfsServer:
    """A server of one export, in the loop that runs. Use as asynchronous context manager.

    Parameters
    ----------
    export: stays open. address: where to listen, "" for all. limits: of what clients may take.
    tell: is called with a line when a client connects, mounts, and goes.

    Attributes
    ----------
    clients: who is connected.
    """

    def __init__(
        self,
        export: Export,
        address: str = "",
        limits: Limits | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ):
        self.export = export
        self.clients = Clients(tell)
        self.admission = Admission(limits)
        self._address = address
        self._rpc = RpcServer([nfs_service(export), Mounts(export, self.clients.mounted).service()])
        self._tcp: TcpListener | None = None
        self._rdma: RdmaListener | None = None
        self._contexts: list[Context] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: set[ServerTransport] = set()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _COMPLAINTS.error("fault", "a connection failed", error)

    async def listen_tcp(self, port: int) -> int:
        """Serves clients over TCP; returns the port. Raises `OSError`."""
        self._tcp = TcpListener(self._serve_tcp, self.admission)
        return await self._tcp.listen(self._address or None, port)

    async def listen_rdma(self, context: Context, port: int, settings: ServerSettings) -> int:
        """Serves clients over RDMA; returns the port. Raises `OSError`.

        The events of the device are taken, so that they do not pile up.
        """
        self._contexts.append(context)
        self._rdma = RdmaListener(
            context, self._address, port, settings, admission=self.admission, late=True
        )
        self._start(self._accept(self._rdma))
        return self._rdma.port

    async def _accept(self, listener: RdmaListener) -> None:
        while True:
            try:
                transport = await listener.accept()
            except ListenerClosed:
                return
            self._start(self._serve(transport))

    async def _serve(self, transport: ServerTransport) -> None:
        self._transports.add(transport)
        with self.clients.served(transport, "rdma") as counted:
            await self._rpc.serve(counted)
        self._transports.discard(transport)

    async def _serve_tcp(self, transport: ServerTransport) -> None:
        with self.clients.served(transport, "tcp") as counted:
            await self._rpc.serve(counted)

    async def __aenter__(self) -> "NfsServer":
        self._start(self._sweep())
        return self

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await in_thread(self.export.nodes.sweep)
            tell_ends(self._contexts)

    async def __aexit__(self, *_: object) -> None:
        """Stops listening and ends all connections."""
        if self._rdma is not None:
            await self._rdma.close()
        if self._tcp is not None:
            await self._tcp.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A connection that was just being closed has been disturbed.
        closing = (transport.close() for transport in list(self._transports))
        await asyncio.gather(*closing, return_exceptions=True)
        tell_ends(self._contexts)
