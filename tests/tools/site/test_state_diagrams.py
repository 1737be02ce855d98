"""State diagrams of the site: every state and step of the Mermaid text is drawn."""

import re

import pytest
from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.utils import new_document

from tools.site.state_diagrams import draw, draw_all, lanes, read

TEXT = """stateDiagram-v2
    state "IDLE" as s0
    state "BUSY" as s1
    state "END" as s2
    [*] --> s1
    s0 --> s1
    s1 --> s1
    s1 --> s2
    s0 --> s2
    s2 --> s0"""


def test_states_and_steps_are_read():
    assert read(TEXT) == (["IDLE", "BUSY", "END"], [(0, 1), (1, 2), (0, 2), (2, 0)], 1)
    with pytest.raises(ValueError, match="allowed: stateDiagram-v2"):
        read("flowchart LR\n    A --> B")


def test_steps_that_overlap_have_lines_of_their_own():
    found = lanes([(0, 4), (1, 3), (3, 5), (5, 7)])
    assert found[1, 3] == found[3, 5] == found[5, 7] == 0  # they only touch
    assert found[0, 4] == 1


def test_every_state_and_step_is_drawn():
    drawn = draw(TEXT)
    assert re.findall(r">(\w+)</text>", drawn) == ["IDLE", "BUSY", "END"]
    assert drawn.count('marker-end="url(#head)"') == 5  # four steps, and where it begins


def test_a_block_of_a_page_becomes_a_picture():
    page = new_document("page", get_default_settings())
    page += nodes.literal_block(TEXT, TEXT, language="mermaid")
    page += nodes.literal_block("text", "text", language="text")
    draw_all(None, page)
    assert page[0].astext().startswith("<svg ") and isinstance(page[0], nodes.raw)
    assert page[1].astext() == "text"
