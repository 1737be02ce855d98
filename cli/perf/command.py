"""What `stagecoach perf` does and shows."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from stagecoach.cli.open_device import built_device, open_device, progress_bar, require_host
from stagecoach.cli.perf.both import LOCALHOST, LocalServer
from stagecoach.cli.perf.client import measure
from stagecoach.cli.perf.latency import histogram
from stagecoach.cli.perf.operations import Operation
from stagecoach.cli.perf.plot import write_plots
from stagecoach.cli.perf.result import Point, Result
from stagecoach.cli.perf.server import serve as serve_client
from stagecoach.cli.perf.settings import Plan
from stagecoach.cli.perf.sizes import size_text
from stagecoach.cli.perf.table import latency_table, table_of
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.extras import MissingExtra, extra_named
from stagecoach.host_driver.locate import SIMULATED, Locator
from stagecoach.host_driver.mpa_exchange import DEFAULT_TIMEOUT


def serve(
    operation: Operation,
    address: str,
    port: int,
    locator: Locator = SIMULATED,
    timeout: float = DEFAULT_TIMEOUT,
) -> None:
    """Waits for a client, serves it to its end on a device."""

    def tell(text: str) -> None:
        print(f"stagecoach perf: {text}", file=sys.stderr, flush=True)

    with Context(open_device(locator, address)) as context:
        serve_client(
            context,
            operation,
            address,
            port,
            listening=lambda port: tell(f"listening at port {port}"),
            connected=lambda: tell("a client is measuring"),
            timeout=timeout,
        )


@dataclass(frozen=True)
class Measured:
    """Points, and the clock in MHz that a board says it has; `None` of a simulated device."""

    points: list[Point]
    clock_mhz: float | None


def measure_at(plan: Plan, address: str, port: int, locator: Locator = SIMULATED) -> Measured:
    """Measures a device with a server at an address.

    If that is empty, with a server on a simulated device in this process.
    """
    require_host(address, locator)
    with progress_bar() as bar:
        device = locator.open(library=lambda build=None: built_device(bar, build))
        total = sum(plan.messages_of(size) + plan.latency_messages for size in plan.sizes)
        task = bar.add_task(f"perf {plan.operation.name}", total=total)

        def progress(messages: int) -> None:
            bar.advance(task, messages)

        with Context(device) as context:
            hertz = device.info.get("clock_hz")
            mhz = None if hertz is None else hertz / 1e6
            if address:
                return Measured(measure(context, plan, address, port, progress), mhz)
            with LocalServer(plan.operation, built_device(bar)) as server:
                try:
                    points = measure(context, plan, LOCALHOST, server.port, progress)
                except Exception as error:
                    context.close()
                    raise server.first_error(error) from None
            return Measured(points, mhz)


def show(result: Result, stem: Path, json_path: Path | None, histograms: bool = False) -> None:
    """Prints the tables, and histograms of latencies if wanted.

    Writes the plots, and the figures to a file if one is named. Without the library that draws
    them there are no plots.
    """
    Console().print(table_of(result))
    Console().print(latency_table(result))
    for point in result.points if histograms else []:
        print(f"Latencies of {size_text(point.size)}: cycles, messages")
        print(histogram(point.latencies.cycles) + "\n")
    try:
        with extra_named():
            paths = write_plots(result, stem)
    except MissingExtra as error:
        paths = []
        print(f"stagecoach perf: no plot: {error}", file=sys.stderr)
    if json_path is not None:
        json_path.write_text(json.dumps(result.as_json(), indent=2) + "\n")
        paths.append(json_path)
    for path in paths:
        print(f"Written: {os.path.relpath(path)}")
