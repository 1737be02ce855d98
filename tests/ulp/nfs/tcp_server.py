"""A server over TCP in a thread, and clients of it without a device."""

import contextlib
from pathlib import Path
from urllib.parse import quote

from stagecoach.ulp.nfs.client.connection import Ways
from stagecoach.ulp.nfs.client.url import NfsUrl
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.serving import NfsServer
from stagecoach.ulp.oncrpc.blocking import LoopThread
from stagecoach.ulp.oncrpc.limits import Limits
from stagecoach.ulp.rpcrdma.settings import ClientSettings

HOST = "127.0.0.1"
EXPORT = "/export"


def no_device():
    raise AssertionError("nfs+tcp opens no device")


WAYS = Ways(no_device, ClientSettings())


@contextlib.contextmanager
def served(
    directory: Path, path: str = EXPORT, read_only: bool = False, limits: Limits | None = None
):
    """Serves a directory; gives what makes the URL of a path in it."""
    thread = LoopThread()
    export = Export(directory, path, read_only)

    async def start():
        server = NfsServer(export, HOST, limits)
        await server.__aenter__()
        return server, await server.listen_tcp(0)

    server, port = thread.run(start())
    try:
        yield lambda name="": NfsUrl.parse(f"nfs+tcp://{HOST}:{port}{quote(path)}{name}")
    finally:
        thread.run(server.__aexit__())
        thread.close()
        export.close()


def text_of(url: NfsUrl) -> str:
    """As it is written."""
    return f"{url.scheme}://{url.host}:{url.port}{quote(url.path)}"
