"""Docstrings of this project in the form that napoleon reads.

Here a section has one entry after another, `name: text`, and ends at the first paragraph that is no
entry. In NumPy's form, which napoleon reads, the text begins on a line of its own, and two empty
lines end a section.
"""

import re
from typing import Any

SECTIONS = ("Attributes", "Members", "Parameters", "Raises")

_NAMES = r"\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*"
_ENTRY = re.compile(rf"({_NAMES}):(?: |$)(.*)")
_DASHES = re.compile(r"(\*\*(?: \(.*\))?) -- ")
_NEXT_ENTRY = re.compile(rf"(?<=\.) (?={_NAMES}: )")


def numpy_form(lines: list[str]) -> list[str]:
    """The lines of a docstring, with its sections as NumPy has them."""
    result: list[str] = []
    inside = False
    for line in lines:
        if result and result[-1] in SECTIONS and line == "-" * len(result[-1]):
            inside = True
            result.append(line)
            continue
        for part in _NEXT_ENTRY.split(line) if inside else [line]:
            entry = _ENTRY.match(part) if inside else None
            if entry is not None:
                result += [entry[1], f"    {entry[2]}"]
                continue
            if inside and part and not part.startswith(" "):
                inside = False
                result.append("")
            result.append(part)
    return result


def convert(
    _app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """Handler of `autodoc-process-docstring`, before napoleon."""
    lines[:] = numpy_form(lines)


def draw_dashes(
    _app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """Handler of `autodoc-process-docstring`, after napoleon: its `--` becomes a dash.

    `smartquotes` of Sphinx would do so, but also in `--option`.
    """
    lines[:] = [_DASHES.sub("\\1 \N{EN DASH} ", line) for line in lines]
