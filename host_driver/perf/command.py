"""What `stagecoach perf` does and shows."""

import json
import os
import sys
from pathlib import Path

from rich.console import Console

from host_driver.commands import built_device, progress_bar
from host_driver.context import Context
from host_driver.perf.both import LOCALHOST, LocalServer
from host_driver.perf.client import measure
from host_driver.perf.operations import Operation
from host_driver.perf.plot import write_plots
from host_driver.perf.result import Point, Result
from host_driver.perf.server import serve as serve_client
from host_driver.perf.settings import LATENCY_MESSAGES, Plan
from host_driver.perf.table import table_of
from host_driver.transport.simulation import SimulatedDevice


def serve(operation: Operation, address: str, port: int) -> None:
    """Waits for a client, serves it to its end."""

    def tell(text: str) -> None:
        print(f"stagecoach perf: {text}", file=sys.stderr, flush=True)

    with progress_bar() as bar:
        library = built_device(bar)
    with Context(SimulatedDevice(library=library)) as context:
        serve_client(
            context,
            operation,
            address,
            port,
            listening=lambda port: tell(f"listening at port {port}"),
            connected=lambda: tell("a client is measuring"),
        )


def measure_at(plan: Plan, address: str, port: int) -> list[Point]:
    """Measures with a server at an address; with one of its own if that is empty."""
    with progress_bar() as bar:
        library = built_device(bar)
        total = sum(plan.messages_of(size) + LATENCY_MESSAGES for size in plan.sizes)
        task = bar.add_task(f"perf {plan.operation.name}", total=total)

        def progress(messages: int) -> None:
            bar.advance(task, messages)

        with Context(SimulatedDevice(library=library)) as context:
            if address:
                return measure(context, plan, address, port, progress)
            with LocalServer(plan.operation, library) as server:
                try:
                    return measure(context, plan, LOCALHOST, server.port, progress)
                except Exception as error:
                    context.close()
                    raise server.first_error(error) from None


def show(result: Result, stem: Path, json_path: Path | None) -> None:
    """Prints the table, writes the plots, and the figures to a file if one is named."""
    Console().print(table_of(result))
    paths = write_plots(result, stem)
    if json_path is not None:
        json_path.write_text(json.dumps(result.as_json(), indent=2) + "\n")
        paths.append(json_path)
    for path in paths:
        print(f"Written: {os.path.relpath(path)}")
