"""An NFS server and clients of it on two compiled devices."""

import asyncio
import contextlib
import os
from pathlib import Path

from stagecoach.host_driver import Context
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.nfs.client.connection import Ways, mounted
from stagecoach.ulp.nfs.client.copy import Copier, Progress
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.serving import NfsServer
from stagecoach.ulp.oncrpc.blocking import LoopThread
from stagecoach.ulp.rpcrdma.settings import ClientSettings, Profile, ServerSettings

HOST = "127.0.0.1"
EXPORT = "/export"


class NfsPair:
    """A server's device that exports a directory, and a client's device.

    Parameters
    ----------
    record: whether the client's device records what crosses its LLP.
    """

    def __init__(self, directory: Path, profile: Profile = Profile.RFC8166, record: bool = False):
        self._directory = directory
        self._profile = profile
        self.there = SimulatedDevice()
        self.here = SimulatedDevice(record=record)
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with self._stack as stack:
            self.server_context = stack.enter_context(Context(self.there))
            self.context = stack.enter_context(Context(self.here))
            self._export = Export(self._directory, EXPORT)
            stack.callback(self._export.close)
            self._thread = LoopThread()
            stack.callback(self._thread.close)
            self.server, port = self._thread.run(self._start())
            stack.callback(self.stop)
            self.url = NfsUrl.parse(f"nfs+rdma://{HOST}:{port}{EXPORT}")
            self._stack = stack.pop_all()
        return self

    async def _start(self):
        server = await NfsServer(self._export, HOST).__aenter__()
        settings = ServerSettings(profile=self._profile)
        return server, await server.listen_rdma(self.server_context, 0, settings)

    def stop(self):
        """Ends the server; its device stays."""
        self._thread.run(self.server.__aexit__())

    def __exit__(self, *_):
        self._stack.close()

    def use(self, work):
        """The result of `work`, a coroutine function that gets the mounted files."""
        ways = Ways(
            lambda: contextlib.nullcontext(self.context), ClientSettings(profile=self._profile)
        )

        async def run():
            async with mounted(self.url, ways) as files:
                return await work(files)

        return asyncio.run(run())

    def copy(self, path: Path, name: str, *, put: bool) -> Progress:
        """Puts a tree of this machine to a name in the export, or gets it from there."""
        progress = Progress()

        async def work(files):
            root = await files.find(self.url.path)
            copier = await Copier.of(files, root, progress, write=put)
            fd = os.open(path.parent, os.O_RDONLY)
            try:
                if put:
                    await copier.put(os.fsencode(path.name), fd, root.handle, os.fsencode(name))
                else:
                    found = await files.child(root, os.fsencode(name))
                    await copier.get(found, fd, os.fsencode(path.name))
            finally:
                os.close(fd)

        self.use(work)
        return progress
