"""Sections of docstrings in the form that napoleon reads."""

from sphinx.ext.napoleon import Config, NumpyDocstring

from tools.site.docstrings import SECTIONS, draw_dashes, numpy_form

DOCSTRING = """A queue.

Parameters
----------
depth: how many items it holds,
    1 or more.
name, *others: what it is called. width: in bits; `Queue.width: ` is no entry.

Raises `ValueError` for a depth of 0.

Attributes
----------
level: items that wait

Members
-------
i:
    in
""".splitlines()


def test_entries_have_their_text_on_a_line_of_its_own():
    text = "\n".join(numpy_form(DOCSTRING))
    assert "depth\n    how many items it holds,\n    1 or more.\n" in text
    assert "level\n    items that wait\n" in text
    assert "i\n    \n    in" in text


def test_entries_on_one_line_are_parted():
    text = "\n".join(numpy_form(DOCSTRING))
    assert "name, *others\n    what it is called.\nwidth\n    in bits; `Queue.width: ` is" in text


def test_a_paragraph_ends_a_section():
    text = "\n".join(numpy_form(DOCSTRING))
    assert "\n\n\nRaises `ValueError` for a depth of 0.\n\nAttributes\n----------\n" in text


def test_what_is_in_no_section_stays():
    plain = ["First: one thing. second: another.", "", "name: text"]
    assert numpy_form(plain) == plain


def test_napoleon_reads_it():
    config = Config(napoleon_custom_sections=[(section, "params_style") for section in SECTIONS])
    made = str(NumpyDocstring(numpy_form(DOCSTRING), config, what="class"))
    assert "* **depth** -- how many items it holds,\n               1 or more." in made
    assert "\nRaises `ValueError` for a depth of 0.\n" in made
    assert ":Attributes: **level** -- items that wait" in made


def test_dashes_of_napoleon_are_drawn_and_no_others():
    lines = ["* **depth** (*int*) -- how many", "* **name** -- its name", "see `top -- COMMAND`"]
    draw_dashes(None, "class", "", None, None, lines)
    assert [line.count("\N{EN DASH}") for line in lines] == [1, 1, 0]
    assert lines[2] == "see `top -- COMMAND`"
