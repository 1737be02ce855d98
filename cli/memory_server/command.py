"""What `stagecoach memory-server` does."""

import sys

from stagecoach.cli.open_device import open_device
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.host_driver.startup_options import StartupOptions
from stagecoach.ulp.memory_server.server import MemoryServer, silent


def serve(
    device: Locator, octets: int | None, port: int, startup: StartupOptions, verbose: bool
) -> int:
    """Offers memory of a device until it is interrupted."""
    with Context(open_device(device)) as context:
        with MemoryServer(
            context,
            octets,
            port=port,
            startup=startup,
            tell=_report if verbose else silent,
            report=_report,
        ) as server:
            region = server.region
            print(
                f"listening at port {server.port}: {region.length} bytes from "
                f"0x{region.addr:x} on, STag 0x{region.rkey:08x}",
                flush=True,
            )
            server.serve()
    return 0


def _report(line: str) -> None:
    print(f"stagecoach memory-server: {line}", file=sys.stderr, flush=True)
