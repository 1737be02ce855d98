"""What `stagecoach perftest` does."""

from collections.abc import Iterable

from stagecoach.cli.open_device import open_device
from stagecoach.cli.perftest import show
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.locate import Locator
from stagecoach.ulp.perftest import ends
from stagecoach.ulp.perftest.ends import Met, Settings


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def perftest(settings: Settings, locator: Locator) -> int:
    """Runs one end of a test on a device; returns the exit status."""

    def met(both: Met) -> None:
        _print([*show.addresses(both), show.LINE, show.headings(settings.tool)])

    def listening(port: int) -> None:
        _print([f" Waiting for a client at port {port}"])

    device = open_device(locator, settings.host or settings.source_ip)
    with Context(device) as context:
        _print(show.header(settings, locator.text, device.info.get("clock_hz")))
        if settings.host:
            result = ends.ask(context, settings, met)
        else:
            result = ends.serve(context, settings, met, listening)
        _print([*([show.row(result)] if result is not None else []), show.LINE])
    return 0
