"""What the commands of `stagecoach nfs` do."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stagecoach.cli.commands import open_device, progress_bar
from stagecoach.cli.nfs.show import long_lines, stat_lines
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.ulp.nfs.client.connection import Ways, mounted
from stagecoach.ulp.nfs.client.copy import Copier, Progress
from stagecoach.ulp.nfs.client.files import Files, Found, shown
from stagecoach.ulp.nfs.client.url import RDMA, TCP, NfsUrl
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.rights import ClientRights, Rights, ServerRights, Squash
from stagecoach.ulp.nfs.server.serving import NfsServer
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.rpcrdma.settings import ServerSettings

_COMPLAINTS = Complaints(logging.getLogger(__name__))

_CLOSING_THREADS = 64


def serve(
    export: Export,
    address: str,
    rdma_port: int | None,
    tcp_port: int | None,
    settings: ServerSettings,
    device: Locator,
) -> None:
    """Serves an export until the process is interrupted or terminated."""
    with contextlib.ExitStack() as stack:
        stack.callback(export.close)
        context = None
        if rdma_port is not None:
            context = stack.enter_context(Context(open_device(device)))

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            loop.set_exception_handler(_complain)
            # Connections wait in these threads for their peers when they are closed.
            loop.set_default_executor(ThreadPoolExecutor(_CLOSING_THREADS, "closing"))
            async with NfsServer(export, address) as server:
                host = address or "*"
                if context is not None and rdma_port is not None:
                    port = await server.listen_rdma(context, rdma_port, settings)
                    _tell(export, f"{RDMA}://{host}:{port}")
                if tcp_port is not None:
                    port = await server.listen_tcp(tcp_port)
                    _tell(export, f"{TCP}://{host}:{port}")
                await asyncio.Event().wait()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(run())


def _complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What goes wrong in the event loop in one line: clients may be able to cause it."""
    error = context.get("exception")
    why = "" if error is None else f": {type(error).__name__}: {error}"
    _COMPLAINTS.warning(context["message"], f"{context['message']}{why}")


def rights_of(squash: Squash) -> Rights:
    """Whose rights calls have, which is told: as root those of clients, else those of the server.

    Raises `OSError`.
    """
    if os.geteuid() != 0:
        print(f"stagecoach nfs: every call has the rights of uid {os.geteuid()}", file=sys.stderr)
        return ServerRights()
    rights = ClientRights(squash)
    print(
        "stagecoach nfs: warning: root runs this server: each call has the rights of the user whom "
        f"the client names, and nothing proves who that is ({squash.describe()})",
        file=sys.stderr,
    )
    return rights


def _tell(export: Export, place: str) -> None:
    how = "read-only" if export.read_only else "read-write"
    print(f"serving {place}{shown(export.path)} {how}", flush=True)


def list_files(url: NfsUrl, ways: Ways, long: bool) -> None:
    """Prints the names in a directory, sorted, or that of a file."""

    async def run() -> list[Found]:
        async with mounted(url, ways) as files:
            found = await files.find(url.path)
            if not found.is_directory:
                return [found]
            return [each async for each in files.entries(found)]

    found = sorted(asyncio.run(run()), key=lambda each: each.name)
    for line in long_lines(found) if long else [shown(each.name) for each in found]:
        print(line)


def show_status(url: NfsUrl, ways: Ways) -> None:
    """Prints what is known of a file."""

    async def run() -> Found:
        async with mounted(url, ways) as files:
            return await files.find(url.path)

    for line in stat_lines(url.path, asyncio.run(run())):
        print(line)


def remove(url: NfsUrl, ways: Ways, recursive: bool) -> None:
    """Removes a file, or a directory with all that is in it."""

    async def run() -> None:
        async with mounted(url, ways) as files:
            await files.remove(await files.find(url.path), recursive)

    asyncio.run(run())


@contextlib.contextmanager
def _shown_progress(what: str) -> Iterator[Progress]:
    with progress_bar() as bar:
        task = bar.add_task(what, total=None)

        def tell(progress: Progress) -> None:
            bar.update(task, total=progress.total, completed=progress.octets)

        yield Progress(tell=tell)


def _tell_skipped(progress: Progress) -> None:
    for name in progress.skipped:
        print(
            f"stagecoach nfs: {shown(name)}: no file, directory or link: skipped", file=sys.stderr
        )


def get(url: NfsUrl, target: Path, ways: Ways, recursive: bool) -> Progress:
    """Copies a file or tree of the server to this machine; into `target` if that is a directory."""

    async def run(progress: Progress) -> None:
        async with mounted(url, ways) as files:
            found = await files.find(url.path)
            _check_kind(found.is_directory, recursive, shown(url.path))
            name = url.path.rpartition(b"/")[2]
            directory, new_name = _split(target, name)
            copier = await Copier.of(files, found, progress, write=False)
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                await copier.get(found, fd, new_name)
            finally:
                os.close(fd)

    with _shown_progress(f"get {shown(url.path)}") as progress:
        asyncio.run(run(progress))
    _tell_skipped(progress)
    return progress


def _split(target: Path, name: bytes) -> tuple[Path, bytes]:
    """Directory and name of what a copy becomes."""
    if target.is_dir():
        if not name:
            raise IsADirectoryError(f"{target} is a directory; allowed: a name that is not there")
        return target, name
    return target.parent, os.fsencode(target.name)


def put(source: Path, url: NfsUrl, ways: Ways, recursive: bool) -> Progress:
    """Copies a file or tree of this machine to the server; into a directory if that is one."""
    source = Path(os.path.abspath(source))  # "." has no name

    async def run(progress: Progress) -> None:
        async with mounted(url, ways) as files:
            directory, name = await _target(files, url, os.fsencode(source.name))
            copier = await Copier.of(files, directory, progress, write=True)
            fd = os.open(source.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                await copier.put(os.fsencode(source.name), fd, directory.handle, name)
            finally:
                os.close(fd)

    _check_kind(source.is_dir() and not source.is_symlink(), recursive, str(source))
    with _shown_progress(f"put {source.name}") as progress:
        asyncio.run(run(progress))
    _tell_skipped(progress)
    return progress


async def _target(files: Files, url: NfsUrl, name: bytes) -> tuple[Found, bytes]:
    """Directory and name of what a copy becomes at the server."""
    try:
        found = await files.find(url.path)
        if found.is_directory:
            return found, name
    except NfsError as error:
        if error.status != NfsStatus.NOENT:
            raise
    return await files.parent(url.path)


def _check_kind(is_directory: bool, recursive: bool, what: str) -> None:
    if is_directory and not recursive:
        raise IsADirectoryError(f"{what} is a directory; allowed: a file, or -r")
