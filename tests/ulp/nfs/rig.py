"""An exported directory, a client of it, and what nobody may touch beside it."""

import asyncio
import os
from pathlib import Path

from stagecoach.ulp.nfs import program
from stagecoach.ulp.nfs.arguments import DirectoryArguments, HandleArguments
from stagecoach.ulp.nfs.mount import MOUNT
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.mounts import Mounts
from stagecoach.ulp.nfs.server.rights import Rights, ServerRights
from stagecoach.ulp.nfs.server.service import nfs_service
from stagecoach.ulp.nfs.status import NfsStatus
from stagecoach.ulp.oncrpc.auth import AuthSys
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.server import RpcServer
from tests.ulp.oncrpc.memory_transport import MemoryPair

ROOM = 1 << 21
MACHINE = b"machine"
SERVER_RIGHTS = ServerRights()


class Rig:
    """Calls procedures of a server that exports `directory`.

    caller: whom calls name. calls: the last one, at the server. `outside` holds `secret`, which
    every test may compare: nothing but tests changes it.
    """

    def __init__(
        self,
        path: Path,
        read_only: bool = False,
        rights: Rights = SERVER_RIGHTS,
        key: bytes | None = None,
    ):
        self.outside = path
        self.directory = path / "export"
        self.directory.mkdir()
        self.secret = path / "secret"
        self.secret.write_bytes(b"secret")
        os.utime(self.secret, ns=(1, 1))
        self._before = self._outside()
        self._options = (read_only, rights)
        self._start(key)
        self.caller: AuthSys | None = AuthSys(0, MACHINE, 0, 0, [])

    def _start(self, key: bytes | None) -> None:
        self.export = Export(self.directory, "/export", *self._options, key=key)
        self.root = self.export.root.handle
        self.server = RpcServer([nfs_service(self.export), Mounts(self.export).service()])

    def restart(self, key: bytes | None) -> None:
        """The server ends, and another one begins without its memory."""
        self.export.close()
        self._start(key)

    def _outside(self):
        status = self.secret.stat()
        names = sorted(os.listdir(self.outside))
        facts = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_nlink)
        return names, facts, self.secret.read_bytes()

    def assert_untouched(self):
        """Fails if anything outside of the export is not as it was."""
        assert self._outside() == self._before

    def call(self, procedure, arguments, into=(), of=program.NFS):
        async def run():
            pair = MemoryPair()
            self.calls = pair.calls
            serving = asyncio.create_task(self.server.serve(pair))
            async with RpcClient(pair, self.caller) as client:
                result = await client.call(of, procedure, arguments, into=into, result_octets=ROOM)
            await serving
            return result

        return asyncio.run(run())

    def mount_call(self, procedure, arguments):
        return self.call(procedure, arguments, of=MOUNT)

    def ok(self, procedure, arguments, into=()):
        """The result, which must be of success."""
        status, result = self.call(procedure, arguments, into)
        assert status == NfsStatus.OK, status.name
        return result

    def status(self, procedure, arguments):
        return self.call(procedure, arguments)[0]

    def handle(self, path: str | bytes) -> bytes:
        """Of a path below the export, by LOOKUPs."""
        handle = self.root
        for name in filter(None, os.fsencode(path).split(b"/")):
            handle = self.ok(program.LOOKUP, DirectoryArguments(handle, name)).object
        return handle

    def attributes(self, handle: bytes):
        return self.ok(program.GETATTR, HandleArguments(handle)).attributes

    def close(self):
        self.export.close()
