"""Connections that begin, end, share a device, and devices with little left."""

import asyncio
import contextlib

import pytest

from stagecoach.host_driver import ConnectionRejected, Context, ListenerClosed, Quota, StartupError
from stagecoach.host_driver.errors import QuotaExceeded
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.oncrpc.errors import MessageTooLong, RpcConnectionError
from stagecoach.ulp.rpcrdma.call import RdmaCall
from stagecoach.ulp.rpcrdma.client import connect
from stagecoach.ulp.rpcrdma.errors import ErrorCode, RdmaErrorReceived
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.settings import ClientSettings, ServerSettings
from tests.ulp.rpcrdma.rig import (
    Devices,
    connected,
    echo,
    inline,
    items_of,
    message,
    pattern,
    room,
    run,
)

pytestmark = pytest.mark.usefixtures("compiled_device")


@contextlib.contextmanager
def device(quota: Quota):
    """An open device of which little may be used."""
    with Context(SimulatedDevice(), quota) as context:
        yield context


def test_many_segments_in_each_list(devices: Devices):
    async def work():
        # More requests than fit into the send queue at a time.
        client = ClientSettings(segment_octets=64, inline_octets=8192)
        async with connected(devices, client, ServerSettings(inline_octets=8192), echo) as pair:
            octets = 64 * 150 + 1

            async def one(xid: int) -> None:
                item = bytearray(pattern(octets, xid))
                reply = await pair.client.call(message(xid, item), room(100, octets))
                assert reply.bulks[0].data == item

            await asyncio.gather(*(one(xid) for xid in range(4)))

    run(work)


@pytest.mark.parametrize("peer_to_peer", [False, True])
@pytest.mark.parametrize("crcs", [(False, False), (False, True), (True, False)])
def test_startup_is_what_both_settings_ask_for(devices: Devices, crcs, peer_to_peer):
    async def work():
        revision = 2 if peer_to_peer else 1
        client = ClientSettings(
            crc=crcs[0], markers=True, revision=revision, peer_to_peer=peer_to_peer
        )
        async with connected(devices, client, ServerSettings(crc=crcs[1]), echo) as pair:
            await pair.client.call(message(1), room(100))
            found = pair.server.channel.qp.connection
            assert (found.crc, found.markers_tx, found.markers_rx) == (any(crcs), True, False)
            assert (found.revision, found.peer_to_peer) == (revision, peer_to_peer)

    run(work)


def test_connections_of_a_device_come_and_go(devices: Devices):
    async def work():
        seen: list[int] = []

        async def serve(transport) -> None:
            with contextlib.suppress(RpcConnectionError):
                while True:
                    call = await transport.receive()
                    seen.append(call.message.xid)
                    await echo(call)
            await transport.close()

        async def client(number: int, port: int) -> None:
            async with await connect(devices.client, "127.0.0.1", port) as transport:
                for xid in range(number + 2):
                    item = bytearray(pattern(3000 * number, number))
                    xid += 100 * number
                    reply = await transport.call(message(xid, item), room(100, len(item)))
                    assert items_of(reply) == [item]

        async with RdmaListener(devices.server, port=0) as listener:
            clients = [asyncio.ensure_future(client(each, listener.port)) for each in range(4)]
            servers = [asyncio.ensure_future(serve(await listener.accept())) for _ in clients]
            await asyncio.gather(*clients, *servers)
        assert len(seen) == 2 + 3 + 4 + 5
        devices.check_clean()

    run(work)


def test_a_client_that_finds_nobody_leaves_nothing(devices: Devices):
    async def work():
        async with RdmaListener(devices.server, port=0) as listener:
            port = listener.port
        with pytest.raises(ListenerClosed):
            await listener.accept()
        with pytest.raises(StartupError):
            await connect(devices.client, "127.0.0.1", port)
        devices.check_clean()

    run(work)


def test_a_peer_that_does_not_speak_mpa_is_passed_over(devices: Devices):
    async def work():
        async with RdmaListener(devices.server, port=0) as listener:
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 4)
            await writer.drain()
            accepting = asyncio.ensure_future(listener.accept())
            client = await connect(devices.client, "127.0.0.1", listener.port)
            server = await accepting
            assert len(listener.refused) == 1
            writer.close()
            await client.close()
            await server.close()
        devices.check_clean()

    run(work)


def test_a_server_without_resources_rejects_the_client(devices: Devices):
    async def work():
        with device(Quota(qps=1)) as small:
            async with RdmaListener(small, port=0) as listener:
                accepting = asyncio.ensure_future(listener.accept())
                first = await connect(devices.client, "127.0.0.1", listener.port)
                server = await accepting
                accepting = asyncio.ensure_future(listener.accept())
                with pytest.raises(ConnectionRejected):
                    await connect(devices.client, "127.0.0.1", listener.port)
                assert isinstance(listener.refused[0], QuotaExceeded)
                # When the first has gone there is room for the next.
                await first.close()
                await server.close()
                second = await connect(devices.client, "127.0.0.1", listener.port)
                await (await accepting).close()
                await second.close()
            assert small.mrs == {}

    run(work)


def test_a_client_without_stags_fails_a_call_and_goes_on(devices: Devices):
    async def work():
        # Receives, Sends, and one region.
        with device(Quota(mrs=3)) as small:
            async with connected(Devices(small, devices.server), handler=echo) as pair:
                with pytest.raises(QuotaExceeded):
                    await pair.client.call(inline(1), room(100, 500, 500))
                assert len(small.mrs) == 2
                assert pair.client.credits.outstanding == 0
                reply = await pair.client.call(message(2, b"good"), room(100, 500))
                assert bytes(reply.bulks[0].data) == b"good"

    run(work)


def test_a_server_without_stags_answers_err_chunk(devices: Devices):
    async def good(call: RdmaCall) -> None:
        xid = call.message.xid
        if xid == 2:
            with pytest.raises(MessageTooLong, match="no memory to send the reply from"):
                await call.reply(inline(xid, bytes(4500)))
            return
        await call.reply(inline(xid, b"good"))

    async def work():
        # Receives and Sends, and no other.
        with device(Quota(mrs=2)) as small:
            async with connected(Devices(devices.client, small), handler=good) as pair:
                with pytest.raises(RdmaErrorReceived) as caught:
                    await pair.client.call(message(1, bytearray(9000)), room(100))
                assert caught.value.code is ErrorCode.ERR_CHUNK
                # Nor is there memory to write a long reply from.
                with pytest.raises(RdmaErrorReceived):
                    await pair.client.call(message(2, b"short"), room(5000))
                reply = await pair.client.call(message(3, b"short"), room(100))
                assert items_of(reply) == [b"good"]

    run(work)


def test_a_device_that_is_closed_ends_its_connections(devices: Devices):
    async def work():
        with device(Quota()) as other:
            async with RdmaListener(devices.server, port=0) as listener:
                accepting = asyncio.ensure_future(listener.accept())
                client = await connect(other, "127.0.0.1", listener.port)
                server = await accepting
                call = asyncio.ensure_future(client.call(inline(1), room(100, 5000)))
                await server.receive()
                await asyncio.to_thread(other.close)
                with pytest.raises(RpcConnectionError):
                    await asyncio.wait_for(call, 10)
                with pytest.raises(RpcConnectionError):
                    await asyncio.wait_for(server.receive(), 10)
                await client.close()
                await server.close()
        assert devices.server.mrs == {}

    run(work)
