"""Opens the device of a command, with a progress bar while it is built."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.hostlink.serial_nic import SerialNic
from stagecoach.host_driver.locate import Locator
from stagecoach.host_driver.transport.base import TransportError
from stagecoach.sim.transport import SimulatedDevice

_COUNT = re.compile(r"(\d+) of (\d+)")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on standard error if that is a terminal; it goes away when it is done."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        yield bar


def built_device(
    bar: Progress, build: Callable[..., Path] | None = None, *, trace: bool = False
) -> Path:
    """The built device, from the cache or new. Without a bar lines tell of a build.

    `build` builds another one than `build_device`, with its arguments.
    """
    from stagecoach.sim.build import build_device
    from stagecoach.sim.build_report import told

    build = build or build_device

    if bar.disable:
        with told(None) as report:
            return build(trace=trace, progress=report)
    what = "build the device" + (" with waveform" if trace else "")
    task = bar.add_task(what, total=None)

    def show(step: str) -> None:
        count = _COUNT.search(step)
        if count is None:
            bar.update(task, description=f"{what}: {step}")
        else:
            bar.update(
                task, description=f"{what}: compile", completed=int(count[1]), total=int(count[2])
            )

    library = build(trace=trace, progress=show)
    bar.remove_task(task)
    return library


def memory_steps(bar: Progress) -> Callable[[str, int, int], None]:
    """Shows the steps of the start of a board's memory, each with a bar of its own."""
    tasks: dict[str, TaskID] = {}

    def show(step: str, done: int, total: int) -> None:
        if step not in tasks:
            tasks[step] = bar.add_task(f"start the board's memory: {step}", total=total)
        bar.update(tasks[step], completed=done, total=total)

    return show


def require_host(host: str, locator: Locator) -> None:
    """Refuses a host that a device cannot reach, or listen at, as its address is not known.

    Asked before the device is opened, which may take a build. An empty one is no host. Raises
    `TransportError`.
    """
    if not host:
        return
    # A network of its own has IPv4; all others have the sockets of this machine.
    family = socket.AF_INET if locator.has_network else socket.AF_UNSPEC
    try:
        socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        what = "IPv4 address" if locator.has_network else "address"
        why = getattr(error, "strerror", None) or error
        raise TransportError(f"no {what} of {host!r} is known: {why}") from error


def open_device(locator: Locator, host: str = "") -> SimulatedDevice | SerialDevice | SerialNic:
    """Opens a device; the simulated one is built before if it is not.

    `host` is what it will connect to, or listen at: `require_host`.
    """
    require_host(host, locator)
    with progress_bar() as bar:
        return locator.open(
            library=lambda build=None: built_device(bar, build),
            memory_progress=memory_steps(bar),
        )
