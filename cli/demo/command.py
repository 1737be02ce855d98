"""What `stagecoach demo` does and shows."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from rich import box
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from stagecoach.cli.clock import GOAL_HZ
from stagecoach.cli.demo.ends import Job, Measurement
from stagecoach.cli.demo.run import Demo, Result
from stagecoach.cli.open_device import built_device, progress_bar
from stagecoach.cli.plain_text import TITLE, plain
from stagecoach.host_driver.locate import NETWORK_CARD, Locator, parse_device
from stagecoach.host_driver.startup_options import StartupOptions
from stagecoach.sim.build import build_nic

DEFAULT_SIZE = 4 << 20
SMALL_SIZE = 64 << 10


def demo(
    file: Path | None,
    size: int | None,
    emss: int,
    startup: StartupOptions,
    waves: bool,
    as_json: bool,
    locator: Locator,
    output: Path,
    loss: float | None = None,
) -> int:
    """Runs the demonstration and prints what it took; returns the exit status.

    The capture, and the waveform, are left in the folder `output`. With `loss` both devices have a
    network of their own, joined by a wire that loses so much of all frames.
    """
    if size is None:
        small = waves or not locator.is_simulated
        size = SMALL_SIZE if small else DEFAULT_SIZE
    octets = size if file is None else file.stat().st_size
    output = output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        # Both ends of a wire have the NIC of its default address.
        library = built_device(bar, None if loss is None else build_nic)
        job = Job(
            file=file,
            size=size,
            emss=emss,
            sink_library=library,
            source_library=built_device(bar, trace=True) if waves else library,
            pcapng=output / "demo.pcapng",
            waves=output / "demo.fst" if waves else None,
            startup=startup,
            source_device=locator,
        )
        if loss is not None:
            job = _on_a_wire(job, loss)
        result = Demo(job, _show_operations(bar, octets)).run()
    files = [job.pcapng] + ([job.waves] if job.waves else [])
    name = str(file) if file else "generated data"
    if as_json:
        print(json.dumps(_demo_as_json(name, octets, emss, result, files), indent=2))
    else:
        _print_demo(name, octets, emss, result, files)
    return 0


def _on_a_wire(job: Job, loss: float) -> Job:
    """The job for two devices with a network of their own."""
    sink, source = (
        f"{NETWORK_CARD}://?wire=pair:demo-{os.getpid()}&ip=192.0.2.{number}/24"
        f"&tx_loss={loss:.9f}&rto_min_ms=20&seed={number}"
        for number in (1, 2)
    )
    pcapng = job.pcapng.with_name("demo-nic.pcapng")
    return dataclasses.replace(
        job,
        pcapng=pcapng,
        sink_device=parse_device(sink),
        source_device=parse_device(f"{source}&{urlencode({'pcap': str(pcapng)})}"),
        host="192.0.2.1",
    )


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
    # A device without a real clock is told of as if it had that of 10 Gbit/s.
    at_clock = "" if row.clock_hz else "_at_156_25_mhz"
    return {
        "payload_octets_per_cycle": per_cycle,
        f"gbit_per_second{at_clock}": per_cycle * 8 * (row.clock_hz or GOAL_HZ) / 1e9,
        "simulated_cycles_per_second": row.cycles / row.seconds if row.seconds else 0.0,
    }


def _known(row: Measurement) -> dict[str, Any]:
    """What was measured: devices without a network of their own know nothing of segments."""
    return {name: value for name, value in vars(row).items() if value is not None}


def _demo_as_json(
    name: str, octets: int, emss: int, result: Result, files: list[Path]
) -> dict[str, Any]:
    return {
        "file": name,
        "octets": octets,
        "emss": emss,
        "sha256": result.digest,
        "operations": [_known(row) | _rates(row) for row in result.measurements],
        "files": [str(path) for path in files],
        "capture_complete": result.capture_complete,
    }


def _print_demo(name: str, octets: int, emss: int, result: Result, files: list[Path]) -> None:
    title = f"{name}: {octets:,} bytes there and back, EMSS {emss}"
    table = Table(title=plain(title, TITLE), box=box.SIMPLE, padding=(0, 1, 0, 0))  # 80 columns
    table.add_column("operation", no_wrap=True)
    clock_hz = next((row.clock_hz for row in result.measurements if row.clock_hz), GOAL_HZ)
    headings = [
        "bytes",
        "FPDUs",
        "device\ncycles",
        "bytes/\ncycle",
        f"Gbit/s at\n{clock_hz / 1e6:.3g} MHz",
        "sim.\ncycles/s",
    ]
    network = any(row.segments is not None for row in result.measurements)
    if network:
        headings[-1:] = ["seg-\nments", "sent\nagain", "RTT\nms"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.measurements:
        rates = _rates(row)
        gigabits = next(rate for name, rate in rates.items() if name.startswith("gbit"))
        last = [f"{rates['simulated_cycles_per_second']:,.0f}"]
        if network:
            rtt = "" if row.rtt_us is None else f"{row.rtt_us / 1000:.1f}"
            last = [f"{row.segments or 0:,}", f"{row.retransmissions or 0:,}", rtt]
        table.add_row(
            row.operation,
            f"{row.octets:,}",
            f"{row.fpdus:,}",
            f"{row.cycles:,}",
            f"{rates['payload_octets_per_cycle']:.3f}",
            f"{gigabits:.{2 if gigabits >= 0.01 else 5}f}",
            *last,
        )
    console = Console()
    console.print(table)
    waiting = "without its waiting for the network"
    if not network:
        waiting = "with its waiting for the other process"
    console.print(
        f"Cycles of the source's device, {waiting}:\n`make bench` measures the device alone.",
        style="dim",
    )
    console.print(f"SHA-256 {result.digest}", soft_wrap=True, highlight=False)
    console.print("The same at both ends, and every byte that was read back is right.")
    if not result.capture_complete:
        console.print("The recording was full: the capture ends early.")
    for path in files:
        console.print(plain(f"Written: {os.path.relpath(path)}"), soft_wrap=True)
