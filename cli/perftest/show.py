"""What `stagecoach perftest` prints: the tables of the tools, and cycles of the device."""

from stagecoach.ulp.perftest.ends import Met, Settings
from stagecoach.ulp.perftest.results import Bandwidth, Latency, Result
from stagecoach.ulp.perftest.tools import Tool

LINE = "-" * 104

_BANDWIDTH = (
    (" #bytes", 8),
    ("#iterations", 15),
    ("BW peak[MB/sec]", 19),
    ("BW average[MB/sec]", 22),
    ("MsgRate[Mpps]", 17),
    ("cycles", 16),
)
_LATENCY = (
    (" #bytes", 8),
    ("#iterations", 12),
    ("t_min[usec]", 12),
    ("t_max[usec]", 12),
    ("t_typical[usec]", 16),
    ("t_avg[usec]", 12),
    ("t_stdev[usec]", 14),
    ("99% percentile[usec]", 21),
    ("99.9% percentile[usec]", 23),
    ("t_avg[cycles]", 14),
)


def header(settings: Settings, device: str, clock_hz: float | None) -> list[str]:
    """What the test is. clock_hz: of the device, None if it has no real clock."""
    plan = settings.plan
    clock = "none: simulated" if clock_hz is None else f"{clock_hz / 1e6:g} MHz"
    return [
        LINE,
        f"{'':20}{settings.tool.title}",
        f" Device          : {device}",
        f" Device clock    : {clock}",
        " Number of qps   : 1",
        " Connection type : RC",
        f" TX depth        : {plan.depth}",
        f" CQ Moderation   : {plan.moderation}",
        " rdma_cm QPs     : ON",
        " Data ex. method : rdma_cm",
        LINE,
    ]


def addresses(met: Met) -> list[str]:
    """What the ends have told each other."""
    ends = (("local", met.mine), ("remote", met.remote))
    return [
        f" {name} address: LID {each.lid:#04x} QPN {each.qpn:#06x} PSN {each.psn:#08x} "
        f"OUT {each.out_reads:#04x} RKey {each.rkey:#010x} VAddr {each.vaddr:#018x}"
        for name, each in ends
    ]


def _row(cells: list[str], columns: tuple[tuple[str, int], ...]) -> str:
    return "".join(f"{cell:<{width}}" for cell, (_, width) in zip(cells, columns, strict=True))


def _headings(columns: tuple[tuple[str, int], ...]) -> str:
    return _row([name for name, _ in columns], columns).rstrip()


def headings(tool: Tool) -> str:
    """Of the table of a tool."""
    return _headings(_LATENCY if tool.latency else _BANDWIDTH)


def row(result: Result) -> str:
    """The only row of the table."""
    if isinstance(result, Latency):
        times = (
            result.least,
            result.most,
            result.typical,
            result.average,
            result.deviation,
            result.per_cent_99,
            result.per_mille_999,
        )
        cells = [f" {result.size}", f"{result.iterations}", *(f"{each:.2f}" for each in times)]
        return _row([*cells, f"{result.cycles:.1f}"], _LATENCY).rstrip()
    assert isinstance(result, Bandwidth)
    cycles = "-" if result.cycles is None else f"{result.cycles}"
    rates = [f"{result.peak:.2f}", f"{result.average:.2f}", f"{result.rate:.6f}"]
    cells = [f" {result.size}", f"{result.iterations}", *rates, cycles]
    return _row(cells, _BANDWIDTH).rstrip()
