"""Copies of files and trees to and from a server, several READs or WRITEs at a time."""

import asyncio
import contextlib
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from stagecoach.ulp.nfs.arguments import CreateMode
from stagecoach.ulp.nfs.attributes import FileType, NfsTime, SetAttributes, TimeHow
from stagecoach.ulp.nfs.client.files import Files, Found, shown
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.nfs.threads import in_thread

T = TypeVar("T")

OUTSTANDING = 4
"""READs or WRITEs at a time."""
LARGEST_TRANSFER = 1 << 20
"""Bytes of one, whatever the server takes."""
_FILES_AT_A_TIME = 8
_BLOCKS_AT_A_TIME = 2 * OUTSTANDING
"""Of one file; those beyond the buffers wait for one."""
_PERMISSIONS = 0o777
"""What is kept of the mode: no set-user-ID and the like."""
_KEPT_OF_NAME = 200
"""Bytes of a name that are in that of the unfinished file."""
_REMOVING_SECONDS = 30.0
"""For which the removal of an unfinished file is waited for. Over RDMA it leaves after what the
server reads of the WRITEs that are under way, 4 MiB at most: a simulated device takes seconds."""
_TRIES = 2
"""Of a WRITE whose data the server lost before the COMMIT, because it was restarted."""


@dataclass
class Progress:
    """What was copied.

    files, octets: done. total: bytes of the files that were found so far. skipped: names of what
    is no file, directory or link. left: names of unfinished files that the server did not say it
    has removed. tell: is called when one of the numbers has changed.
    """

    files: int = 0
    octets: int = 0
    total: int = 0
    skipped: list[bytes] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    tell: Callable[["Progress"], None] = lambda progress: None

    def add(self, octets: int) -> None:
        """Bytes that were copied."""
        self.octets += octets
        self.tell(self)

    def expect(self, octets: int) -> None:
        """Bytes of a file that will be copied."""
        self.total += octets
        self.tell(self)


class Copier:
    """Copies with a set of buffers, each of which is in one READ or WRITE at a time.

    Anything other than a file, directory or symbolic link is skipped, and remembered in `progress`.
    """

    def __init__(
        self, files: Files, transfer: int, progress: Progress, outstanding: int = OUTSTANDING
    ):
        self._files = files
        self._nfs = files.nfs
        self._transfer = transfer
        self._buffers: asyncio.Queue[memoryview] = asyncio.Queue()
        for _ in range(outstanding):
            self._buffers.put_nowait(memoryview(bytearray(transfer)))
        self._places = asyncio.Semaphore(_FILES_AT_A_TIME)
        self._writing: set[asyncio.Task[set[bytes]]] = set()
        self.progress = progress

    @classmethod
    async def of(cls, files: Files, found: Found, progress: Progress, write: bool) -> "Copier":
        """With buffers of the size that the server prefers."""
        info = await files.nfs.fsinfo(found.handle)
        preferred = info.wtpref or info.wtmax if write else info.rtpref or info.rtmax
        return cls(files, min(max(preferred, 1), LARGEST_TRANSFER), progress)

    @contextlib.asynccontextmanager
    async def _buffer(self) -> AsyncIterator[memoryview]:
        buffer = await self._buffers.get()
        try:
            yield buffer
        finally:
            self._buffers.put_nowait(buffer)

    async def _each_block(self, size: int, work: Callable[[int, int], Awaitable[T]]) -> list[T]:
        """Does the work for offset and length of each block of a file."""
        done: list[T] = []
        pending: set[asyncio.Task[T]] = set()
        ready: set[asyncio.Task[T]] = set()

        async def run(offset: int) -> T:
            return await work(offset, min(self._transfer, size - offset))

        try:
            for offset in range(0, size, self._transfer):
                if len(pending) >= _BLOCKS_AT_A_TIME:
                    ready, pending = await asyncio.wait(
                        pending, return_when=asyncio.FIRST_COMPLETED
                    )
                    done += [task.result() for task in ready]
                pending.add(asyncio.create_task(run(offset)))
            done += [await task for task in list(pending)]
        finally:
            for task in pending:
                task.cancel()
            # Of several that failed one is raised, and all are asked.
            await asyncio.gather(*pending, *ready, return_exceptions=True)
        return done

    async def get(self, found: Found, directory: int, name: bytes) -> None:
        """Copies a file or a tree of the server to a name in an open directory of this machine."""
        kind = found.attributes.type
        if kind == FileType.DIR:
            await self._get_directory(found, directory, name)
        elif kind == FileType.LNK:
            path = await self._nfs.readlink(found.handle)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
            os.symlink(path, name, dir_fd=directory)
        elif kind == FileType.REG:
            self.progress.expect(found.attributes.size)
            async with self._places:
                await self._get_file(found, directory, name)
        else:
            self.progress.skipped.append(found.name)
            return
        self.progress.files += 1

    async def _get_directory(self, found: Found, directory: int, name: bytes) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=directory)
        with _directory(name, directory) as inside:
            children = [child async for child in self._files.entries(found)]
            await _all([self.get(child, inside, child.name) for child in children])
            os.fchmod(inside, found.attributes.mode & _PERMISSIONS)
            _set_times(inside, found)

    async def _get_file(self, found: Found, directory: int, name: bytes) -> None:
        """Into a file of another name first, so that nobody sees half of it."""
        temporary = _unfinished(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            try:
                await self._each_block(
                    found.attributes.size,
                    lambda offset, octets: self._get_block(found, fd, offset, octets),
                )
                os.fchmod(fd, found.attributes.mode & _PERMISSIONS)
                _set_times(fd, found)
            finally:
                os.close(fd)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise

    async def _get_block(self, found: Found, fd: int, offset: int, octets: int) -> None:
        def keep(data: memoryview, at: int) -> None:
            _write_all(fd, data, at)

        await self._read(found, offset, octets, keep)

    async def _read(
        self, found: Found, offset: int, octets: int, keep: Callable[[memoryview, int], None]
    ) -> None:
        """READs until a block is there; `keep` is given each part of it, and its offset."""
        async with self._buffer() as buffer:
            end = offset + octets
            while offset < end:
                try:
                    result = await self._nfs.read(found.handle, offset, buffer[: end - offset])
                except NfsError as error:
                    raise NfsError(error.status, shown(found.name)) from error
                if not result.count:
                    raise NfsError(NfsStatus.IO, f"{shown(found.name)} became shorter")
                await in_thread(keep, result.data, offset)
                offset += result.count
                self.progress.add(result.count)

    async def stream(self, found: Found, write: Callable[[bytes], object]) -> None:
        """Gives the content of a file of the server to `write`, in order.

        Raises `OSError` for anything other than a file.
        """
        if found.attributes.type != FileType.REG:
            raise OSError(f"{shown(found.name)} is not a regular file")
        size = found.attributes.size
        self.progress.expect(size)
        blocks: deque[asyncio.Task[bytes]] = deque()
        try:
            for offset in range(0, size, self._transfer):
                octets = min(self._transfer, size - offset)
                blocks.append(asyncio.create_task(self._read_block(found, offset, octets)))
                if len(blocks) == OUTSTANDING:
                    await in_thread(write, await blocks[0])
                    blocks.popleft()
            while blocks:
                await in_thread(write, await blocks[0])
                blocks.popleft()
        finally:
            for task in blocks:
                task.cancel()
            await asyncio.gather(*blocks, return_exceptions=True)
        self.progress.files += 1

    async def _read_block(self, found: Found, offset: int, octets: int) -> bytes:
        block = bytearray()

        def keep(data: memoryview, _: int) -> None:
            block.extend(data)

        await self._read(found, offset, octets, keep)
        return bytes(block)

    async def put(
        self, source: bytes, source_directory: int, directory: bytes, name: bytes
    ) -> None:
        """Copies a file or a tree of this machine to a name in a directory of the server."""
        status = os.stat(source, dir_fd=source_directory, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            await self._put_directory(source, source_directory, directory, name)
        elif stat.S_ISLNK(status.st_mode):
            path = os.readlink(source, dir_fd=source_directory)
            with contextlib.suppress(NfsError):
                await self._nfs.remove(directory, name)
            with _naming(name):
                await self._nfs.symlink(directory, name, path)
        elif stat.S_ISREG(status.st_mode):
            self.progress.expect(status.st_size)
            async with self._places:
                await self._put_file(source, source_directory, directory, name)
        else:
            self.progress.skipped.append(source)
            return
        self.progress.files += 1

    async def _put_directory(
        self, source: bytes, source_directory: int, directory: bytes, name: bytes
    ) -> None:
        with _directory(source, source_directory) as inside:
            with _naming(name):
                handle = await self._made_directory(directory, name)
            names = [os.fsencode(each) for each in os.listdir(inside)]
            await _all([self.put(each, inside, handle, each) for each in names])
            with _naming(name):
                await self._nfs.setattr(handle, _attributes(os.fstat(inside)))

    async def _made_directory(self, directory: bytes, name: bytes) -> bytes:
        """The handle of a directory, which may be there."""
        try:
            return await self._nfs.mkdir(directory, name, SetAttributes(mode=0o700))
        except NfsError as error:
            if error.status != NfsStatus.EXIST:
                raise
            return (await self._nfs.lookup(directory, name)).object

    async def _put_file(
        self, source: bytes, source_directory: int, directory: bytes, name: bytes
    ) -> None:
        # Into a file of another name first, as `_get_file`.
        # NONBLOCK: what was a file a moment ago may be a FIFO now.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(source, flags, dir_fd=source_directory)
        try:
            temporary = _unfinished(name)
            wanted = SetAttributes(mode=0o600, size=0)
            creating = asyncio.ensure_future(
                self._nfs.create(directory, temporary, wanted, CreateMode.GUARDED)
            )
            try:
                with _naming(name):
                    await self._put_content(fd, await asyncio.shield(creating))
                    await self._nfs.rename(directory, temporary, directory, name)
            except BaseException:
                await self._discard(directory, temporary, creating)
                raise
        finally:
            os.close(fd)

    async def _put_content(self, fd: int, handle: bytes) -> None:
        status = os.fstat(fd)
        for _ in range(_TRIES):
            written = await self._each_block(
                status.st_size,
                lambda offset, octets: self._put_block(fd, handle, offset, octets),
            )
            verifiers = set().union(*written)
            if not verifiers or verifiers == {await self._nfs.commit(handle)}:
                break
        else:
            raise NfsError(NfsStatus.IO, "the server lost what was written")
        await self._nfs.setattr(handle, _attributes(status))

    async def _discard(
        self, directory: bytes, name: bytes, creating: "asyncio.Future[bytes]"
    ) -> None:
        """Removes an unfinished file if the server still answers; also while this is cancelled.

        What it does not say it has removed is in `progress.left`.
        """
        removing = asyncio.ensure_future(self._remove(directory, name, creating))
        end = time.monotonic() + _REMOVING_SECONDS
        while not removing.done() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([removing], timeout=left)
        removing.cancel()
        (error,) = await asyncio.gather(removing, return_exceptions=True)
        if error is not None:
            self.progress.left.append(name)

    async def _remove(
        self, directory: bytes, name: bytes, creating: "asyncio.Future[bytes]"
    ) -> None:
        """Removes a file if it was created, and is still there."""
        try:
            await creating
        except NfsError:
            return
        try:
            await self._nfs.remove(directory, name)
        except NfsError as error:
            if error.status != NfsStatus.NOENT:
                raise

    async def _put_block(self, fd: int, handle: bytes, offset: int, octets: int) -> set[bytes]:
        """Returns the verifiers of its WRITEs.

        These go on if the copy is cancelled. Over RDMA the server reads the buffer itself: one
        that is taken from it ends the connection, which the removal of the file needs.
        """
        buffer = await self._buffers.get()
        try:
            octets = await in_thread(os.preadv, fd, [buffer[:octets]], offset)
        except BaseException:
            self._buffers.put_nowait(buffer)
            raise
        writing = asyncio.create_task(self._write(handle, offset, buffer, octets))
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        return await asyncio.shield(writing)

    def _written(self, writing: "asyncio.Task[set[bytes]]") -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # of a copy that has ended nobody asks for it

    async def _write(
        self, handle: bytes, offset: int, buffer: memoryview, octets: int
    ) -> set[bytes]:
        """WRITEs the start of a buffer, and gives it back; returns the verifiers."""
        try:
            verifiers, done = set(), 0
            while done < octets:
                result = await self._nfs.write(handle, offset + done, buffer[done:octets])
                if not result.count:
                    raise NfsError(NfsStatus.IO, "the server writes nothing")
                done += result.count
                verifiers.add(result.verifier)
                self.progress.add(result.count)
            return verifiers
        finally:
            self._buffers.put_nowait(buffer)


@contextlib.contextmanager
def _directory(name: bytes, above: int) -> Iterator[int]:
    """An open directory of this machine, in another one; no link is followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _naming(name: bytes) -> Iterator[None]:
    """Has an error of the server name the file that it is about."""
    try:
        yield
    except NfsError as error:
        raise NfsError(error.status, f"{shown(name)}: {error.what}") from error


async def _all(work: list[Awaitable[None]]) -> None:
    """Does all at the same time; the first error ends the others, and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _unfinished(name: bytes) -> bytes:
    """The name of a file until all of it is there."""
    return b".%s.%s.part" % (name[:_KEPT_OF_NAME], secrets.token_hex(4).encode())


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while len(data):
        written = os.pwritev(fd, [data], offset)
        data, offset = data[written:], offset + written


def _set_times(fd: int, found: Found) -> None:
    os.utime(fd, ns=(found.attributes.atime.ns, found.attributes.mtime.ns))


def _attributes(status: os.stat_result) -> SetAttributes:
    return SetAttributes(
        mode=status.st_mode & _PERMISSIONS,
        mtime=(TimeHow.SET_TO_CLIENT_TIME, NfsTime.from_ns(status.st_mtime_ns)),
    )
