"""What the commands of `stagecoach nfs` do."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import platformdirs

from stagecoach.cli.nfs.published import publish_clients
from stagecoach.cli.nfs.show import long_lines, stat_lines, summary
from stagecoach.cli.open_device import open_device, progress_bar
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.ulp.nfs.client.connection import Ways, mounted
from stagecoach.ulp.nfs.client.copy import Copier, Progress
from stagecoach.ulp.nfs.client.files import Files, Found, shown
from stagecoach.ulp.nfs.client.url import RDMA, TCP, NfsUrl
from stagecoach.ulp.nfs.server.export import Export
from stagecoach.ulp.nfs.server.handle_key import handle_key
from stagecoach.ulp.nfs.server.rights import ClientRights, Rights, ServerRights, Squash
from stagecoach.ulp.nfs.server.serving import NfsServer
from stagecoach.ulp.nfs.status import NfsError, NfsStatus
from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.rpcrdma.settings import ServerSettings

_COMPLAINTS = Complaints(logging.getLogger(__name__))

_CLOSING_THREADS = 64

EXIT_TERMINATED = 128 + signal.SIGTERM
"""As a shell has it."""


def serve(
    export: Export,
    address: str,
    rdma_port: int | None,
    tcp_port: int | None,
    settings: ServerSettings,
    device: Locator,
    verbose: bool = False,
) -> None:
    """Serves an export until the process is interrupted or terminated.

    `verbose`: tell of its clients on standard error.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(export.close)
        context = None
        if rdma_port is not None:
            context = stack.enter_context(Context(open_device(device, address)))

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            loop.set_exception_handler(_complain)
            # Connections wait in these threads for their peers when they are closed.
            loop.set_default_executor(ThreadPoolExecutor(_CLOSING_THREADS, "closing"))
            tell = _tell_of_client if verbose else lambda line: None
            async with NfsServer(export, address, tell=tell) as server:
                host = address or "*"
                if context is not None and rdma_port is not None:
                    port = await server.listen_rdma(context, rdma_port, settings)
                    _tell(export, f"{RDMA}://{host}:{port}")
                if tcp_port is not None:
                    port = await server.listen_tcp(tcp_port)
                    _tell(export, f"{TCP}://{host}:{port}")
                await publish_clients(server.clients)
                await asyncio.Event().wait()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(run())


def _tell_of_client(line: str) -> None:
    # A standard error that is closed ends no server.
    with contextlib.suppress(OSError):
        print(f"stagecoach nfs: {line}", file=sys.stderr, flush=True)


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


def key_of_user() -> bytes | None:
    """The key of file handles, which this user's servers have in common.

    `None`, which is told, if it cannot be kept. Raises `HandleKeyError` if others can read it.
    """
    folder = platformdirs.user_state_path("stagecoach", appauthor=False) / "nfs"
    try:
        return handle_key(folder)
    except OSError as error:
        print(
            "stagecoach nfs: warning: mounts of clients end with this server, because the key of "
            f"file handles cannot be kept: {error}",
            file=sys.stderr,
        )
        return None


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
    """Shows how far a copy has come, and in the end what was copied."""
    begun = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task(what, total=None)

        def tell(progress: Progress) -> None:
            bar.update(task, total=progress.total, completed=progress.octets)

        progress = Progress(tell=tell)
        try:
            yield progress
        finally:
            bar.stop()
            _tell_left(progress)
    _tell_copied(what, progress, time.monotonic() - begun)


def _tell_left(progress: Progress) -> None:
    for name in progress.left:
        print(
            f"stagecoach nfs: {shown(name)} may be left at the server, which did not say that it "
            "has removed it",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """While files are copied SIGTERM ends it as Ctrl-C does: unfinished ones are removed."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came = False

    def end() -> None:
        nonlocal came
        came = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if not came:
            raise
        print("stagecoach nfs: terminated", file=sys.stderr)
        raise SystemExit(EXIT_TERMINATED) from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _tell_copied(what: str, progress: Progress, seconds: float) -> None:
    for name in progress.skipped:
        print(
            f"stagecoach nfs: {shown(name)}: no file, directory or link: skipped", file=sys.stderr
        )
    if progress.files:
        print(summary(what, progress.files, progress.octets, seconds), file=sys.stderr)


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
                with _ended_by_sigterm():
                    await copier.get(found, fd, new_name)
            finally:
                os.close(fd)

    with _shown_progress(f"get {shown(url.path)}") as progress:
        asyncio.run(run(progress))
    return progress


def get_to_output(url: NfsUrl, ways: Ways) -> Progress:
    """Writes the content of a file of the server to standard output."""
    output = sys.stdout.buffer

    async def run(progress: Progress) -> None:
        async with mounted(url, ways) as files:
            found = await files.find(url.path)
            _check_kind(found.is_directory, False, shown(url.path), allowed="a file")
            copier = await Copier.of(files, found, progress, write=False)
            await copier.stream(found, output.write)
            output.flush()

    progress, begun = Progress(), time.monotonic()
    asyncio.run(run(progress))  # no bar: the output may be on the same terminal
    _tell_copied(f"get {shown(url.path)}", progress, time.monotonic() - begun)
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
                with _ended_by_sigterm():
                    await copier.put(os.fsencode(source.name), fd, directory.handle, name)
            finally:
                os.close(fd)

    _check_kind(source.is_dir() and not source.is_symlink(), recursive, str(source))
    with _shown_progress(f"put {source.name}") as progress:
        asyncio.run(run(progress))
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


def _check_kind(
    is_directory: bool, recursive: bool, what: str, allowed: str = "a file, or -r"
) -> None:
    if is_directory and not recursive:
        raise IsADirectoryError(f"{what} is a directory; allowed: {allowed}")
