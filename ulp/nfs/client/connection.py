"""Connections to a server, of either transport."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from stagecoach.host_driver import Context
from stagecoach.ulp.nfs.client.files import Files
from stagecoach.ulp.nfs.client.url import RDMA, NfsUrl
from stagecoach.ulp.nfs.mount import MOUNT_PROGRAM, MOUNT_VERSION, MountNotFound
from stagecoach.ulp.oncrpc.auth import this_user
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.errors import ProgramUnavailable, RpcError
from stagecoach.ulp.oncrpc.rpcbind import RPCBIND_PORT, tcp_port_of
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from stagecoach.ulp.oncrpc.transport import ClientTransport
from stagecoach.ulp.rpcrdma.client import connect
from stagecoach.ulp.rpcrdma.settings import ClientSettings


@dataclass(frozen=True)
class Ways:
    """How servers are reached.

    open_device: opens the device for nfs+rdma; not called for nfs+tcp.
    settings: of RPC-over-RDMA. mount_port: of a MOUNT program over TCP, if it is not on the
    connection of NFS, as that of Linux is not; if it is `None`, the rpcbind of the server tells.
    rpcbind_port: where that listens.
    """

    open_device: Callable[[], AbstractContextManager[Context]]
    settings: ClientSettings
    mount_port: int | None = None
    rpcbind_port: int = RPCBIND_PORT


@contextlib.asynccontextmanager
async def mounted(url: NfsUrl, ways: Ways) -> AsyncIterator[Files]:
    """Connects, mounts what the URL is in, and closes all in the end.

    Raises `OSError`, `RpcError`, `MountError`, `MountNotFound`, and what connecting a device
    raises.
    """
    async with contextlib.AsyncExitStack() as stack:
        transport: ClientTransport
        if url.scheme == RDMA:
            context = stack.enter_context(ways.open_device())
            transport = await connect(context, url.host, url.port, ways.settings)
        else:
            transport = await TcpClientTransport.connect(url.host, url.port)
        rpc = await stack.enter_async_context(RpcClient(transport, this_user()))
        port = ways.mount_port
        if port is None:
            try:
                files = await Files.mount(url, rpc)
            except ProgramUnavailable:
                port = await _mount_port(url.host, ways.rpcbind_port)
        if port is not None:
            beside = await TcpClientTransport.connect(url.host, port)
            async with RpcClient(beside, this_user()) as mount_rpc:
                files = await Files.mount(url, rpc, mount_rpc)
        yield files


async def _mount_port(host: str, rpcbind_port: int) -> int:
    """The port of MOUNT as rpcbind knows it. Raises `MountNotFound`."""
    try:
        port = await tcp_port_of(host, MOUNT_PROGRAM, MOUNT_VERSION, rpcbind_port)
    except (OSError, RpcError) as error:
        why = f"its rpcbind at port {rpcbind_port} does not tell: {error}"
        raise MountNotFound(host, why) from error
    if port is None:
        raise MountNotFound(host, f"its rpcbind at port {rpcbind_port} knows none")
    return port
