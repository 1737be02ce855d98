"""The client: each procedure, files by path, and servers that lie."""

import asyncio
import os

import pytest

from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.arguments import Access, CreateMode
from stagecoach.ulp.nfs.attributes import FileType, SetAttributes
from stagecoach.ulp.nfs.client.connection import Ways, mounted
from stagecoach.ulp.nfs.client.files import Files
from stagecoach.ulp.nfs.client.procedures import NfsClient
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.mount import MountError
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from tests.ulp.nfs.tcp_server import HOST, WAYS, no_device, served


def use(url, work):
    """The result of `work`, a coroutine function that gets the mounted files."""

    async def run():
        async with mounted(url, WAYS) as files:
            return await work(files)

    return asyncio.run(run())


def test_every_procedure(tmp_path):
    async def work(files):
        nfs, root = files.nfs, files._root
        await nfs.null()
        file = await nfs.create(root, b"file", SetAttributes(mode=0o600), CreateMode.GUARDED)
        assert await nfs.create_exclusive(root, b"only", b"verifier") != file
        written = await nfs.write(file, 0, memoryview(b"content"))
        assert written.count == 7
        assert await nfs.commit(file) == written.verifier
        buffer = memoryview(bytearray(100))
        result = await nfs.read(file, 2, buffer)
        assert (bytes(result.data), result.eof, bytes(buffer[:5])) == (b"ntent", True, b"ntent")
        await nfs.setattr(file, SetAttributes(size=3))
        assert (await nfs.getattr(file)).size == 3
        directory = await nfs.mkdir(root, b"directory")
        link = await nfs.symlink(directory, b"link", b"../file")
        assert await nfs.readlink(link) == b"../file"
        fifo = await nfs.mknod(directory, b"fifo", FileType.FIFO)
        assert (await nfs.getattr(fifo)).type == FileType.FIFO
        await nfs.link(file, directory, b"file")
        assert (await nfs.lookup(directory, b"file")).object == file
        names = {entry.name for entry in (await nfs.readdir(directory, 4096)).entries}
        assert names == {b".", b"..", b"file", b"fifo", b"link"}
        plus = await nfs.readdirplus(directory, 4096)
        assert {entry.name for entry in plus.entries} == names
        await nfs.rename(directory, b"file", root, b"other")
        for name in (b"link", b"fifo"):
            await nfs.remove(directory, name)
        await nfs.rmdir(root, b"directory")
        assert await nfs.access(root, Access.READ | Access.LOOKUP) == Access.READ | Access.LOOKUP
        assert (await nfs.fsstat(root)).tbytes > 0
        assert (await nfs.fsinfo(root)).rtmax == 1 << 20
        assert (await nfs.pathconf(root)).name_max == 255
        with pytest.raises(NfsError, match="LOOKUP: NFS3ERR_NOENT, no such file") as error:
            await nfs.lookup(root, b"missing")
        assert error.value.status == NfsStatus.NOENT

    with served(tmp_path) as url:
        use(url(), work)
    assert sorted(os.listdir(tmp_path)) == ["file", "only", "other"]


def test_find(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"content")
    (tmp_path / "sub" / "link").symlink_to("/etc")
    with served(tmp_path, "/a/b") as url:
        found = use(url(), lambda files: files.find(b"/a/b/sub/file"))
        assert (found.name, found.attributes.size) == (b"file", 7)
        root = use(url(), lambda files: files.find(b"/a/b"))
        assert root.is_directory and not root.name
        for path, status in (
            (b"/a/b/sub/missing", NfsStatus.NOENT),
            (b"/a/b/sub/link/passwd", NfsStatus.NOTDIR),
            (b"/a/b/sub/file/x", NfsStatus.NOTDIR),
        ):
            with pytest.raises(NfsError) as error:
                use(url(), lambda files, path=path: files.find(path))
            assert error.value.status == status


@pytest.mark.parametrize("path", ["/", "/other", "/exporter", "/ex"])
def test_what_is_not_exported_is_not_mounted(tmp_path, path):
    with served(tmp_path) as url:
        good = url()
        bad = NfsUrl(good.scheme, good.host, good.port, path.encode())
        with pytest.raises(MountError, match="MNT3ERR_NOENT"):
            use(bad, lambda files: None)


def test_mount_program_at_another_port(tmp_path):
    (tmp_path / "file").touch()

    async def run(first, second):
        async with mounted(first, Ways(no_device, WAYS.settings, second.port)) as files:
            return await files.find(first.path)

    with served(tmp_path) as first, served(tmp_path) as second:
        with pytest.raises(NfsError) as error:  # a handle of the other server
            asyncio.run(run(first("/file"), second()))
        assert error.value.status == NfsStatus.STALE


def test_remove_of_trees(tmp_path):
    (tmp_path / "sub" / "inner").mkdir(parents=True)
    for name in ("a", "sub/b", "sub/inner/c"):
        (tmp_path / name).touch()
    (tmp_path / "sub" / "link").symlink_to("..")

    async def remove(files, name, recursive):
        await files.remove(await files.find(name), recursive)

    with served(tmp_path) as url:
        with pytest.raises(NfsError, match="sub: NFS3ERR_ISDIR"):
            use(url(), lambda files: remove(files, b"/export/sub", False))
        use(url(), lambda files: remove(files, b"/export/sub", True))
        assert os.listdir(tmp_path) == ["a"]
        use(url(), lambda files: remove(files, b"/export", True))
    assert os.listdir(tmp_path) == []


def test_server_that_is_not_there(tmp_path):
    with served(tmp_path) as url:
        gone = url()
    with pytest.raises(OSError, match="Connect"):
        use(gone, lambda files: None)


def test_server_that_goes(tmp_path):
    async def run(reader, writer):
        await reader.read(10)
        writer.close()

    async def main():
        server = await asyncio.start_server(run, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(RpcConnectionError):
            async with mounted(NfsUrl("nfs+tcp", HOST, port, b"/"), WAYS):
                pass
        server.close()

    asyncio.run(main())


class Liar:
    """Stands for a client whose server answers as it likes."""

    def __init__(self, **answers):
        self._answers = answers

    async def call(self, program, procedure, arguments, into=(), result_octets=None):
        answer = self._answers[procedure.name]
        return NfsStatus.OK, answer(arguments) if callable(answer) else answer


FSINFO = res.FsinfoOk(None, 0, 0, 0, 0, 0, 0, 0, 0, None, 0)


def entries_of(*names, eof=True, cookie=1):
    entries = [res.EntryPlus(1, name, cookie, None, None) for name in names]
    return res.ReaddirplusOk(None, bytes(8), entries, eof)


def listed(liar):
    async def run():
        nfs = NfsClient(liar)
        files = Files(nfs, b"root", b"/")
        root = await files.find(b"/")
        return [each.name async for each in files.entries(root)]

    return asyncio.run(run())


@pytest.mark.parametrize("name", [b"", b"a/b", b"/etc/passwd", b"../x", b"a\0"])
def test_names_that_are_none_are_not_taken_from_servers(name):
    attributes = res.GetattrOk(None)
    liar = Liar(GETATTR=attributes, FSINFO=FSINFO, READDIRPLUS=entries_of(b".", b"..", name))
    with pytest.raises(NfsError, match="NFS3ERR_SERVERFAULT"):
        listed(liar)


@pytest.mark.parametrize("names", [(), (b".",)])
def test_directory_without_end(names):
    liar = Liar(
        GETATTR=res.GetattrOk(None), FSINFO=FSINFO, READDIRPLUS=entries_of(*names, eof=False)
    )
    with pytest.raises(NfsError, match="a directory without end"):
        listed(liar)


def test_counts_that_lie():
    read = NfsClient(Liar(READ=res.ReadOk(None, 5, False, memoryview(b"abc"))))
    with pytest.raises(NfsError, match="another count"):
        asyncio.run(read.read(b"file", 0, memoryview(bytearray(10))))
    write = NfsClient(Liar(WRITE=res.WriteOk(res.WccData(), 5, 0, bytes(8))))
    with pytest.raises(NfsError, match="wrote 5"):
        asyncio.run(write.write(b"file", 0, memoryview(b"abc")))
