"""What clients may take of a server: connections, memory, time, and lines of its log."""

import asyncio
import contextlib
import errno
import logging
import socket
from dataclasses import replace

import pytest

from stagecoach.ulp.oncrpc import complaints, tcp, tcp_server
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.oncrpc.errors import TooManyConnections
from stagecoach.ulp.oncrpc.limits import Admission, Limits, Share
from stagecoach.ulp.oncrpc.program import Procedure, Program, null_procedure
from stagecoach.ulp.oncrpc.server import RpcServer, Service
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from stagecoach.ulp.oncrpc.tcp_server import TcpListener
from stagecoach.ulp.oncrpc.xdr_types import UINT, BulkOpaque

HOST = "127.0.0.1"
BIG = 1 << 16
SECONDS = 5.0
"""Longer than anything takes that goes well."""

FETCH = Procedure(1, "FETCH", UINT, BulkOpaque(1 << 20))
STORE = Procedure(2, "STORE", BulkOpaque(1 << 20), UINT)
WAIT = Procedure(3, "WAIT", UINT, UINT)
PROGRAM = Program("FETCHING", 0x20000002, 1, [null_procedure(), FETCH, STORE, WAIT])
LIMITS = Limits(octets=8 * BIG, octets_per_connection=2 * BIG)


class Server:
    """Serves with limits; `most` is what was taken for replies at a time."""

    def __init__(self, limits: Limits):
        self.admission = Admission(limits)
        self.most = 0
        self.stored = asyncio.Event()
        handlers = {FETCH: self._fetch, STORE: self._store, WAIT: self._wait}
        service = Service(PROGRAM, handlers)
        self.listener = TcpListener(RpcServer([service]).serve, self.admission)

    async def _fetch(self, request, octets):
        await request.reserve(octets)
        self.most = max(self.most, self.replies)
        return request.buffer(octets)

    async def _store(self, request, data):
        await self.stored.wait()
        return len(data)

    async def _wait(self, request, milliseconds):
        await asyncio.sleep(milliseconds / 1000)
        return milliseconds

    @property
    def replies(self):
        """Octets that are taken for replies."""
        return self.admission.replies.total - self.admission.replies.left

    @property
    def calls(self):
        """Octets that are taken for calls."""
        return self.admission.calls.total - self.admission.calls.left


def serving(work, **limits):
    """Runs a test with a server, of which nothing is left when all clients have gone."""

    async def run():
        server = Server(replace(LIMITS, **limits))
        server.port = await server.listener.listen(HOST, 0)
        try:
            await asyncio.wait_for(work(server), 2 * SECONDS)
        finally:
            await asyncio.wait_for(server.listener.close(), SECONDS)
        assert (server.replies, server.calls) == (0, 0)
        assert not server.admission._peers

    asyncio.run(run())


async def deaf_client(server, calls, octets=BIG):
    """Sends calls, and reads nothing."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connected.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connected, (HOST, server.port))
    for xid in range(calls):
        await loop.sock_sendall(connected, record_of(FETCH, xid, octets.to_bytes(4)))
    return connected


def record_of(procedure, xid, arguments):
    words = (xid, 0, 2, PROGRAM.number, PROGRAM.version, procedure.number, 0, 0, 0, 0)
    call = b"".join(word.to_bytes(4) for word in words) + arguments
    return (1 << 31 | len(call)).to_bytes(4) + call


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def client_of(server):
    async with RpcClient(await TcpClientTransport.connect(HOST, server.port), None) as client:
        yield client


async def ended(connected):
    """Waits until the server has closed a connection, whatever it sent before."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionError):
            while await loop.sock_recv(connected, 1 << 16):
                pass
    connected.close()


# Memory


def test_a_client_that_takes_no_replies_has_so_much_memory_and_so_much_time():
    async def work(server):
        before = asyncio.get_running_loop().time()
        deaf = await deaf_client(server, 100, 1 << 16)
        await until(lambda: server.most == 2 * BIG)
        async with client_of(server) as client:
            assert len(await client.call(PROGRAM, FETCH, 100, result_octets=200)) == 100
        await until(lambda: not server.admission._peers)
        assert asyncio.get_running_loop().time() - before < SECONDS
        assert server.most <= 2 * BIG + 100
        await ended(deaf)

    serving(work, reply_seconds=0.3)


def test_all_clients_that_take_no_replies_have_so_much_memory_together():
    async def work(server):
        deaf = [await deaf_client(server, 100) for _ in range(6)]
        await until(lambda: server.most == 3 * BIG)
        async with client_of(server) as client:
            # It waits until the time of the others is over.
            assert len(await client.call(PROGRAM, FETCH, BIG, result_octets=2 * BIG)) == BIG
        assert server.most == 3 * BIG
        await until(lambda: not server.admission._peers)
        for each in deaf:
            await ended(each)

    serving(work, octets=3 * BIG, reply_seconds=0.3)


def test_clients_of_one_address_that_take_no_replies_hold_up_no_other_address():
    async def work(server):
        deaf = [await deaf_client(server, 100) for _ in range(6)]
        await until(lambda: server.most == 4 * BIG)
        streams = await asyncio.open_connection(HOST, server.port, local_addr=("127.0.0.2", 0))
        async with asyncio.timeout(SECONDS), RpcClient(TcpClientTransport(*streams), None) as other:
            found = await other.call(PROGRAM, FETCH, 2 * BIG, result_octets=3 * BIG)
        assert len(found) == 2 * BIG
        for each in deaf:
            each.close()
        await until(lambda: not server.admission._peers)

    serving(work, octets_per_peer=4 * BIG, reply_seconds=2 * SECONDS)


def test_a_reply_beyond_all_memory_has_all_of_it():
    async def work(server):
        async with client_of(server) as client:
            calls = (client.call(PROGRAM, FETCH, 5 * BIG, result_octets=6 * BIG) for _ in range(3))
            assert [len(found) for found in await asyncio.gather(*calls)] == 3 * [5 * BIG]
        assert server.most == 2 * BIG

    serving(work)


def test_calls_wait_for_memory_before_they_are_read():
    async def work(server):
        async with client_of(server) as client:
            data = memoryview(bytes(BIG - 200))
            calls = [asyncio.ensure_future(client.call(PROGRAM, STORE, data)) for _ in range(5)]
            await until(lambda: server.calls > BIG)
            # Those that wait have all their time afterwards.
            await asyncio.sleep(0.3)
            assert server.calls <= 2 * BIG
            server.stored.set()
            assert await asyncio.gather(*calls) == 5 * [len(data)]

    serving(work, record_seconds=0.2)


def test_a_record_in_fragments_takes_memory_for_all_that_it_may_have():
    async def work(server):
        loop = asyncio.get_running_loop()
        connected = socket.create_connection((HOST, server.port))
        connected.setblocking(False)
        await loop.sock_sendall(connected, (8).to_bytes(4) + bytes(8))
        await until(lambda: server.calls == 2 * BIG)
        connected.close()
        await until(lambda: server.calls == 0)

    serving(work)


# Time


@pytest.mark.parametrize("octets", [0, 1, 4, 20])
def test_a_half_record_and_a_silent_client_end(octets):
    async def work(server):
        connected = socket.create_connection((HOST, server.port))
        connected.setblocking(False)
        connected.sendall(record_of(FETCH, 1, bytes(4))[:octets])
        await ended(connected)

    serving(work, record_seconds=0.1, first_seconds=0.1)


def test_a_record_that_comes_in_drops_ends_too():
    async def work(server):
        loop = asyncio.get_running_loop()
        connected = socket.create_connection((HOST, server.port))
        connected.setblocking(False)

        async def drip():
            while True:
                await loop.sock_sendall(connected, bytes(4))  # empty fragments
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drip())
        await ended(connected)
        with contextlib.suppress(OSError):
            await dripping

    serving(work, record_seconds=0.1)


def test_an_idle_client_ends_but_not_while_its_call_is_under_way():
    async def work(server):
        async with client_of(server) as client:
            assert await client.call(PROGRAM, WAIT, 400) == 400
            await until(lambda: not server.admission._peers)

    serving(work, idle_seconds=0.1)


def test_a_client_that_calls_again_in_time_stays():
    async def work(server):
        async with client_of(server) as client:
            for _ in range(4):
                await asyncio.sleep(0.2)
                assert await client.call(PROGRAM, WAIT, 0) == 0

    serving(work, idle_seconds=SECONDS, first_seconds=SECONDS, record_seconds=0.1)


@pytest.mark.parametrize("what", ["unread", "half a record", "silent"])
def test_a_server_ends_whatever_clients_do(monkeypatch, what):
    monkeypatch.setattr(tcp, "CLOSE_SECONDS", 0.1)

    async def run():
        server = Server(Limits())
        server.port = await server.listener.listen(HOST, 0)
        deaf = [await deaf_client(server, 40 * (what == "unread"), 1 << 20) for _ in range(10)]
        if what == "half a record":
            for each in deaf:
                each.send(bytes(3))
        await until(lambda: server.admission.connections == 10)
        if what == "unread":
            await until(lambda: server.replies >= 10 << 20)
        async with asyncio.timeout(2):
            await server.listener.close()
        for each in deaf:
            each.close()

    asyncio.run(run())


# Connections


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"connections_per_peer": 3}, "3 connections of 127.0.0.1; allowed: 3"),
        ({"connections": 3}, "3 connections; allowed: 3"),
    ],
)
def test_only_so_many_connections(caplog, monkeypatch, limits, text):
    monkeypatch.setattr(tcp_server, "_COMPLAINTS", Complaints(logging.getLogger("test")))

    async def work(server):
        clients = [await deaf_client(server, 0) for _ in range(3)]
        await until(lambda: server.admission.connections == 3)
        for _ in range(50):
            await ended(await deaf_client(server, 0))
        assert [record.getMessage() for record in caplog.records] == [
            f"a client was turned away: {text}"
        ]
        clients.pop().close()
        await until(lambda: server.admission.connections == 2)
        async with client_of(server) as client:
            assert await client.call(PROGRAM, WAIT, 0) == 0
        for each in clients:
            each.close()

    serving(work, **limits)


def test_a_process_without_descriptors_says_so_once_and_goes_on(caplog, monkeypatch):
    monkeypatch.setattr(tcp_server, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(tcp_server, "_COMPLAINTS", Complaints(logging.getLogger("test")))

    async def work(server):
        loop = asyncio.get_running_loop()
        accept, failures = loop.sock_accept, []

        async def failing(listening):
            if len(failures) < 20:
                failures.append(None)
                raise OSError(errno.EMFILE, "Too many open files")
            return await accept(listening)

        monkeypatch.setattr(loop, "sock_accept", failing)
        for _ in range(2):  # the first may have been waited for before
            async with client_of(server) as client:
                assert await client.call(PROGRAM, WAIT, 0) == 0
        assert len(failures) == 20
        assert [record.getMessage() for record in caplog.records] == [
            "cannot accept a connection: [Errno 24] Too many open files"
        ]

    serving(work)


def test_many_connections_at_once_print_little(caplog):
    """Of a server with few descriptors left, which printed 4,899 tracebacks to 1,000 of them."""

    async def work(server):
        clients = [await deaf_client(server, 0) for _ in range(200)]
        await until(lambda: server.admission.connections == 16)
        await asyncio.sleep(0.05)
        for each in clients:
            each.close()
        assert len(caplog.records) <= 1
        assert all("\n" not in record.getMessage() for record in caplog.records)

    serving(work)


# Addresses


def has_ipv6() -> bool:
    """Whether this machine has an address of it."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", [None, "localhost", HOST])
def test_addresses_at_which_a_server_listens(host):
    async def run():
        server = Server(Limits())
        server.port = await server.listener.listen(host, 0)
        for address in [HOST] + ["::1"] * (has_ipv6() and host is None):
            transport = await TcpClientTransport.connect(address, server.port)
            async with RpcClient(transport, None) as client:
                assert await client.call(PROGRAM, WAIT, 0) == 0
        with pytest.raises(OSError, match="in use"):
            await Server(Limits()).listener.listen(host, server.port)
        await server.listener.close()

    asyncio.run(run())


# The parts


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "", True),
    ],
)
def test_what_one_peer_is(one, other, same):
    admission = Admission(Limits(connections_per_peer=1))
    account = admission.enter(one)
    with pytest.raises(TooManyConnections) if same else contextlib.nullcontext():
        admission.enter(other)
    account.close()
    account.close()
    admission.enter(one)


def test_shares_give_back_what_a_cancelled_call_waited_for():
    async def run():
        admission = Admission(Limits(octets=10, octets_per_connection=6))
        shares = [Share(6, admission.replies) for _ in range(2)]
        assert await shares[0].take(100) == 6
        waiting = asyncio.ensure_future(shares[1].take(5))
        await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert await shares[1].take(4) == 4
        shares[0].close()
        shares[0].give(6)
        shares[0].close()
        assert (admission.replies.left, shares[0].held) == (6, 0)
        shares[1].close()
        assert admission.replies.left == 10

    asyncio.run(run())


@pytest.mark.parametrize("name", vars(Limits()))
def test_limits_of_nothing_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0; allowed: more than 0"):
        Limits(**{name: 0})


def test_complaints_of_a_kind_come_once_in_some_time(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr(complaints.time, "monotonic", lambda: now)
    log = Complaints(logging.getLogger("test"), 10)
    for _ in range(5):
        log.warning("a", "first")
        log.error("b", "second", ValueError("x"))
    now += 10
    log.warning("a", "third")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "first"),
        ("ERROR", "second"),
        ("WARNING", "third (4 more like it before)"),
    ]
