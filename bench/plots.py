"""The plots of docs/performance.md, as SVG."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.curves import FAMILIES, Curve, Family
from bench.limits import port_limit, wire_cycles, wire_limit
from bench.many_qps import PATTERNS
from stagecoach.cli.perf.sizes import size_text
from stagecoach.hw.files import write_results, write_whole

Results = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Of each curve, by x: bytes, messages and cycles."""

AreaRows = dict[str, dict[str, Any]]
"""Of each value of a size: `lut4`, `ff`, `dp16kd`, and `fmax_mhz` if it was placed."""

AreaSeries = dict[str, AreaRows]
"""The rows by each size, under the keys of `AREA_SIZES`."""

AREA_SIZES = {"by_qps": "QPs", "by_data_width_bits": "bits of data width"}
"""The sizes over which area and clock are measured, and their names."""

AREA_UNITS = {"lut4": "LUT4", "ff": "FF", "dp16kd": "DP16KD", "fmax_mhz": "MHz"}

FIGURES = Path("docs/figures/performance")
AREA = FIGURES / "area.json"
"""What `make scaling` has measured, for the page."""

LIMIT = {"color": "0.5", "linestyle": "--", "zorder": 1}
WIRE = {"color": "0.7", "linestyle": ":", "zorder": 1}


def octets_per_cycle(curve: Curve, results: Results) -> list[float]:
    """Payload bytes per cycle at every point."""
    found = [results[curve.key][str(point.x)] for point in curve.points]
    return [result["octets"] / result["cycles"] for result in found]


def cycles_per_message(curve: Curve, results: Results) -> list[float]:
    """Cycles per message at every point; of long messages, by their bytes."""
    values = []
    for point in curve.points:
        result = results[curve.key][str(point.x)]
        size = point.case.options["octets"]
        messages = result["octets"] / size if size else result["messages"]
        values.append(result["cycles"] / messages)
    return values


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Writes a plot for each family; returns the paths."""
    drawings: Sequence[tuple[Family, Callable[..., Any]]] = tuple(
        zip(FAMILIES, (_draw_sizes, _draw_qps, _draw_latencies), strict=True)
    )
    return [_save(draw(family, results), folder, family.name) for family, draw in drawings]


def area_figure(key: str) -> str:
    """The name of the plot over a size."""
    return f"{AREA.stem}_{key}"


def write_area_plots(series: AreaSeries, folder: Path) -> None:
    """Writes a plot of area and Fmax over each size, and the data of all beside them."""
    write_results(folder / AREA.name, series)
    for key, rows in series.items():
        _save(_draw_area(rows, AREA_SIZES[key]), folder, area_figure(key))


def _draw_area(rows: AreaRows, size: str) -> Any:
    figure, (left, right) = _figure(2)
    counts = [int(count) for count in rows]
    for key in ("lut4", "ff"):
        left.plot(counts, [row[key] for row in rows.values()], ".-", label=AREA_UNITS[key])
    left.legend(fontsize="small", loc="upper left")
    left.set_ylabel("LUT4, flip-flops")
    placed = {int(count): row["fmax_mhz"] for count, row in rows.items() if "fmax_mhz" in row}
    right.plot(list(placed), list(placed.values()), ".-")
    right.set_ylabel("Fmax in MHz")
    for panel in (left, right):
        panel.set_ylim(0)
        panel.set_xscale("log", base=2)
        panel.set_xlim(min(counts) / 1.2, max(counts) * 1.2)  # also where nothing was placed
        panel.set_xticks(counts, [str(count) for count in counts])
        panel.set_xlabel(size)
        panel.grid(alpha=0.3)
    return figure


def _save(figure: Any, folder: Path, name: str) -> Path:
    from matplotlib import rc_context

    path, text = folder / f"{name}.svg", io.StringIO()
    # Text stays text, and the same plot is the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "stagecoach"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    write_whole(path, text.getvalue())
    return path


def _figure(panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * panels + 1, 4.5), layout="constrained")
    return figure, figure.subplots(1, panels)


def _draw_sizes(family: Family, results: Results) -> Any:
    figure, (left, right) = _figure(2)
    sizes = [point.x for point in family.curves[0].points]
    places = range(len(sizes))
    left.plot(places, [port_limit(size) for size in sizes], label="limit of the port", **LIMIT)
    left.plot(places, [wire_limit(size) for size in sizes], label="10 Gb/s Ethernet", **WIRE)
    for curve in family.curves:
        left.plot(places, octets_per_cycle(curve, results), ".-", label=curve.label)
        right.plot(places, cycles_per_message(curve, results), ".-", label=curve.label)
    left.set_ylabel("payload bytes per cycle")
    left.set_ylim(0, 8.2)
    right.set_ylabel("cycles per message")
    right.set_yscale("log")
    for panel, corner in ((left, "lower right"), (right, "upper left")):
        panel.set_xticks(places, [size_text(size) if size else "0" for size in sizes])
        _finish(panel, family, corner)
    return figure


def _draw_qps(family: Family, results: Results) -> Any:
    figure, panel = _figure(1)
    for curve in family.curves:
        counts = [point.x for point in curve.points]
        panel.plot(counts, cycles_per_message(curve, results), ".-", label=curve.label)
    for number, cycles in enumerate(sorted({wire_cycles(each) for each in PATTERNS})):
        panel.axhline(cycles, label="" if number else "10 Gb/s Ethernet", **WIRE)
    panel.margins(y=0.4)  # for the legend
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(counts, [str(count) for count in counts])
    panel.set_ylabel("cycles per message")
    _finish(panel, family, "upper right")
    return figure


def _draw_latencies(family: Family, results: Results) -> Any:
    figure, panel = _figure(1)
    panel.axhline(port_limit(family.curves[0].points[0].case.options["octets"]), **LIMIT)
    for curve in family.curves:
        latencies = [point.x for point in curve.points]
        panel.plot(latencies, octets_per_cycle(curve, results), ".-", label=curve.label)
    panel.set_ylim(0, 8.2)
    panel.set_ylabel("payload bytes per cycle")
    _finish(panel, family, "lower left")
    return figure


def _finish(panel: Any, family: Family, corner: str) -> None:
    panel.set_xlabel(family.x)
    panel.grid(alpha=0.3)
    # Without a place matplotlib looks for the best one, and warns when that takes long.
    panel.legend(fontsize="small", loc=corner)
