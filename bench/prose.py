"""Text of pages that are written by a command."""

import textwrap

COLUMNS = 100


def paragraph(*sentences: str) -> list[str]:
    """The lines of a paragraph."""
    return textwrap.wrap(" ".join(sentences), COLUMNS, break_on_hyphens=False)
