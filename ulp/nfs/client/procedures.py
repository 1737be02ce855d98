"""The procedures of NFS version 3 as calls (RFC 1813, 3.3): results of success, else `NfsError`."""

from typing import Any

from stagecoach.ulp.nfs import arguments as args
from stagecoach.ulp.nfs import program
from stagecoach.ulp.nfs import results as res
from stagecoach.ulp.nfs.arguments import VERIFIER, CreateMode, DirectoryArguments, StableHow
from stagecoach.ulp.nfs.attributes import (
    FileAttributes,
    FileType,
    NfsTime,
    SetAttributes,
)
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.program import Procedure

_STATUS = 4
_UNCHANGED = SetAttributes()


class NfsClient:
    """A server's files by their handles. Every method raises `NfsError`, and what calls raise.

    Handles and names are bytes. Any number of calls may be under way.
    """

    def __init__(self, rpc: RpcClient):
        self._rpc = rpc

    async def _call(self, procedure: Procedure[Any, Any], arguments: Any, **room: Any) -> Any:
        status, result = await self._rpc.call(program.NFS, procedure, arguments, **room)
        if status != NfsStatus.OK:
            raise NfsError(status, procedure.name)
        return result

    async def null(self) -> None:
        """NULL: whether the server answers."""
        await self._rpc.call(program.NFS, program.NULL, None)

    async def getattr(self, file: bytes) -> FileAttributes:
        """GETATTR."""
        result: res.GetattrOk = await self._call(program.GETATTR, args.HandleArguments(file))
        return result.attributes

    async def setattr(
        self, file: bytes, attributes: SetAttributes, guard: NfsTime | None = None
    ) -> res.Changed:
        """SETATTR; with a guard, only if that is the file's ctime."""
        arguments = args.SetattrArguments(file, attributes, guard)
        changed: res.Changed = await self._call(program.SETATTR, arguments)
        return changed

    async def lookup(self, directory: bytes, name: bytes) -> res.LookupOk:
        """LOOKUP."""
        found: res.LookupOk = await self._call(program.LOOKUP, DirectoryArguments(directory, name))
        return found

    async def access(self, file: bytes, rights: args.Access) -> args.Access:
        """ACCESS: those of the rights that are granted."""
        result: res.AccessOk = await self._call(program.ACCESS, args.AccessArguments(file, rights))
        return args.Access(result.access & rights)

    async def readlink(self, link: bytes) -> bytes:
        """READLINK."""
        result: res.ReadlinkOk = await self._call(program.READLINK, args.HandleArguments(link))
        return bytes(result.path)

    async def read(self, file: bytes, offset: int, into: memoryview) -> res.ReadOk:
        """READ of as many bytes as the buffer takes; `data` is the start of the buffer."""
        arguments = args.ReadArguments(file, offset, len(into))
        result: res.ReadOk = await self._call(program.READ, arguments, into=[into])
        if result.count != len(result.data):
            raise NfsError(
                NfsStatus.SERVERFAULT, f"READ of {len(result.data)} bytes has another count"
            )
        return result

    async def write(
        self,
        file: bytes,
        offset: int,
        data: memoryview,
        stable: StableHow = StableHow.UNSTABLE,
    ) -> res.WriteOk:
        """WRITE; the server may write less, `count` says.

        Read-only data are copied first, where more than a Send can hold: only writable memory can
        be registered.
        """
        arguments = args.WriteArguments(file, offset, len(data), stable, data)
        result: res.WriteOk = await self._call(program.WRITE, arguments)
        if result.count > len(data):
            raise NfsError(
                NfsStatus.SERVERFAULT, f"WRITE of {len(data)} bytes wrote {result.count}"
            )
        return result

    async def create(
        self,
        directory: bytes,
        name: bytes,
        attributes: SetAttributes = _UNCHANGED,
        mode: CreateMode = CreateMode.UNCHECKED,
    ) -> bytes:
        """CREATE, unchecked or guarded: the handle of the file."""
        where = DirectoryArguments(directory, name)
        return await self._created(program.CREATE, args.CreateArguments(where, (mode, attributes)))

    async def create_exclusive(self, directory: bytes, name: bytes, verifier: bytes) -> bytes:
        """CREATE, exclusive: of a file that was not there, except by the same verifier."""
        where = DirectoryArguments(directory, name)
        how = (CreateMode.EXCLUSIVE, verifier)
        return await self._created(program.CREATE, args.CreateArguments(where, how))

    async def mkdir(
        self, directory: bytes, name: bytes, attributes: SetAttributes = _UNCHANGED
    ) -> bytes:
        """MKDIR: the handle of the directory."""
        arguments = args.MkdirArguments(DirectoryArguments(directory, name), attributes)
        return await self._created(program.MKDIR, arguments)

    async def symlink(self, directory: bytes, name: bytes, path: bytes) -> bytes:
        """SYMLINK: the handle of the link."""
        where = DirectoryArguments(directory, name)
        arguments = args.SymlinkArguments(where, _UNCHANGED, memoryview(path))
        return await self._created(program.SYMLINK, arguments)

    async def mknod(
        self, directory: bytes, name: bytes, kind: FileType, attributes: SetAttributes = _UNCHANGED
    ) -> bytes:
        """MKNOD of a socket or FIFO: its handle."""
        where = DirectoryArguments(directory, name)
        return await self._created(program.MKNOD, args.MknodArguments(where, (kind, attributes)))

    async def _created(self, procedure: Procedure[Any, Any], arguments: Any) -> bytes:
        result: res.CreateOk = await self._call(procedure, arguments)
        if result.object is not None:
            return result.object
        where: DirectoryArguments = arguments.where  # the server may leave the handle out
        return (await self.lookup(where.directory, where.name)).object

    async def remove(self, directory: bytes, name: bytes) -> None:
        """REMOVE."""
        await self._call(program.REMOVE, DirectoryArguments(directory, name))

    async def rmdir(self, directory: bytes, name: bytes) -> None:
        """RMDIR."""
        await self._call(program.RMDIR, DirectoryArguments(directory, name))

    async def rename(self, source: bytes, name: bytes, target: bytes, new_name: bytes) -> None:
        """RENAME."""
        names = (DirectoryArguments(source, name), DirectoryArguments(target, new_name))
        await self._call(program.RENAME, args.RenameArguments(*names))

    async def link(self, file: bytes, directory: bytes, name: bytes) -> None:
        """LINK."""
        where = DirectoryArguments(directory, name)
        await self._call(program.LINK, args.LinkArguments(file, where))

    async def readdir(
        self, directory: bytes, count: int, cookie: int = 0, verifier: bytes = bytes(VERIFIER)
    ) -> res.ReaddirOk:
        """READDIR, one reply of at most `count` bytes."""
        arguments = args.ReaddirArguments(directory, cookie, verifier, count)
        found: res.ReaddirOk = await self._call(
            program.READDIR, arguments, result_octets=_STATUS + count
        )
        return found

    async def readdirplus(
        self, directory: bytes, count: int, cookie: int = 0, verifier: bytes = bytes(VERIFIER)
    ) -> res.ReaddirplusOk:
        """READDIRPLUS, one reply of at most `count` bytes."""
        arguments = args.ReaddirplusArguments(directory, cookie, verifier, count, count)
        found: res.ReaddirplusOk = await self._call(
            program.READDIRPLUS, arguments, result_octets=_STATUS + count
        )
        return found

    async def fsstat(self, file: bytes) -> res.FsstatOk:
        """FSSTAT."""
        found: res.FsstatOk = await self._call(program.FSSTAT, args.HandleArguments(file))
        return found

    async def fsinfo(self, file: bytes) -> res.FsinfoOk:
        """FSINFO."""
        found: res.FsinfoOk = await self._call(program.FSINFO, args.HandleArguments(file))
        return found

    async def pathconf(self, file: bytes) -> res.PathconfOk:
        """PATHCONF."""
        found: res.PathconfOk = await self._call(program.PATHCONF, args.HandleArguments(file))
        return found

    async def commit(self, file: bytes, offset: int = 0, count: int = 0) -> bytes:
        """COMMIT of a range; returns the write verifier. `count` 0: to the end of the file."""
        arguments = args.CommitArguments(file, offset, count)
        result: res.CommitOk = await self._call(program.COMMIT, arguments)
        return result.verifier
