"""Panels of a plot in which no line hides another, and no legend a line.

A panel has at most two curves. The one below is wide and pale, the one above it thin and dark, so
both are seen where they are one. Limits lie above both and have gaps. The legend is above the
panel and names each line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#f4b26e", "linewidth": 5.0, "marker": "o", "markersize": 10.0},
    {"color": "#1d4f91", "linewidth": 1.5, "marker": "o", "markersize": 4.5},
)
"""Of the curves of a panel, from below."""

PORT: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": "--"}
WIRE: dict[str, Any] = {"color": "black", "linewidth": 1.5, "linestyle": ":"}

MARGIN = 0.07
"""Part of a panel that is free at each side of what is drawn."""


@dataclass(frozen=True)
class Line:
    """Points of a line, and its name in the legend. `style`: of a limit, `PORT` or `WIRE`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: dict[str, Any] | None = None


def new_figure(width: float, height: float, rows: int, columns: int, **options: Any) -> Any:
    """A figure of so many inches, and its panels by row and column."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def draw_lines(panel: Any, lines: Sequence[Line]) -> None:
    """Draws curves and limits, and the legend above them."""
    curves = [line for line in lines if line.style is None]
    if len(curves) > len(STYLES):
        raise ValueError(f"{len(curves)} curves in a panel; allowed: up to {len(STYLES)}")
    styles = [*STYLES[-len(curves) :]]
    for line in sorted(lines, key=lambda line: line.style is not None):
        style = styles.pop(0) if line.style is None else line.style
        panel.plot(line.x, line.y, label=line.label, **style)
    panel.margins(MARGIN)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def begin_at_zero(panel: Any) -> None:
    """Has the y axis of a panel that has lines begin at 0."""
    least, most = panel.dataLim.intervaly
    if least <= most:
        panel.set_ylim(0 if least else -MARGIN * most, (1 + MARGIN) * most)


def make_log(panel: Any, steps: Sequence[float]) -> None:
    """Has the y axis of the panels that share it be a log axis, with these ticks of a decade."""
    from matplotlib.ticker import LogLocator

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=steps))
    panel.yaxis.set_minor_locator(LogLocator(subs="all"))
    panel.yaxis.set_minor_formatter("")
    panel.yaxis.set_major_formatter("{x:,g}")


def name_places(panel: Any, places: Sequence[float], names: Sequence[str], axis: str) -> None:
    """Ticks and name of the x axis."""
    panel.set_xticks(places, names, fontsize="small")
    panel.xaxis.minorticks_off()
    panel.set_xlabel(axis)
