"""docs/board.md tells the sizes that the flow finds."""

import re
from pathlib import Path

import pytest

from stagecoach.hw.boards.sizes import CELLS, sizes

PAGE = Path(__file__).parents[3] / "docs" / "board.md"


@pytest.mark.slow
def test_the_table_of_sizes():
    header, rows = re.search(
        r"^\| core \|(.*)\n\|-.*\n((?:\|.*\n)+)", PAGE.read_text(), re.M
    ).groups()
    assert tuple(cell.strip() for cell in header.split("|")[:-1]) == CELLS
    told = {}
    for row in rows.splitlines():
        name, *counts = (cell.strip() for cell in row.strip("|").split("|"))
        told[name] = dict(
            zip(CELLS, (int(count.replace(",", "")) for count in counts), strict=True)
        )
    assert told == sizes()
