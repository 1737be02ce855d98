"""What the commands of `stagecoach memory` do."""

import dataclasses
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console

from stagecoach.cli.memory.show import tables
from stagecoach.cli.open_device import open_device
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.host_driver.startup_options import StartupOptions
from stagecoach.ulp.memory_server import bench as benchmark
from stagecoach.ulp.memory_server.client import Client


@dataclass(frozen=True)
class Server:
    """A memory server, and the device to reach it with."""

    device: Locator
    host: str
    port: int
    startup: StartupOptions

    @contextmanager
    def connected(self) -> Iterator[tuple[Context, Client]]:
        """The open device and a client on it."""
        with Context(open_device(self.device, self.host)) as context:
            with Client(context, self.host, self.port, self.startup) as client:
                yield context, client


def put(server: Server, path: Path, offset: int) -> None:
    """Copies a file to an offset of the server's memory."""
    with open(path, "rb", buffering=0) as file, server.connected() as (_, client):
        octets = os.fstat(file.fileno()).st_size
        start = time.perf_counter()
        client.put(file, offset, octets)
        _tell("put", octets, offset, time.perf_counter() - start)


def get(server: Server, path: Path, offset: int, octets: int | None) -> None:
    """Copies so many bytes, or all from an offset on, to a file.

    A file of that name is replaced when all of them have come.
    """
    with server.connected() as (_, client):
        if octets is None:
            octets = max(0, client.region.length - offset)
        client.require(offset, octets, "get")
        with _replaced(path) as file:
            start = time.perf_counter()
            client.get(file, offset, octets)
        _tell("got", octets, offset, time.perf_counter() - start)


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when the block ends well, so that nobody sees half of it.

    What is no regular file, such as /dev/stdout, is written to as it is.
    """
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(unfinished, "xb") as file:
            yield file
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _tell(what: str, octets: int, offset: int, seconds: float) -> None:
    rate = octets / max(seconds, 1e-9) / 1e6
    print(f"{what} {octets} bytes at offset {offset} in {seconds:.3f} s, {rate:.3f} MB/s")


def bench(
    server: Server, offset: int, size: int, messages: int, latencies: int, *, as_json: bool
) -> None:
    """Measures, and prints tables or JSON."""
    with server.connected() as (context, client):
        rates, times = benchmark.bench(context, client, offset, size, messages, latencies)
    if as_json:
        shown = {
            "throughput": [
                dataclasses.asdict(each) | {"megabytes_per_second": each.megabytes_per_second}
                for each in rates
            ],
            "latency": [dataclasses.asdict(each) for each in times],
        }
        print(json.dumps(shown, indent=2))
        return
    console = Console()
    for table in tables(rates, times):
        console.print(table)
