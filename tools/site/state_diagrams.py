"""State diagrams as pictures: a browser of the repository draws their Mermaid text, the site this.

States stand in a column in the order of the text. Steps down are at their right, steps up at their
left; steps that overlap have lines of their own.
"""

import re
from collections.abc import Iterable

from docutils import nodes
from sphinx.application import Sphinx

from tools.figures.svg import INK, TRANSMIT, Drawing, width_of

_STATE = re.compile(r'^ *state "([^"]+)" as (\w+)$', re.MULTILINE)
_STEP = re.compile(r"^ *(\S+) --> (\S+)$", re.MULTILINE)
_HEADING = "stateDiagram-v2\n"
_PITCH, _HEIGHT, _LANE, _EDGE = 44, 26, 16, 24

Step = tuple[int, int]
"""From which state to which, by their numbers."""


def read(text: str) -> tuple[list[str], list[Step], int]:
    """The states, the steps between two of them, and the first state.

    Raises `ValueError` for any other diagram.
    """
    if not text.startswith(_HEADING):
        raise ValueError(f"a diagram {text.splitlines()[:1]}; allowed: stateDiagram-v2")
    names = {key: name for name, key in _STATE.findall(text)}
    order = list(names)
    steps = _STEP.findall(text)
    (first,) = (order.index(after) for before, after in steps if before == "[*]")
    found = [
        (order.index(before), order.index(after))
        for before, after in steps
        if before != "[*]" and before != after
    ]
    return list(names.values()), found, first


def lanes(steps: Iterable[Step]) -> dict[Step, int]:
    """A line for each step, from 0, so that no two on one line overlap; short steps are inside."""
    found: dict[Step, int] = {}
    for step in sorted(steps, key=lambda step: (abs(step[1] - step[0]), step)):
        low, high = sorted(step)
        taken = {lane for other, lane in found.items() if low < max(other) and min(other) < high}
        found[step] = next(lane for lane in range(len(taken) + 1) if lane not in taken)
    return found


def draw(text: str) -> str:
    """The diagram as SVG."""
    names, steps, first = read(text)
    down = lanes(step for step in steps if step[1] - step[0] > 1)
    up = lanes(step for step in steps if step[1] < step[0])
    width = max(width_of(name, 13) * 1.08 + 24 for name in names)
    left = _EDGE + _LANE * (max(up.values(), default=-1) + 2)
    right = left + width
    total = right + _LANE * (max(down.values(), default=-1) + 2) + _EDGE
    d = Drawing(round(total), _PITCH * len(names) + 30, "States: " + ", ".join(names))
    top = [30 + _PITCH * number for number in range(len(names))]
    for name, y in zip(names, top, strict=True):
        d.box(left, y, width, _HEIGHT, TRANSMIT, name, size=13)
    d.rectangle(left - 12, top[first] - 16, 9, 9, INK, INK, radius=5)
    d.line((left - 3, top[first] - 12), (left + 12, top[first] - 12), color=INK)
    d.arrow((left + 12, top[first] - 12), (left + 12, top[first]))
    middle = left + width / 2
    for before, after in steps:
        if after - before == 1:
            d.arrow((middle, top[before] + _HEIGHT), (middle, top[after]))
    for found, edge, way in ((down, right, 1), (up, left, -1)):
        for (before, after), lane in found.items():
            x = edge + way * _LANE * (lane + 1)
            start, end = top[before] + _HEIGHT / 2 + 5, top[after] + _HEIGHT / 2 - 5
            d.arrow((edge, start), (x, start), (x, end), (edge, end))
    return d.svg()


def draw_all(_app: Sphinx, page: nodes.document) -> None:
    """Handler of `doctree-read`."""
    for block in list(page.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            block.replace_self(nodes.raw("", draw(block.astext()), format="html"))
