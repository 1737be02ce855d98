"""ONC RPC with RPC-over-RDMA under it, from a program without asyncio, in both profiles."""

import asyncio

import pytest

from stagecoach.ulp.oncrpc.blocking import BlockingRpcClient, LoopThread
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.errors import GarbageArguments
from stagecoach.ulp.oncrpc.server import RpcServer
from stagecoach.ulp.rpcrdma.client import connect
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.settings import ClientSettings, Profile, ServerSettings
from tests.ulp.oncrpc.arithmetic import (
    ADD_TO_OCTETS,
    ARITHMETIC,
    FAIL,
    SQUARE,
    Block,
    service,
)
from tests.ulp.rpcrdma.rig import Devices, pattern

pytestmark = pytest.mark.usefixtures("compiled_device")

OCTETS = 30_000


class Serving:
    """The service behind a listener, in a loop of its own."""

    def __init__(self, devices: Devices, settings: ServerSettings):
        self._thread = LoopThread()
        self._listener = self._thread.run(self._listen(devices, settings))
        self.port = self._listener.port
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(), self._thread.loop)

    async def _listen(self, devices: Devices, settings: ServerSettings) -> RdmaListener:
        return RdmaListener(devices.server, port=0, settings=settings)

    async def _serve(self) -> None:
        async with await self._listener.accept() as transport:
            await RpcServer([service()]).serve(transport)

    def close(self) -> None:
        self._serving.result(20)
        self._thread.run(self._listener.close())
        self._thread.close()


@pytest.mark.parametrize("profile", Profile)
def test_calls_from_a_blocking_program(devices: Devices, profile: Profile):
    settings = ClientSettings(profile=profile, segment_octets=7000)
    serving = Serving(devices, ServerSettings(profile=profile))

    async def client() -> RpcClient:
        return RpcClient(await connect(devices.client, "127.0.0.1", serving.port, settings), None)

    with BlockingRpcClient(client) as made:
        assert made.call(ARITHMETIC, SQUARE, 12) == 144
        data, room = bytearray(pattern(OCTETS)), bytearray(OCTETS)
        block = Block(b"stagecoach", memoryview(data), 7)
        result = made.call(ARITHMETIC, ADD_TO_OCTETS, block, into=[memoryview(room)])
        assert result.name == b"hcaocegats"
        assert result.data == bytes((octet + 7) % 256 for octet in data)
        assert result.data.obj is room
        # Without a buffer the whole reply comes in its chunk.
        result = made.call(ARITHMETIC, ADD_TO_OCTETS, block, result_octets=2 * OCTETS)
        assert bytes(result.data) == bytes(room)
        with pytest.raises(GarbageArguments):
            made.call(ARITHMETIC, FAIL, 1)
    serving.close()
    devices.check_clean()
