"""Clients of a whole server that want too much, over TCP."""

import asyncio
import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import pytest

from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    ReadArguments,
    ReaddirArguments,
    ReaddirplusArguments,
)
from stagecoach.ulp.nfs.client.connection import mounted
from stagecoach.ulp.nfs.client.files import Files
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.server import directories
from stagecoach.ulp.oncrpc.auth import this_user
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.limits import Limits
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from tests.ulp.nfs.tcp_server import HOST, WAYS, served

MEBI = 1 << 20
READ = 6
NFS = 100003
DESCRIPTORS = 200
"""That the server may have, fewer than there are clients."""


def read_call(xid: int, handle: bytes, count: int = MEBI) -> bytes:
    """A record with READ of a file, of nobody."""
    words = (xid, 0, 2, NFS, 3, READ, 0, 0, 0, 0, len(handle))
    call = b"".join(word.to_bytes(4) for word in words) + handle + bytes(8) + count.to_bytes(4)
    return (1 << 31 | len(call)).to_bytes(4) + call


def deaf_client(port: int, handle: bytes, calls: int) -> socket.socket:
    """A client that asks for a lot and takes nothing."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connected.connect((HOST, port))
    connected.sendall(b"".join(read_call(xid, handle) for xid in range(calls)))
    return connected


async def handle_of(url: NfsUrl) -> bytes:
    async with mounted(url, WAYS) as files:
        return (await files.find(url.path)).handle


@contextlib.asynccontextmanager
async def client_from(address: str, url: NfsUrl):
    """Files of a server, for a client at another address."""
    reader, writer = await asyncio.open_connection(url.host, url.port, local_addr=(address, 0))
    async with RpcClient(TcpClientTransport(reader, writer), this_user()) as rpc:
        yield await Files.mount(url, rpc, None)


def resident_octets(process: int) -> int:
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.fixture
def server(tmp_path):
    """The command; its process and a function from a path to its URL."""
    (tmp_path / "file").write_bytes(bytes(MEBI))
    (tmp_path / "file").chmod(0o644)
    words = ["serve", str(tmp_path), "--no-rdma", "--tcp-port", "0", "-a", HOST, "--export", "/e"]
    command = [
        sys.executable,
        "-m",
        "stagecoach.cli.main",
        "nfs",
        *words,
        "--no-root-squash",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    ) as process:
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"serving (nfs\+tcp://127\.0\.0\.1:\d+)/e read-write\n", line)
            yield process, lambda path: NfsUrl.parse(found[1] + path)
        finally:
            process.kill()


def test_sigterm_ends_the_server_whatever_clients_leave_unread(server):
    process, url = server
    handle = asyncio.run(handle_of(url("/e/file")))
    before = resident_octets(process.pid)
    deaf = [deaf_client(url("/").port, handle, 64) for _ in range(8)]
    half = socket.create_connection((HOST, url("/").port))
    half.sendall(bytes(3))
    time.sleep(0.5)
    # 8 MiB for the replies of each, which were 64 MiB, and what the kernel has not taken yet.
    assert resident_octets(process.pid) - before < 8 * 14 * MEBI
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert time.monotonic() - begun < 10
    for each in (*deaf, half):
        each.close()
    errors = process.stderr.read()
    assert "Traceback" not in errors
    assert errors.count("\n") <= 3


def test_many_connections_print_little(server):
    process, url = server
    clients = []
    for _ in range(300):
        clients.append(socket.create_connection((HOST, url("/").port)))
        clients[-1].send(b"GE")  # half a record
    for each in clients:
        each.close()
    with contextlib.suppress(ConnectionError):
        asyncio.run(asyncio.wait_for(handle_of(url("/e/file")), 10))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    errors = process.stderr.read()
    assert "Traceback" not in errors
    assert errors.count("\n") <= 4


def test_listings_of_one_client_hold_up_nobody(tmp_path, monkeypatch):
    """Neither the event loop nor the calls of others."""
    for number in range(20):
        (tmp_path / f"{number}").touch()
    entries = directories.entries
    calls, pause = 40, 0.05

    def slow(*arguments):
        time.sleep(pause)
        return entries(*arguments)

    monkeypatch.setattr(directories, "entries", slow)

    async def work(url):
        async with mounted(url, WAYS) as greedy, client_from("127.0.0.2", url) as modest:
            root = await greedy.find(b"/export")
            listings = [
                asyncio.ensure_future(greedy.nfs.readdirplus(root.handle, 4096, 0, bytes(8)))
                for _ in range(calls)
            ]
            await asyncio.sleep(pause)
            waits = []
            while not all(task.done() for task in listings):
                begun = time.monotonic()
                await modest.nfs.getattr(root.handle)
                waits.append(time.monotonic() - begun)
            await asyncio.gather(*listings)
            # One after the other they are 2 s, in which no other call was answered.
            assert sum(waits) > calls * pause / 8
            assert max(waits) < calls * pause / 4

    with served(tmp_path) as url:
        asyncio.run(work(url("")))


def test_a_listing_is_short_whatever_is_asked_for(rig):
    for number in range(800):
        (rig.directory / f"{number:0100}").touch()
    arguments = ReaddirplusArguments(rig.root, 0, bytes(8), MEBI, MEBI)
    assert len(rig.ok(p.READDIRPLUS, arguments).entries) < 400
    found = rig.ok(p.READDIR, ReaddirArguments(rig.root, 0, bytes(8), MEBI))
    assert len(found.entries) < 800 and not found.eof


def test_memory_for_long_replies_is_reserved_before_the_call_begins(rig):
    (rig.directory / "file").write_bytes(b"content")
    handle = rig.handle("file")
    no_cookie = (0, bytes(8))
    for procedure, arguments, octets in [
        (p.READ, ReadArguments(handle, 0, 5000), 5000),
        (p.READ, ReadArguments(handle, 0, 1 << 31), MEBI),
        (p.READDIR, ReaddirArguments(rig.root, *no_cookie, 5000), 5000),
        (p.READDIR, ReaddirArguments(rig.root, *no_cookie, MEBI), MEBI >> 4),
        (p.READDIRPLUS, ReaddirplusArguments(rig.root, *no_cookie, 5000, 6000), 6000),
        (p.READDIRPLUS, ReaddirplusArguments(rig.root, *no_cookie, MEBI, MEBI), MEBI >> 4),
    ]:
        rig.ok(procedure, arguments)
        assert rig.calls[0].reserved == octets


def test_clients_that_take_no_replies_hold_up_others_only_for_their_time(tmp_path):
    (tmp_path / "file").write_bytes(bytes(MEBI))
    (tmp_path / "file").chmod(0o644)
    limits = Limits(octets=4 * MEBI, octets_per_connection=2 * MEBI, reply_seconds=0.3)
    with served(tmp_path, limits=limits) as url:
        handle = asyncio.run(handle_of(url("/file")))
        deaf = [deaf_client(url("/").port, handle, 30) for _ in range(4)]
        assert asyncio.run(asyncio.wait_for(handle_of(url("/file")), 10)) == handle
        for each in deaf:
            each.close()
