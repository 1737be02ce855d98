"""Connections to a server, of either transport."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from stagecoach.host_driver import Context
from stagecoach.ulp.nfs.client.files import Files
from stagecoach.ulp.nfs.client.url import RDMA, NfsUrl
from stagecoach.ulp.oncrpc.auth import this_user
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from stagecoach.ulp.oncrpc.transport import ClientTransport
from stagecoach.ulp.rpcrdma.client import connect
from stagecoach.ulp.rpcrdma.settings import ClientSettings


@dataclass(frozen=True)
class Ways:
    """How servers are reached.

    open_device: opens the device for nfs+rdma; not called for nfs+tcp.
    settings: of RPC-over-RDMA. mount_port: of a MOUNT program over TCP, if it is not on the
    connection of NFS; Linux has it elsewhere.
    """

    open_device: Callable[[], AbstractContextManager[Context]]
    settings: ClientSettings
    mount_port: int | None = None


@contextlib.asynccontextmanager
async def mounted(url: NfsUrl, ways: Ways) -> AsyncIterator[Files]:
    """Connects, mounts what the URL is in, and closes all in the end.

    Raises `OSError`, `RpcError`, `MountError`, and what connecting a device raises.
    """
    async with contextlib.AsyncExitStack() as stack:
        transport: ClientTransport
        if url.scheme == RDMA:
            context = stack.enter_context(ways.open_device())
            transport = await connect(context, url.host, url.port, ways.settings)
        else:
            transport = await TcpClientTransport.connect(url.host, url.port)
        rpc = await stack.enter_async_context(RpcClient(transport, this_user()))
        mount_rpc = None
        if ways.mount_port is not None:
            beside = await TcpClientTransport.connect(url.host, ways.mount_port)
            mount_rpc = await stack.enter_async_context(RpcClient(beside, this_user()))
        yield await Files.mount(url, rpc, mount_rpc)
