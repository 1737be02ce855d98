"""The plots of docs/performance.md, as SVG, and beside them the values that they show.

`python -m bench.plots` draws them anew from these values.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.curves import FAMILIES, Curve, Family
from bench.limits import port_limit, wire_cycles, wire_limit
from bench.many_qps import PATTERNS
from bench.panels import (
    PORT,
    WIRE,
    Line,
    begin_at_zero,
    draw_lines,
    make_log,
    name_places,
    new_figure,
)
from stagecoach.cli.perf.sizes import size_text
from stagecoach.hw.files import read_results, write_results, write_whole

Results = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Of each curve, by x: bytes, messages and cycles."""

Values = Mapping[str, Mapping[str, float]]
"""Of each curve, by x: cycles per message."""

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

CURVES = FIGURES / "curves.json"
"""What `make bench` has measured, as `Values`."""

OCTETS_PER_CYCLE = "payload bytes per cycle"
CYCLES_PER_MESSAGE = "cycles per message"


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
    """Writes a plot for each family, and the values of all beside them; returns their paths."""
    values = {
        curve.key: {
            str(point.x): float(f"{cycles:.6g}")
            for point, cycles in zip(curve.points, cycles_per_message(curve, results), strict=True)
        }
        for family in FAMILIES
        for curve in family.curves
    }
    write_results(folder / CURVES.name, values)
    return [_save(figure, folder, name) for name, figure in draw_curves(values).items()]


def write_area_plots(series: AreaSeries, folder: Path) -> None:
    """Writes a plot of area and Fmax over each size, and the data of all beside them."""
    write_results(folder / AREA.name, series)
    for name, figure in draw_area(series).items():
        _save(figure, folder, name)


def write_again(source: Path, folder: Path) -> list[Path]:
    """Writes all plots to a folder, from the values in another one; returns their paths."""
    figures = draw_curves(read_results(source / CURVES.name))
    figures |= draw_area(read_results(source / AREA.name))
    return [_save(figure, folder, name) for name, figure in figures.items()]


def draw_curves(values: Values) -> dict[str, Any]:
    """The plot of each family, by its name."""
    drawings: Sequence[tuple[Family, Callable[[Family, Values], Any]]] = tuple(
        zip(FAMILIES, (_draw_sizes, _draw_qps, _draw_latencies), strict=True)
    )
    return {family.name: draw(family, values) for family, draw in drawings}


def draw_area(series: AreaSeries) -> dict[str, Any]:
    """The plot of area and Fmax over each size, by its name."""
    return {area_figure(key): _draw_area(rows, AREA_SIZES[key]) for key, rows in series.items()}


def area_figure(key: str) -> str:
    """The name of the plot over a size."""
    return f"{AREA.stem}_{key}"


def _draw_sizes(family: Family, values: Values) -> Any:
    """Above the throughput, below what it means for a message."""
    groups = _by_operation(family)
    figure, (above, below) = new_figure(10.5, 7, 2, len(groups), sharey="row")
    sizes = [point.x for point in family.curves[0].points]
    places = range(len(sizes))  # as on a log axis, which has no 0
    names = [size_text(size).removesuffix("B") if size else "0" for size in sizes]
    limits = (
        Line("limit of the port", places, [port_limit(size) for size in sizes], PORT),
        Line("10 Gb/s Ethernet", places, [wire_limit(size) for size in sizes], WIRE),
    )
    for curves, top, bottom in zip(groups, above, below, strict=True):
        draw_lines(top, [*(Line(c.label, places, _octets(c, values)) for c in curves), *limits])
        draw_lines(bottom, [Line(c.label, places, _cycles(c, values)) for c in curves])
        begin_at_zero(top)
        for panel in (top, bottom):
            name_places(panel, places, names, family.x)
    above[0].set_ylabel(OCTETS_PER_CYCLE)
    make_log(below[0], (1,))
    below[0].set_ylabel(CYCLES_PER_MESSAGE)
    return figure


def _draw_qps(family: Family, values: Values) -> Any:
    groups = _by_operation(family)
    figure, (panels,) = new_figure(10.5, 4.2, 1, len(groups), sharey="row")
    for curves, panel in zip(groups, panels, strict=True):
        counts = [point.x for point in curves[0].points]
        wire = wire_cycles(next(each for each in PATTERNS if each.key == curves[0].key))
        limit = Line("10 Gb/s Ethernet", counts, [wire] * len(counts), WIRE)
        draw_lines(panel, [*(Line(c.label, counts, _cycles(c, values)) for c in curves), limit])
        panel.set_xscale("log", base=2)
        name_places(panel, counts, [str(count) for count in counts], family.x)
    make_log(panels[0], (1, 1.5, 2, 3, 5, 7))
    panels[0].set_ylabel(CYCLES_PER_MESSAGE)
    return figure


def _draw_latencies(family: Family, values: Values) -> Any:
    groups = _by_operation(family)
    figure, (panels,) = new_figure(9, 4.2, 1, len(groups), sharey="row")
    octets = max(curve.points[0].case.options["octets"] for curve in family.curves)
    for curves, panel in zip(groups, panels, strict=True):
        latencies = [point.x for point in curves[0].points]
        limit = [port_limit(octets)] * len(latencies)
        lines = [Line(c.label, latencies, _octets(c, values)) for c in curves]
        draw_lines(
            panel, [*lines, Line(f"limit of the port, {octets:,} bytes", latencies, limit, PORT)]
        )
        begin_at_zero(panel)
        name_places(panel, latencies, [f"{latency:,}" for latency in latencies], family.x)
    panels[0].set_ylabel(OCTETS_PER_CYCLE)
    return figure


def _draw_area(rows: AreaRows, size: str) -> Any:
    figure, ((left, right),) = new_figure(9, 4.2, 1, 2)
    counts = [int(count) for count in rows]
    area = [(AREA_UNITS[key], [row[key] for row in rows.values()]) for key in ("lut4", "ff")]
    draw_lines(left, [Line(label, counts, values) for label, values in area])
    left.set_ylabel("LUT4, flip-flops")
    placed = {int(count): row["fmax_mhz"] for count, row in rows.items() if "fmax_mhz" in row}
    draw_lines(right, [Line("Fmax", list(placed), list(placed.values()))])
    right.set_ylabel("MHz")
    for panel in (left, right):
        begin_at_zero(panel)
        panel.set_xscale("log", base=2)
        panel.set_xlim(min(counts) / 1.3, max(counts) * 1.3)  # also where nothing was placed
        name_places(panel, counts, [str(count) for count in counts], size)
    return figure


def _by_operation(family: Family) -> list[list[Curve]]:
    """Curves that share a panel."""
    groups: dict[str, list[Curve]] = {}
    for curve in family.curves:
        groups.setdefault(curve.operation, []).append(curve)
    return list(groups.values())


def _cycles(curve: Curve, values: Values) -> list[float]:
    return [values[curve.key][str(point.x)] for point in curve.points]


def _octets(curve: Curve, values: Values) -> list[float]:
    sizes = (point.case.options["octets"] for point in curve.points)
    return [size / cycles for size, cycles in zip(sizes, _cycles(curve, values), strict=True)]


def _save(figure: Any, folder: Path, name: str) -> Path:
    from matplotlib import rc_context

    path, text = folder / f"{name}.svg", io.StringIO()
    # Text stays text, and the same plot is the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "stagecoach"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    write_whole(path, text.getvalue())
    return path


if __name__ == "__main__":
    for path in write_again(FIGURES, FIGURES):
        print(path)
