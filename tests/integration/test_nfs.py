"""NFS over RDMA through two compiled devices.

`make nfs` copies 200 files of 0 octets to 4 MiB; `make test` 40 files of up to 256 KiB.
"""

import asyncio
import ctypes
import logging
import os
import pkgutil
import time

import pytest

from stagecoach.ulp.nfs.arguments import StableHow
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.rpcrdma.settings import Profile
from tests.integration.nfs_rig import NfsPair
from tests.ulp.nfs.trees import facts_of, make_tree

BOTH = pytest.mark.parametrize("profile", Profile, ids=lambda profile: profile.name)

WHOLE = os.environ.get("NFS_TREE") == "whole"
EDGES = [0, 1, 3, 4, 5, 1023, 1024, 4095, 4096, 4097, 65_535, 65_537]
if WHOLE:
    SIZES = [*EDGES, 4 << 20, (1 << 20) - 1, (1 << 20) + 1, *(37 * at for at in range(185))]
else:
    SIZES = [*EDGES, 1 << 18, *(371 * at for at in range(27))]


@pytest.mark.timeout(900)
@BOTH
def test_tree_there_and_back(tmp_path, profile):
    source, back = tmp_path / "source", tmp_path / "back"
    make_tree(source, SIZES, seed=5667)
    (tmp_path / "there").mkdir()
    with NfsPair(tmp_path / "there", profile) as pair:
        progress = pair.copy(source, "tree", put=True)
        assert progress.octets == sum(SIZES)
        assert facts_of(tmp_path / "there" / "tree") == facts_of(source)
        assert pair.copy(back, "tree", put=False).octets == sum(SIZES)
    assert facts_of(back) == facts_of(source)
    assert sum(path.name.startswith("file-") for path in back.rglob("*")) == len(SIZES)


@BOTH
def test_long_directories(tmp_path, profile):
    """A READDIRPLUS of 64 KiB comes in a reply chunk, or as read chunk."""
    names = {f"{'n' * 200}-{number}" for number in range(300)}
    for name in names:
        (tmp_path / name).touch()

    async def work(files):
        root = await files.find(b"/export")
        page = await files.nfs.readdirplus(root.handle, 1 << 16)
        assert not page.eof and len(page.entries) > 100
        return {each.name.decode() async for each in files.entries(root)}

    with NfsPair(tmp_path, profile) as pair:
        assert pair.use(work) == names


@BOTH
def test_long_calls_and_links(tmp_path, profile):
    """A SYMLINK of 4,000 octets is a long call, or has a read chunk; its READLINK is long."""
    target = b"/".join([b"x" * 99] * 40)

    async def work(files):
        root = await files.find(b"/export")
        link = await files.nfs.symlink(root.handle, b"link", target)
        return await files.nfs.readlink(link)

    with NfsPair(tmp_path, profile) as pair:
        assert pair.use(work) == target
    assert os.readlink(tmp_path / "link") == target.decode()


@BOTH
def test_errors_come_through(tmp_path, profile):
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").write_bytes(b"content")

    async def work(files):
        root = await files.find(b"/export")
        file = await files.find(b"/export/file")
        sub = await files.find(b"/export/sub")
        buffer = memoryview(bytearray(1 << 16))
        for call, status in (
            (files.nfs.read(sub.handle, 0, buffer), NfsStatus.ISDIR),
            (files.nfs.read(b"none", 0, buffer), NfsStatus.BADHANDLE),
            (files.nfs.write(sub.handle, 0, buffer), NfsStatus.ISDIR),
            (files.nfs.write(file.handle, 1 << 63, buffer), NfsStatus.FBIG),
            (files.nfs.lookup(root.handle, b".."[:1] + b"./x"), NfsStatus.ACCES),
        ):
            with pytest.raises(NfsError) as error:
                await call
            assert error.value.status == status
        result = await files.nfs.read(file.handle, 1 << 63, buffer)
        assert (result.count, result.eof) == (0, True)
        result = await files.nfs.read(file.handle, 2, buffer)
        assert (bytes(result.data), result.eof) == (b"ntent", True)

    with NfsPair(tmp_path, profile) as pair:
        pair.use(work)


@BOTH
def test_many_calls_at_a_time(tmp_path, profile):
    """More than the credits, with data in both directions."""
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1024)

    async def work(files):
        file = (await files.find(b"/export/file")).handle

        async def both(number):
            buffer = memoryview(bytearray(4096))
            result = await files.nfs.read(file, 4096 * (number % 32), buffer)
            assert bytes(result.data) == bytes(range(256)) * 16
            written = await files.nfs.write(
                file, (1 << 18) + 4096 * number, buffer, StableHow.UNSTABLE
            )
            assert written.count == 4096

        await asyncio.gather(*map(both, range(80)))

    with NfsPair(tmp_path, profile) as pair:
        pair.use(work)
    assert (tmp_path / "file").read_bytes() == bytes(range(256)) * 1024 + bytes(range(256)) * 1280


def address_of(buffer) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


@BOTH
def test_the_driver_copies_no_data(tmp_path, monkeypatch, profile):
    """The device reads and writes the memory of the caller, and that of the file's system calls."""
    octets = 50_001
    content = os.urandom(octets)
    (tmp_path / "file").write_bytes(content)
    addresses = {}

    def remember(where, name, of):
        """Has a function tell the address of a buffer before it does its work."""
        whole = f"{where}.{name}"
        work = pkgutil.resolve_name(whole)

        def told(*arguments, **others):
            addresses.setdefault(name, []).append(of(*arguments))
            return work(*arguments, **others)

        monkeypatch.setattr(whole, told)

    async def work(files):
        root = await files.find(b"/export")
        file = (await files.find(b"/export/file")).handle
        buffer = bytearray(octets)
        remember("os", "preadv", lambda fd, buffers, offset: address_of(buffers[0]))
        remember("os", "pwritev", lambda fd, buffers, offset: address_of(buffers[0]))
        remember(
            "stagecoach.ulp.rpcrdma.reply",
            "write_requests",
            lambda chunk, source: source.addr,
        )
        remember("stagecoach.ulp.rpcrdma.server", "read_requests", lambda chunk, into: into.addr)
        remember(
            "stagecoach.ulp.rpcrdma.chunk_memory",
            "MR",
            lambda pd, buffer, *_: address_of(buffer),
        )
        result = await files.nfs.read(file, 0, memoryview(buffer))
        assert buffer == content and address_of(result.data) == address_of(buffer)
        assert addresses.pop("preadv") == addresses.pop("write_requests")
        copy = await files.nfs.create(root.handle, b"copy")
        await files.nfs.write(copy, 0, memoryview(buffer))
        assert addresses.pop("pwritev") == addresses.pop("read_requests")
        assert addresses == {"MR": [address_of(buffer)] * 2}

    with NfsPair(tmp_path, profile) as pair:
        pair.use(work)
    assert (tmp_path / "copy").read_bytes() == content


def test_events_of_connections_do_not_pile_up(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("stagecoach.ulp.nfs.server.serving._SWEEP_SECONDS", 0.1)
    caplog.set_level(logging.DEBUG, logger="stagecoach.ulp.nfs.server.ends")

    async def work(files):
        await files.find(b"/export")

    with NfsPair(tmp_path) as pair:
        pair.use(work)
        deadline = time.monotonic() + 10
        while "stopped" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "stopped" in caplog.text
        assert pair.server_context.events == []


@BOTH
def test_server_that_goes(tmp_path, profile):
    (tmp_path / "file").write_bytes(bytes(1 << 16))

    async def work(files):
        file = (await files.find(b"/export/file")).handle
        await asyncio.to_thread(pair.stop)
        with pytest.raises(RpcConnectionError):
            await files.nfs.read(file, 0, memoryview(bytearray(1 << 16)))

    with NfsPair(tmp_path, profile) as pair:
        pair.use(work)
