"""Calls from client to server: over TCP, and over a transport that moves bulk items aside."""

import asyncio
import contextlib
import re
import socket
import threading

import pytest

from stagecoach.ulp.oncrpc import record, tcp
from stagecoach.ulp.oncrpc.auth import AuthSys, this_user
from stagecoach.ulp.oncrpc.blocking import BlockingRpcClient
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.errors import (
    GarbageArguments,
    MessageTooLong,
    ProcedureUnavailable,
    ProgramMismatch,
    ProgramUnavailable,
    ReplyTimeout,
    ReplyTooLong,
    RpcConnectionError,
    SystemFailure,
)
from stagecoach.ulp.oncrpc.message import Bulk, Message
from stagecoach.ulp.oncrpc.program import Program
from stagecoach.ulp.oncrpc.server import RpcServer
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from stagecoach.ulp.oncrpc.tcp_server import TcpListener
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from tests.ulp.oncrpc.arithmetic import (
    ADD_TO_OCTETS,
    ARITHMETIC,
    FAIL,
    MISSING,
    NULL,
    SQUARE,
    WAIT,
    WHOAMI,
    Block,
    service,
)
from tests.ulp.oncrpc.memory_transport import MemoryPair

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def over_tcp(credential=None):
    listener = TcpListener(RpcServer([service()]).serve)
    port = await listener.listen(HOST, 0)
    try:
        async with RpcClient(await TcpClientTransport.connect(HOST, port), credential) as client:
            yield client
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def over_memory(credential=None):
    pair = MemoryPair()
    serving = asyncio.create_task(RpcServer([service()]).serve(pair))
    async with RpcClient(pair, credential) as client:
        yield client
    await serving


BOTH = pytest.mark.parametrize("connected", [over_tcp, over_memory])


@BOTH
def test_results_come_back(connected):
    async def run():
        async with connected() as client:
            assert await client.call(ARITHMETIC, NULL, None) is None
            assert await client.call(ARITHMETIC, SQUARE, 12) == 144

    asyncio.run(run())


@BOTH
@pytest.mark.parametrize("octets", [0, 1, 4, 4097, 1 << 20])
@pytest.mark.parametrize("placed", [False, True])
def test_bulk_items_go_there_and_back(connected, octets, placed):
    data = bytes(range(256)) * (octets // 256 + 1)
    data = data[:octets]
    buffer = memoryview(bytearray(octets + 3))

    async def run():
        async with connected() as client:
            block = await client.call(
                ARITHMETIC,
                ADD_TO_OCTETS,
                Block(b"abc", memoryview(data), 5),
                into=[buffer] if placed else (),
            )
        assert (block.name, block.factor) == (b"cba", 6)
        assert bytes(block.data) == bytes((octet + 5) % 256 for octet in data)
        assert not placed or bytes(buffer[:octets]) == bytes(block.data)

    asyncio.run(run())


@BOTH
def test_calls_complete_in_any_order(connected):
    async def run():
        order = []

        async def wait(client, milliseconds):
            order.append(await client.call(ARITHMETIC, WAIT, milliseconds))

        async with connected() as client:
            await asyncio.gather(*(wait(client, time) for time in (120, 10, 60)))
        assert order == [10, 60, 120]

    asyncio.run(run())


@BOTH
def test_refusals_raise(connected):
    other = Program("OTHER", ARITHMETIC.number + 1, 1, [SQUARE])
    newer = Program("ARITHMETIC", ARITHMETIC.number, 9, [SQUARE])

    async def run():
        async with connected() as client:
            with pytest.raises(ProgramUnavailable):
                await client.call(other, SQUARE, 1)
            with pytest.raises(ProgramMismatch) as mismatch:
                await client.call(newer, SQUARE, 1)
            assert (mismatch.value.low, mismatch.value.high) == (3, 3)
            with pytest.raises(ProcedureUnavailable):
                await client.call(ARITHMETIC, MISSING, 1)
            with pytest.raises(SystemFailure):
                await client.call(ARITHMETIC, FAIL, 0)
            with pytest.raises(GarbageArguments):
                await client.call(ARITHMETIC, FAIL, 1)
            assert await client.call(ARITHMETIC, SQUARE, 3) == 9  # the connection goes on

    asyncio.run(run())


@BOTH
def test_credential(connected):
    async def run():
        async with connected(AuthSys(0, b"here", 4711, 1, [])) as client:
            assert await client.call(ARITHMETIC, WHOAMI, None) == 4711
        async with connected(this_user()) as client:
            assert await client.call(ARITHMETIC, WHOAMI, None) == this_user().uid

    asyncio.run(run())


@BOTH
def test_call_after_close_raises(connected):
    async def run():
        async with connected() as client:
            await client.close()
            await client.close()
            with pytest.raises(RpcConnectionError):
                await client.call(ARITHMETIC, SQUARE, 1)

    asyncio.run(run())


def test_a_close_that_was_cancelled_is_finished_by_the_next():
    async def run():
        async with over_tcp() as client:
            await client.call(ARITHMETIC, SQUARE, 1)
            closing = asyncio.create_task(client._transport._stream.close())
            await asyncio.sleep(0)  # it waits
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await client.close()

    asyncio.run(run())


def test_calls_under_way_raise_when_the_server_goes():
    async def run():
        listener = TcpListener(RpcServer([service()]).serve)
        port = await listener.listen(HOST, 0)
        async with RpcClient(await TcpClientTransport.connect(HOST, port), None) as client:
            waiting = asyncio.create_task(client.call(ARITHMETIC, WAIT, 60_000))
            assert await client.call(ARITHMETIC, SQUARE, 2) == 4
            await listener.close()
            with pytest.raises(RpcConnectionError):
                await waiting

    asyncio.run(run())


def test_cancelled_call_leaves_the_connection_usable():
    async def run():
        async with over_tcp() as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call(ARITHMETIC, WAIT, 200), 0.01)
            await asyncio.sleep(0.25)
            assert await client.call(ARITHMETIC, SQUARE, 5) == 25

    asyncio.run(run())


def test_a_server_that_never_answers_is_a_timeout():
    async def run():
        listener = TcpListener(RpcServer([service()]).serve)
        port = await listener.listen(HOST, 0)
        transport = await TcpClientTransport.connect(HOST, port, reply_timeout=0.2)
        async with RpcClient(transport, None) as client:
            with pytest.raises(ReplyTimeout, match=r"call 0x[0-9a-f]{8}: no reply in 0\.2 s"):
                await client.call(ARITHMETIC, WAIT, 60_000)
            assert await client.call(ARITHMETIC, SQUARE, 5) == 25
        await listener.close()

    asyncio.run(run())


def test_a_machine_that_does_not_answer_is_a_timeout(monkeypatch):
    monkeypatch.setattr(tcp, "CONNECT_SECONDS", 0.1)

    async def run():
        with socket.socket() as full:  # its only place is taken, so that nothing is answered
            full.bind((HOST, 0))
            full.listen(0)
            port = full.getsockname()[1]
            taken = [await asyncio.open_connection(HOST, port)]
            with pytest.raises(
                TimeoutError, match=f"cannot connect to {HOST} port {port}: no answer"
            ):
                await TcpClientTransport.connect(HOST, port)
            for _, writer in taken:
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("host", "failure", "why"),
    [
        (HOST, ConnectionRefusedError, "Connection refused"),
        ("localhost", ConnectionRefusedError, "Connection refused"),
        ("no..host", OSError, ".*label empty or too long.*"),
    ],
)
def test_what_cannot_be_connected_is_named_with_the_reason(host, failure, why):
    with socket.socket() as unheard:
        unheard.bind((HOST, 0))
        port = unheard.getsockname()[1]
        with pytest.raises(failure) as caught:
            asyncio.run(TcpClientTransport.connect(host, port))
    assert re.fullmatch(f"cannot connect to {host} port {port}: {why}", str(caught.value))


def test_the_second_address_of_a_host_is_tried_too(monkeypatch):
    async def run():
        listener = TcpListener(RpcServer([service()]).serve)
        port = await listener.listen(HOST, 0)
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
            for address in ("127.0.0.2", HOST)  # nobody listens at the first
        ]

        async def both(*_, **__):
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        async with RpcClient(await TcpClientTransport.connect("both", port), None) as client:
            assert await client.call(ARITHMETIC, SQUARE, 5) == 25
        await listener.close()

    asyncio.run(run())


def test_reply_longer_than_its_room_raises():
    async def run():
        async with over_tcp() as client:
            block = Block(b"", memoryview(bytes(1000)), 1)
            with pytest.raises(ReplyTooLong):
                await client.call(ARITHMETIC, ADD_TO_OCTETS, block, result_octets=0)
            assert await client.call(ARITHMETIC, SQUARE, 5) == 25

    asyncio.run(run())


def test_message_longer_than_a_record_raises(monkeypatch):
    monkeypatch.setattr(tcp, "MAXIMUM_RECORD", 1000)

    async def run():
        async with over_tcp() as client:
            block = Block(b"", memoryview(bytes(1000)), 1)
            with pytest.raises(MessageTooLong, match="allowed: 1000"):
                await client.call(ARITHMETIC, ADD_TO_OCTETS, block)
            assert await client.call(ARITHMETIC, SQUARE, 5) == 25

    asyncio.run(run())


def test_blocking_client():
    with LoopServer() as port:

        async def connect():
            return RpcClient(await TcpClientTransport.connect(HOST, port), None)

        with BlockingRpcClient(connect) as client:
            assert client.call(ARITHMETIC, SQUARE, 11) == 121
            with pytest.raises(SystemFailure):
                client.call(ARITHMETIC, FAIL, 0)
        client.close()


def test_blocking_client_that_cannot_connect_raises():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]

    async def connect():
        return RpcClient(await TcpClientTransport.connect(HOST, port), None)

    with pytest.raises(OSError, match="Connect"):
        BlockingRpcClient(connect)
    assert "rpc" not in [thread.name for thread in threading.enumerate()]


class LoopServer:
    """The service over TCP in a thread."""

    def __enter__(self):
        from stagecoach.ulp.oncrpc.blocking import LoopThread

        self.thread = LoopThread()
        self.listener = TcpListener(RpcServer([service()]).serve)
        return self.thread.run(self.listener.listen(HOST, 0))

    def __exit__(self, *_):
        self.thread.run(self.listener.close())
        self.thread.close()


async def records_of(octets: bytes, maximum: int = 100) -> bytes:
    reader = asyncio.StreamReader()
    reader.feed_data(octets)
    reader.feed_eof()
    return await record.read_record(reader, maximum)


def test_record_is_made_of_fragments():
    octets = bytes.fromhex("00000002 6162 00000000 80000003 636465")
    assert asyncio.run(records_of(octets)) == b"abcde"


def test_record_of_a_message_with_bulk_items():
    message = Message(b"abcdefgh", (Bulk(4, memoryview(b"x")), Bulk(12, memoryview(b"yz"))))
    octets = b"".join(record.pieces(message))
    assert octets == bytes.fromhex("80000010") + message.whole()


@pytest.mark.parametrize(
    "octets",
    [
        "",
        "8000",
        "80000004 616263",
        "80000065",
        "00000064 " + "00" * 100 + "80000001 00",
        "00000000" * ((1 << 16) + 1) + "80000000",
    ],
    ids=["nothing", "half a mark", "half a fragment", "too long", "too long together", "endless"],
)
def test_record_that_is_none_ends_the_connection(octets):
    with pytest.raises(RpcConnectionError):
        asyncio.run(records_of(bytes.fromhex(octets)))


def test_octets_that_are_no_rpc_end_the_connection_of_the_server():
    async def run():
        listener = TcpListener(RpcServer([service()]).serve)
        port = await listener.listen(HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(bytes.fromhex("80000008 00000001 00000001"))
        assert await reader.read() == b""
        writer.close()
        await listener.close()

    asyncio.run(run())


def test_second_reply_to_a_call_changes_nothing():
    async def answer_twice(reader, writer):
        xid = (await record.read_record(reader, 1000))[:4]
        reply = bytes.fromhex("80000020") + xid + bytes.fromhex("00000001") + bytes(16)
        writer.write(2 * (reply + bytes.fromhex("0000000000000051")))
        xid = (await record.read_record(reader, 1000))[:4]
        reply = bytes.fromhex("80000020") + xid + bytes.fromhex("00000001") + bytes(16)
        writer.write(reply + bytes.fromhex("0000000000000064"))
        await reader.read()
        writer.close()

    async def run():
        server = await asyncio.start_server(answer_twice, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        async with RpcClient(await TcpClientTransport.connect(HOST, port), None) as client:
            assert await client.call(ARITHMETIC, SQUARE, 9) == 81
            assert await client.call(ARITHMETIC, SQUARE, 10) == 100
        server.close()

    asyncio.run(run())


def test_two_calls_with_one_xid_are_refused():
    async def run():
        async with over_tcp() as client:
            transport = client._transport
            first = asyncio.create_task(transport.call(Message(b"abcd" * 10), ReplyRoom(100)))
            await asyncio.sleep(0)
            with pytest.raises(ValueError, match="XID 0x61626364"):
                await transport.call(Message(b"abcd" * 10), ReplyRoom(100))
            first.cancel()

    asyncio.run(run())
