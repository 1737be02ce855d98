"""Text of others on a terminal: shown as it is, whatever it means to the terminal or to rich."""

from rich.text import Text

TITLE = "table.title"
"""The style of titles of tables."""


def plain(text: object, style: str = "") -> Text:
    """What a cell or a title shows: no markup, and what cannot be printed as Python writes it."""
    return Text(printable(str(text)), style)


def printable(text: str) -> str:
    """The text with everything escaped that a terminal would obey (ESC, CR, NUL), lines kept."""
    shown = (each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)
    return "".join(shown)
