"""The plot of a result: three panels over the sizes."""

from pathlib import Path
from typing import Any

from stagecoach.cli.perf.result import Result
from stagecoach.cli.perf.sizes import size_text

FORMATS = ("png", "svg")
_CURVE_POINTS = 200
_VISIBLE = 1.03  # a line that is nowhere further from the median than this would hide it


def plot_paths(stem: Path) -> list[Path]:
    """Where `write_plots` writes; `stem` has a name."""
    return [stem.with_name(f"{stem.name}.{suffix}") for suffix in FORMATS]


def write_plots(result: Result, stem: Path) -> list[Path]:
    """Writes `stem`.png and `stem`.svg; returns their paths.

    Bytes per cycle and messages per second with what the protocol allows, and latency in cycles.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text stays text, and the same plot is the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "stagecoach"}):
        figure = Figure(figsize=(13, 4.2), layout="constrained")
        _draw(result, *figure.subplots(1, 3))
        figure.suptitle(result.title)
        paths = plot_paths(stem)
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _draw(result: Result, octets: Any, messages: Any, latency: Any) -> None:
    points = result.points
    sizes = [point.size for point in points]
    curve = _curve_sizes(sizes)
    plan = result.plan
    limits = [plan.limit_messages_per_cycle(size) for size in curve]
    measured: dict[str, Any] = {"marker": "o", "markersize": 4, "label": "measured"}
    allowed: dict[str, Any] = {"color": "0.5", "linestyle": "--", "label": "protocol limit"}
    if len(curve) == 1:
        allowed |= {"marker": "_", "markersize": 20}

    most = [size * limit for size, limit in zip(curve, limits, strict=True)]
    octets.plot(curve, most, **allowed)
    octets.plot(sizes, [point.octets_per_cycle for point in points], **measured)
    octets.set_ylabel("payload, bytes per cycle")
    octets.set_ylim(0, 1.1 * max(most))

    millions = result.clock_mhz
    messages.plot(curve, [limit * millions for limit in limits], **allowed)
    messages.plot(sizes, [point.messages_per_cycle * millions for point in points], **measured)
    messages.set_ylabel(f"million messages per second at {result.clock_mhz:g} MHz")
    messages.set_yscale("log")

    median = [point.latencies.median for point in points]
    latency.plot(sizes, median, **measured | {"label": "median"})
    for per_mille, line in ((990, ":"), (999, "-.")):
        found = [point.latencies.per_mille(per_mille) for point in points]
        if any(one > _VISIBLE * middle for one, middle in zip(found, median, strict=True)):
            latency.plot(sizes, found, line, color="C1", linewidth=1, label=f"{per_mille / 10:g} %")
    least = [point.latencies.least for point in points]
    longest = [point.latencies.most for point in points]
    latency.fill_between(sizes, least, longest, alpha=0.25, label="least to most")
    latency.set_ylabel("latency, cycles")
    latency.set_yscale("log")

    step = -(-len(sizes) // 6)
    for panel in (octets, messages, latency):
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes[::step], [size_text(size) for size in sizes[::step]])
        panel.minorticks_off()
        panel.set_xlabel("bytes of a message")
        panel.grid(alpha=0.3)
        panel.legend()


def _curve_sizes(sizes: list[int]) -> list[int]:
    """The sizes and many between them: the limit jumps with each FPDU more."""
    least, most = min(sizes), max(sizes)
    ratio = most / least
    between = (round(least * ratio ** (k / _CURVE_POINTS)) for k in range(_CURVE_POINTS + 1))
    return sorted({*sizes, *between})
