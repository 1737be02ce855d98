"""What clients of RPC-over-RDMA may take of a server: QPs, connections, memory and time."""

import asyncio
import contextlib
import socket

import pytest

from stagecoach.host_driver import Context, Quota, StartupError
from stagecoach.host_driver.mpa_startup import RTR, StartupFrame
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.oncrpc.errors import RpcConnectionError, TooManyConnections
from stagecoach.ulp.oncrpc.limits import Admission, Limits
from stagecoach.ulp.rpcrdma.client import connect
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.settings import ServerSettings
from tests.host_driver.startup_rig import raw_initiator
from tests.ulp.rpcrdma.rig import Devices, inline, items_of, message, room, run

PLAIN = StartupFrame(reply=False, ird=8, ord=8)
OLD = StartupFrame(reply=False, revision=1)
PEER_TO_PEER = StartupFrame(reply=False, ird=8, ord=8, peer_to_peer=True, rtr=RTR.WRITE)
SILENT = 6
LONG = ServerSettings(connect_timeout=60)


@contextlib.asynccontextmanager
async def listening(devices: Devices, settings: ServerSettings = LONG, late=True, **limits):
    """A listener whose connections are answered; `served` are those that were accepted."""
    admission = Admission(Limits(**limits))
    tasks = []

    async def answer(call):
        for item in items_of(call.message):
            await call.reserve(len(item))
        await call.reply(message(call.message.xid, *items_of(call.message)))

    async def serve(transport):
        with contextlib.suppress(RpcConnectionError):
            while True:
                tasks.append(asyncio.ensure_future(answer(await transport.receive())))
        await transport.close()

    async def accept(listener):
        while True:
            transport = await listener.accept()
            listener.served.append(transport)
            tasks.append(asyncio.ensure_future(serve(transport)))

    listener = RdmaListener(
        devices.server, port=0, settings=settings, admission=admission, late=late
    )
    listener.served, listener.admission = [], admission
    accepting = asyncio.ensure_future(accept(listener))
    try:
        yield listener
    finally:
        accepting.cancel()
        await listener.close()
        for transport in listener.served:
            await transport.close()
        await asyncio.gather(accepting, *tasks, return_exceptions=True)
    devices.check_clean()
    left = (admission.calls.left, admission.replies.left)
    assert left == (admission.calls.total, admission.replies.total)
    assert not admission._peers


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def one_call(devices, listener, octets=10):
    async with await connect(devices.client, "127.0.0.1", listener.port) as client:
        reply = await client.call(inline(1, bytes(octets)), room(200))
        assert items_of(reply) == [bytes(octets)]


async def silent_peers(listener, frame, count=SILENT, source="127.0.0.1") -> list[socket.socket]:
    peers = [raw_initiator(listener.port, frame.encode(), source=source) for _ in range(count)]
    for peer in peers:
        await asyncio.to_thread(peer.recv, 1000)  # the Reply
    return peers


async def closed(peers):
    for peer in peers:
        with contextlib.suppress(ConnectionError):
            assert await asyncio.to_thread(peer.recv, 1000) == b""
        peer.close()


@pytest.mark.parametrize("frame", [PLAIN, OLD, PEER_TO_PEER], ids=["plain", "old", "peer to peer"])
def test_peers_that_fall_silent_take_no_qp_and_hold_nobody_up(devices: Devices, frame):
    async def work():
        async with listening(devices) as listener:
            peers = await silent_peers(listener, frame)
            assert devices.server.qps == {}
            await one_call(devices, listener)
            for peer in peers:
                peer.close()

    run(work)


@pytest.mark.parametrize("frame", [PLAIN, PEER_TO_PEER], ids=["plain", "peer to peer"])
def test_peers_that_fall_silent_have_so_much_time(devices: Devices, frame):
    async def work():
        async with listening(devices, ServerSettings(connect_timeout=0.2)) as listener:
            peers = await silent_peers(listener, frame)
            await closed(peers)
            await until(lambda: len(listener.refused) == SILENT)
            assert {type(error).__name__ for error in listener.refused} == {"StartupTimeout"}

    run(work)


def test_peers_that_go_or_send_garbage_leave_nothing(devices: Devices):
    async def work():
        async with listening(devices) as listener:
            peers = await silent_peers(listener, PLAIN)
            for number, peer in enumerate(peers):
                if number % 2:
                    peer.sendall(bytes(64))
                else:
                    peer.close()
            await until(lambda: len(listener.refused) >= SILENT // 2)
            await closed(peers[1::2])
            assert all(isinstance(error, StartupError) for error in listener.refused)
            await one_call(devices, listener)

    run(work)


def test_a_listener_that_closes_ends_those_who_are_silent(devices: Devices):
    async def work():
        async with listening(devices) as listener:
            peers = await silent_peers(listener, PLAIN)
        await closed(peers)

    run(work)


def test_only_so_many_connections(devices: Devices):
    async def work():
        async with listening(devices, connections_per_peer=2) as listener:
            first = await connect(devices.client, "127.0.0.1", listener.port)
            silent = await silent_peers(listener, PLAIN, 1)
            with pytest.raises(StartupError):
                await connect(devices.client, "127.0.0.1", listener.port)
            await until(lambda: listener.refused)
            assert isinstance(listener.refused[0], TooManyConnections)
            await first.call(inline(1, b"good"), room(100))
            silent[0].close()
            await until(lambda: len(listener.refused) == 2)
            await one_call(devices, listener)
            await first.close()

    run(work)


def test_a_client_that_finds_no_qp_when_it_sends_loses_its_connection(devices: Devices):
    async def work():
        with Context(SimulatedDevice(), Quota(qps=1)) as small:
            async with listening(Devices(devices.client, small)) as listener:
                first = await connect(devices.client, "127.0.0.1", listener.port)
                second = await connect(devices.client, "127.0.0.1", listener.port)
                await first.call(inline(1, b"good"), room(100))
                with pytest.raises(RpcConnectionError):
                    await second.call(inline(2, b"good"), room(100))
                await until(lambda: listener.refused)
                assert "nothing left for an accepted client" in str(listener.refused[0])
                await first.call(inline(3, b"good"), room(100))
                await second.close()
                await first.close()

    run(work)


@pytest.mark.parametrize("late", [True, False])
def test_few_addresses_do_not_take_all_qps(devices: Devices, late: bool):
    """Each sends an octet after its Request, has its QP then, and never makes a call."""

    async def work():
        with Context(SimulatedDevice(), Quota(qps=8)) as small:
            async with listening(Devices(devices.client, small), late=late) as listener:
                greedy = []
                for source in ("127.0.0.2", "127.0.0.3"):
                    mine = await silent_peers(listener, PLAIN, 8, source)
                    for peer in mine:
                        with contextlib.suppress(ConnectionError):
                            peer.sendall(b"\0")
                    greedy.extend(mine)
                    await until(lambda: len(small.qps) + len(listener.refused) == len(greedy))
                assert len(small.qps) == 7, "6 by the first address, and one by the second"
                told = [str(error) for error in listener.refused]
                assert all("the others are for addresses that have none" in each for each in told)
                await one_call(devices, listener)
                # What is free again is for everybody.
                for peer in greedy:
                    peer.close()
                await until(lambda: not small.qps)
                await one_call(devices, listener)

    run(work)


@pytest.mark.parametrize(
    "limits", [{"first_seconds": 0.1}, {"first_seconds": 60, "idle_seconds": 0.1}]
)
def test_clients_that_do_not_call_lose_their_qp(devices: Devices, limits):
    async def work():
        async with listening(devices, late=False, **limits) as listener:
            client = await connect(devices.client, "127.0.0.1", listener.port)
            if "idle_seconds" in limits:
                await client.call(inline(1, b"good"), room(100))
            await until(lambda: listener.served and listener.served[0].channel.error is not None)
            assert "no call in 0.1 s" in str(listener.served[0].channel.error)
            await client.close()

    run(work)


def test_a_client_that_takes_no_reply_loses_its_connection(devices: Devices):
    async def work():
        async with listening(devices, late=False, reply_seconds=0.1) as listener:
            client = await connect(devices.client, "127.0.0.1", listener.port)
            await until(lambda: listener.served)
            channel = listener.served[0].channel

            async def never_sent(*_, **__):
                return asyncio.get_running_loop().create_future()

            channel.send = never_sent
            with pytest.raises(RpcConnectionError):
                await client.call(inline(1, b"good"), room(100))
            assert "has left what this end sends for 0.1 s" in str(channel.error)
            await client.close()

    run(work)


def test_a_client_whose_memory_cannot_be_read_loses_its_connection(devices: Devices, monkeypatch):
    async def never_read(*_):
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("stagecoach.ulp.rpcrdma.server.read_all", never_read)

    async def work():
        async with listening(devices, late=False, reply_seconds=0.1) as listener:
            client = await connect(devices.client, "127.0.0.1", listener.port)
            with pytest.raises(RpcConnectionError):
                await client.call(message(1, bytearray(9000)), room(100))
            await client.close()

    run(work)


def test_calls_wait_for_memory(devices: Devices):
    """Each call has read chunks and a reply of a page; there is memory for one at a time."""

    async def work():
        async with listening(devices, late=False, octets=4096) as listener:
            client = await connect(devices.client, "127.0.0.1", listener.port)

            async def one(xid):
                item = bytearray(1500)
                reply = await client.call(message(xid, item), room(100, 1500))
                assert len(reply.bulks[0].data) == 1500

            await asyncio.gather(*(one(xid) for xid in range(12)))
            assert listener.admission.calls.left == 4096
            await client.close()

    run(work)
