"""The table of a result."""

from rich import box
from rich.table import Table

from stagecoach.cli.perf.result import Result
from stagecoach.cli.perf.sizes import size_text
from stagecoach.host_driver.locate import parse_device


def table_of(result: Result) -> Table:
    """One row per size; 80 columns."""
    caption = f"Rates per second at {result.clock_mhz:g} MHz. Limit: what the protocol allows."
    if parse_device(result.device).has_network:
        caption += "\nCycles in which the device waits for its network are not counted."
    table = Table(
        title=result.title,
        caption=caption,
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for heading in (
        "size",
        "messages",
        "cycles",
        "bytes/\ncycle",
        "limit",
        "Gbit/s",
        "messages/s",
        "latency,\ncycles",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in result.points:
        table.add_row(
            size_text(point.size),
            f"{point.messages:,}",
            f"{point.cycles:,}",
            f"{point.octets_per_cycle:.3f}",
            f"{point.limit_octets_per_cycle:.3f}",
            f"{result.gbit_per_second(point):.3f}",
            f"{result.messages_per_second(point):,.0f}",
            f"{point.latencies.median:,}",
        )
    return table


def latency_table(result: Result) -> Table:
    """Latencies of each size in cycles, and the median in microseconds; 80 columns."""
    messages = result.plan.latency_messages
    what = "Half of the round trip" if result.plan.pingpong else "Latency"
    table = Table(
        title=f"{what} in cycles, {messages:,} message" + "s" * (messages > 1),
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for heading in ("size", "min", "median", "average", "99%", "99.9%", "max", "median, us"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in result.points:
        found = point.latencies
        table.add_row(
            size_text(point.size),
            f"{found.least:,}",
            f"{found.median:,}",
            f"{found.average:,.1f}",
            f"{found.per_mille(990):,}",
            f"{found.per_mille(999):,}",
            f"{found.most:,}",
            f"{result.microseconds(found.median):,.3f}",
        )
    return table
