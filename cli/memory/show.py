"""Tables of `stagecoach memory bench`."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from stagecoach.ulp.memory_server.bench import Latency, Throughput


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column(headings[0], no_wrap=True)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def tables(rates: Sequence[Throughput], latencies: Sequence[Latency]) -> list[Table]:
    """Throughput and latency; 80 columns."""
    fast = _table("Throughput", "operation", "size", "messages", "MB/s", "cycles", "bytes/cycle")
    for rate in rates:
        fast.add_row(
            rate.operation,
            f"{rate.size:,}",
            f"{rate.messages:,}",
            f"{rate.megabytes_per_second:,.3f}",
            f"{rate.cycles:,}",
            f"{rate.octets / rate.cycles:.3f}",
        )
    slow = _table("Latency of 8 bytes, median", "operation", "messages", "us", "cycles")
    for each in latencies:
        slow.add_row(
            each.operation, f"{each.messages:,}", f"{each.microseconds:,.1f}", f"{each.cycles:,}"
        )
    return [fast, slow]
