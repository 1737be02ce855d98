"""The plots of docs/performance.md: the files are what the code draws, and each line is seen."""

from itertools import combinations, pairwise

import numpy
import pytest

from bench.panels import STYLES, Line, draw_lines, new_figure
from bench.plots import AREA, CURVES, FIGURES, draw_area, draw_curves, write_again
from stagecoach.hw.files import read_results

BORDER = 0.75
"""Points of a line that are to be seen beside one above it."""

LONGEST = 10.0
"""Points of a line that another one may cover, where they cross."""

STEP = 1.0


def panels():
    """Of all plots, each in its place; later lines of a panel lie above earlier ones."""
    drawn = draw_curves(read_results(CURVES)) | draw_area(read_results(AREA))
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        for number, panel in enumerate(figure.axes):
            yield pytest.param(panel, id=f"{name}-{number}")


each_panel = pytest.mark.parametrize("panel", list(panels()))


def in_points(panel, line):
    """The points of a line on the page, in points."""
    return panel.transData.transform(line.get_xydata()) * 72 / panel.figure.dpi


def radius(line):
    """Half the width of a marker."""
    parts = {"o": 0.5, ".": 0.25, "None": 0, "": 0}
    return parts[line.get_marker()] * line.get_markersize()


def distances(places, path):
    """Of each place to the nearest one of a path."""
    least = numpy.full(len(places), numpy.inf)
    for begin, end in pairwise(path):
        along = end - begin
        part = numpy.clip((places - begin) @ along / max(along @ along, 1e-12), 0, 1)
        least = numpy.minimum(
            least, numpy.linalg.norm(places - begin - part[:, None] * along, axis=1)
        )
    return least


def hidden_length(panel, below, above):
    """The longest part of a line, in points, of which another one leaves no border."""
    if above.get_linestyle() != "-":
        return 0.0  # it is seen through the gaps
    path, longest, length = in_points(panel, below), 0.0, 0.0
    for begin, end in pairwise(path):
        count = max(2, int(numpy.linalg.norm(end - begin) / STEP))
        places = begin + numpy.linspace(0, 1, count)[:, None] * (end - begin)
        seen = (
            below.get_linewidth() / 2
            + distances(places, in_points(panel, above))
            - above.get_linewidth() / 2
        )
        for border in seen:  # also around a corner
            length = length + STEP if border < BORDER else 0.0
            longest = max(longest, length)
    return longest


def hidden_markers(panel, below, above):
    """How many markers of a line lie under those of another one."""
    if not radius(below) or not radius(above):
        return 0
    places, others = in_points(panel, below), in_points(panel, above)
    return sum(
        bool(
            (radius(below) + numpy.linalg.norm(others - place, axis=1) - radius(above)).min()
            < BORDER
        )
        for place in places
    )


@each_panel
def test_no_line_hides_another(panel):
    for below, above in combinations(panel.get_lines(), 2):
        names = f"{below.get_label()!r} under {above.get_label()!r}"
        assert hidden_length(panel, below, above) <= LONGEST, names
        assert not hidden_markers(panel, below, above), names


@each_panel
def test_the_legend_names_each_line_and_covers_none(panel):
    names = [text.get_text() for text in panel.get_legend().get_texts()]
    assert names == [line.get_label() for line in panel.get_lines()]
    assert len(set(names)) == len(names)
    legend = panel.get_legend().get_window_extent()
    for other in panel.figure.axes:
        assert not legend.overlaps(other.get_window_extent())


@each_panel
def test_the_frame_cuts_nothing(panel):
    frame = panel.get_window_extent()
    for line in panel.get_lines():
        places = panel.transData.transform(line.get_xydata())
        room = max(radius(line), line.get_linewidth() / 2) * panel.figure.dpi / 72
        for x, y in places:
            assert frame.x0 + room <= x <= frame.x1 - room, line.get_label()
            assert frame.y0 + room <= y <= frame.y1 - room, line.get_label()


@each_panel
def test_the_numbers_at_the_axis_do_not_touch(panel):
    labels = [text.get_window_extent() for text in panel.get_xticklabels()]
    for left, right in pairwise(labels):
        assert left.x1 + 2 < right.x0


def test_the_files_are_what_the_code_draws_from_the_values_beside_them(tmp_path):
    for path in write_again(FIGURES, tmp_path):
        assert (FIGURES / path.name).read_text() == path.read_text(), "`make figures` draws it anew"


def test_a_panel_has_no_more_curves_than_styles():
    _, ((panel,),) = new_figure(4, 4, 1, 1)
    lines = [Line(str(number), [1, 2], [1, 2]) for number in range(len(STYLES) + 1)]
    with pytest.raises(ValueError, match="3 curves in a panel; allowed: up to 2"):
        draw_lines(panel, lines)
