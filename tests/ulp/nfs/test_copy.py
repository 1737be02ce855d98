"""Copies of files and trees."""

import asyncio
import gc
import os
import stat

import pytest

from stagecoach.ulp.nfs.client import copy, procedures
from stagecoach.ulp.nfs.client.connection import mounted
from stagecoach.ulp.nfs.client.copy import Copier, Progress
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from tests.ulp.nfs.tcp_server import WAYS, served
from tests.ulp.nfs.trees import facts_of, make_tree

SIZES = [0, 1, 3, 4096, 100_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, *range(5, 40)]
SMALL = 1000


@pytest.fixture
def tree(tmp_path):
    make_tree(tmp_path / "tree", SIZES, seed=7)
    (tmp_path / "there").mkdir()
    return tmp_path / "tree"


def copied(url, directory, way, transfer=None, progress=None):
    """Puts or gets everything; returns the progress."""
    progress = progress or Progress()

    async def run():
        async with mounted(url, WAYS) as files:
            found = await files.find(url.path)
            if transfer is None:
                copier = await Copier.of(files, found, progress, way == "put")
            else:
                copier = Copier(files, transfer, progress)
            fd = os.open(directory.parent, os.O_RDONLY)
            try:
                name = os.fsencode(directory.name)
                if way == "put":
                    await copier.put(name, fd, found.handle, name)
                else:
                    child = await files.child(found, name)
                    await copier.get(child, fd, name)
            finally:
                os.close(fd)

    asyncio.run(run())
    return progress


@pytest.mark.parametrize("transfer", [None, 4096])
def test_tree_there_and_back(tree, tmp_path, transfer):
    with served(tmp_path / "there") as url:
        progress = copied(url(), tree, "put", transfer)
        assert facts_of(tmp_path / "there" / "tree") == facts_of(tree)
        assert progress.octets == progress.total == sum(SIZES)
        assert progress.files == len(list(tree.rglob("*"))) + 1
        (tmp_path / "back").mkdir()
        back = copied(url(), tmp_path / "back" / "tree", "get", transfer)
        assert (back.octets, back.files) == (progress.octets, progress.files)
    assert facts_of(tmp_path / "back" / "tree") == facts_of(tree)


def test_copy_again_replaces(tree, tmp_path):
    with served(tmp_path / "there") as url:
        copied(url(), tree, "put")
        for path in (tmp_path / "there").rglob("file-1*"):
            path.write_bytes(b"other" * 1000)
        copied(url(), tree, "put")
        assert facts_of(tmp_path / "there" / "tree") == facts_of(tree)
        for path in tree.rglob("file-2*"):
            path.write_bytes(b"other" * 1000)
        copied(url(), tree, "get")
    assert facts_of(tmp_path / "there" / "tree") == facts_of(tree)


def test_what_is_no_file_is_skipped(tmp_path):
    for name in ("source", "there", "back"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "source" / "fifo")
    with served(tmp_path / "there") as url:
        assert copied(url(), tmp_path / "source", "put").skipped == [b"fifo"]
        os.mkfifo(tmp_path / "there" / "source" / "pipe")
        assert copied(url(), tmp_path / "back" / "source", "get").skipped == [b"pipe"]
    assert os.listdir(tmp_path / "back" / "source") == []


def test_short_reads_and_writes(tmp_path, monkeypatch):
    """A server may do less than asked."""
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_bytes(os.urandom(20_000))
    read, write = procedures.NfsClient.read, procedures.NfsClient.write
    monkeypatch.setattr(
        procedures.NfsClient,
        "read",
        lambda self, file, offset, into: read(self, file, offset, into[:SMALL]),
    )
    monkeypatch.setattr(
        procedures.NfsClient,
        "write",
        lambda self, file, offset, data: write(self, file, offset, data[:SMALL]),
    )
    with served(tmp_path / "there") as url:
        copied(url(), tmp_path / "file", "put", 4096)
        assert facts_of(tmp_path / "there")["file"] == facts_of(tmp_path)["file"]
        (tmp_path / "back").mkdir()
        copied(url(), tmp_path / "back" / "file", "get", 4096)
    assert facts_of(tmp_path / "back")["file"] == facts_of(tmp_path)["file"]


def test_at_most_so_many_reads_at_a_time(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(bytes(100_000))
    under_way, most = 0, 0
    read = procedures.NfsClient.read

    async def counted(self, file, offset, into):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await read(self, file, offset, into)
        finally:
            under_way -= 1

    monkeypatch.setattr(procedures.NfsClient, "read", counted)
    with served(tmp_path / "there") as url:
        copied(url(), tmp_path / "file", "get", SMALL)
    assert most == copy.OUTSTANDING


def test_blocks_that_fail_together_raise_one_error(tmp_path, monkeypatch, caplog):
    """Asyncio logs an error that nobody asked for, with a traceback, for the user to see."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(bytes(100_000))
    reads = 0

    async def lost(self, file, offset, into):
        nonlocal reads
        reads += 1
        while reads < copy.OUTSTANDING:
            await asyncio.sleep(0)
        raise RpcConnectionError("the server is gone")

    monkeypatch.setattr(procedures.NfsClient, "read", lost)
    with served(tmp_path / "there") as url, pytest.raises(RpcConnectionError, match="gone"):
        copied(url(), tmp_path / "file", "get", SMALL)
    gc.collect()
    assert caplog.records == []
    assert os.listdir(tmp_path) == ["there"]


@pytest.fixture
def losing(monkeypatch):
    """COMMITs with another verifier than that of the WRITEs, so many of them."""
    left = []
    commit = procedures.NfsClient.commit

    async def lose(self, file, offset=0, count=0):
        verifier = await commit(self, file, offset, count)
        if left:
            left.pop()
            return b"restart!"
        return verifier

    monkeypatch.setattr(procedures.NfsClient, "commit", lose)
    return left


def test_what_a_server_lost_is_written_again(tmp_path, losing):
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_bytes(b"content")
    with served(tmp_path / "there") as url:
        losing.append(1)
        assert copied(url(), tmp_path / "file", "put").octets == 14
        losing += [1, 2]
        with pytest.raises(NfsError, match="lost"):
            copied(url(), tmp_path / "file", "put")


@pytest.mark.parametrize("old", [None, b"as it was"])
@pytest.mark.parametrize(
    ("end", "raised"),
    [
        ("an error", NfsError),
        ("a cancellation", asyncio.CancelledError),
        ("a lost connection", RpcConnectionError),
    ],
)
def test_a_put_that_ends_early_leaves_no_half_file(tmp_path, monkeypatch, old, end, raised):
    """Whatever ends it, also in a tree, whose copies are cancelled twice."""
    (tmp_path / "there").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(bytes(100_000))
    if old is not None:
        (tmp_path / "there" / "tree").mkdir()
        (tmp_path / "there" / "tree" / "file").write_bytes(old)
    write, writes = procedures.NfsClient.write, 0

    async def ending(self, file, offset, data):
        nonlocal writes
        writes += 1
        if writes > 5:
            if end == "a lost connection":
                await self._rpc.close()
            if end == "an error":
                raise NfsError(NfsStatus.NOSPC)
            if end == "a cancellation":
                task.cancel()
                await asyncio.sleep(3600)
        return await write(self, file, offset, data)

    remove = procedures.NfsClient.remove

    async def slowly(self, directory, name):
        if end == "a cancellation":
            task.cancel()
        await asyncio.sleep(0.2)  # it is under way when the copy is cancelled again
        await remove(self, directory, name)

    monkeypatch.setattr(procedures.NfsClient, "write", ending)
    monkeypatch.setattr(procedures.NfsClient, "remove", slowly)
    task = None

    async def run(url):
        nonlocal task
        task = asyncio.current_task()
        async with mounted(url, WAYS) as files:
            found = await files.find(url.path)
            fd = os.open(tmp_path, os.O_RDONLY)
            try:
                await Copier(files, SMALL, Progress()).put(b"tree", fd, found.handle, b"tree")
            finally:
                os.close(fd)

    with served(tmp_path / "there") as url:
        with pytest.raises(raised):
            asyncio.run(run(url()))
    left = os.listdir(tmp_path / "there" / "tree")
    kept = [name for name in left if not name.endswith(".part")]
    assert kept == ([] if old is None else ["file"])
    if old is not None:
        assert (tmp_path / "there" / "tree" / "file").read_bytes() == old
    # Without a connection the unfinished file stays, under its own name.
    assert len(left) - len(kept) == (end == "a lost connection")


@pytest.mark.parametrize("size", [0, 1, SMALL, 10 * SMALL + 1])
def test_a_stream_has_all_octets_in_order(tmp_path, monkeypatch, size):
    (tmp_path / "file").write_bytes(os.urandom(size))
    read = procedures.NfsClient.read

    async def later(self, file, offset, into):
        await asyncio.sleep(0.01 * (offset // SMALL % 3 == 0))  # answers change places
        return await read(self, file, offset, into)

    monkeypatch.setattr(procedures.NfsClient, "read", later)
    came = []

    async def run(url):
        async with mounted(url, WAYS) as files:
            found = await files.find(url.path + b"/file")
            await Copier(files, SMALL, Progress()).stream(found, came.append)

    with served(tmp_path) as url:
        asyncio.run(run(url()))
    assert b"".join(came) == (tmp_path / "file").read_bytes()


def test_file_that_becomes_shorter_leaves_nothing(tmp_path, monkeypatch):
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    path = tmp_path / "there" / "file"
    path.write_bytes(bytes(10_000))
    read = procedures.NfsClient.read

    async def shorten(self, file, offset, into):
        os.truncate(path, 5000)
        return await read(self, file, offset, into)

    monkeypatch.setattr(procedures.NfsClient, "read", shorten)
    with served(tmp_path / "there") as url, pytest.raises(NfsError, match="became shorter"):
        copied(url(), tmp_path / "back" / "file", "get", SMALL)
    assert os.listdir(tmp_path / "back") == []


def test_links_of_this_machine_are_not_followed(tmp_path):
    """What a server lists as a directory may be a link here."""
    for name in ("there", "back", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "sub").mkdir()
    (tmp_path / "there" / "sub" / "file").write_bytes(b"content")
    (tmp_path / "back" / "sub").symlink_to(tmp_path / "elsewhere")
    with served(tmp_path / "there") as url, pytest.raises(OSError, match=r"sub|Not a directory"):
        copied(url(), tmp_path / "back" / "sub", "get")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_special_permissions_are_not_copied(tmp_path):
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "file").touch()
    (tmp_path / "there" / "file").chmod(0o6755)
    with served(tmp_path / "there") as url:
        copied(url(), tmp_path / "back" / "file", "get")
    assert stat.S_IMODE((tmp_path / "back" / "file").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["tree", "tree/file", "tree/link"])
def test_what_may_not_be_put_is_named(tmp_path, name):
    (tmp_path / "there").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").touch()
    (tmp_path / "tree" / "link").symlink_to("file")
    path = tmp_path / name
    with served(tmp_path / "there", read_only=True) as url:
        with pytest.raises(NfsError, match=f"^{path.name}: [A-Z]+: NFS3ERR_ROFS, read-only"):
            copied(url(), path, "put")
