"""Where MOUNT is: beside NFS, or at a port that rpcbind or the user tells."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from stagecoach.ulp.nfs.client.connection import mounted
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.mount import MountNotFound
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.mounts import Mounts
from stagecoach.ulp.nfs.server.service import nfs_service
from stagecoach.ulp.oncrpc.limits import Admission
from stagecoach.ulp.oncrpc.rpcbind import GETPORT, PORTMAP, Mapping
from stagecoach.ulp.oncrpc.server import RpcServer, Service
from stagecoach.ulp.oncrpc.tcp_server import TcpListener
from tests.ulp.nfs.tcp_server import EXPORT, HOST, WAYS


class Host:
    """What listens on a machine such as one with Linux: NFS, MOUNT and rpcbind, each at a port."""

    def __init__(self, directory):
        self.export = Export(directory, EXPORT)
        self.asked: list[Mapping] = []
        self.told: int | None = None  # by rpcbind, instead of the port of MOUNT

    async def _listen(self, stack, *services):
        listener = TcpListener(RpcServer(services).serve, Admission())
        stack.push_async_callback(listener.close)
        return await listener.listen(HOST, 0)

    @contextlib.asynccontextmanager
    async def running(self):
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.export.close)
            self.nfs = await self._listen(stack, nfs_service(self.export))
            self.mount = await self._listen(stack, Mounts(self.export).service())
            self.rpcbind = await self._listen(stack, Service(PORTMAP, {GETPORT: self._port}))
            yield

    def _port(self, request, wanted: Mapping) -> int:
        assert request.credential is None
        self.asked.append(wanted)
        return self.mount if self.told is None else self.told

    async def names(self, **ways) -> list[bytes]:
        url = NfsUrl.parse(f"nfs+tcp://{HOST}:{self.nfs}{EXPORT}")
        ways = {"rpcbind_port": self.rpcbind, **ways}
        async with mounted(url, replace(WAYS, **ways)) as files:
            root = await files.find(url.path)
            return [each.name async for each in files.entries(root)]


@pytest.fixture
def host(tmp_path):
    (tmp_path / "file").touch()
    return Host(tmp_path)


def on(host, work):
    async def run():
        async with host.running():
            return await work()

    return asyncio.run(run())


def test_rpcbind_tells_where_mount_is(host):
    assert on(host, host.names) == [b"file"]
    assert host.asked == [Mapping(program=100005, version=3, protocol=6, port=0)]


def test_nobody_is_asked_for_a_port_that_the_user_names(host):
    assert on(host, lambda: host.names(mount_port=host.mount)) == [b"file"]
    assert host.asked == []


@pytest.mark.parametrize("told", [0, 65536, 1 << 31])
def test_a_server_without_mount_is_told_with_the_option(host, told):
    host.told = told
    with pytest.raises(
        MountNotFound, match=r"rpcbind at port \d+ knows none; name .* --mount-port"
    ):
        on(host, host.names)


def test_a_server_without_rpcbind_is_told_with_the_option(host):
    async def work():
        port, host.rpcbind = host.rpcbind, host.nfs  # which is no rpcbind
        try:
            with pytest.raises(MountNotFound, match="does not tell: program 100000 is not there"):
                await host.names()
        finally:
            host.rpcbind = port
        with pytest.raises(
            MountNotFound,
            match=r"does not tell: cannot connect to .*: Connection refused.* --mount-port",
        ):
            await host.names(rpcbind_port=1)

    on(host, work)
