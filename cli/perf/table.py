"""The table of a result."""

from rich import box
from rich.table import Table

from stagecoach.cli.perf.result import Result
from stagecoach.cli.perf.sizes import size_text


def table_of(result: Result) -> Table:
    """One row per size; 80 columns."""
    table = Table(
        title=result.title,
        caption=f"Rates per second at {result.clock_mhz:g} MHz. Limit: what the protocol allows.",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for heading in (
        "size",
        "messages",
        "cycles",
        "octets/\ncycle",
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
            f"{point.latency:,}",
        )
    return table
