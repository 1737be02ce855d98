"""The tables of latencies in docs/timing.md add up to what the bench has measured."""

import re
from itertools import accumulate
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "timing.md").read_text()
MEASURED = dict(
    re.findall(r"^\| `(latency_\w+)` \| (\d+) \|", (ROOT / "docs/performance.md").read_text(), re.M)
)
TABLES = dict(re.findall(r"^`(latency_\w+)`[^|]*\n\n((?:\|.*\n)+)", TEXT, re.M))


def rows(figure: str) -> list[tuple[int, int, str]]:
    """Cycles, the last of them, and the block of each row."""
    cells = [line.split("|")[1:4] for line in TABLES[figure].splitlines()[2:]]
    return [(int(cycles), int(until), block.strip()) for cycles, until, block in cells]


def test_every_latency_has_its_table():
    assert TABLES.keys() == MEASURED.keys()


@pytest.mark.parametrize("figure", sorted(TABLES))
def test_cycles_add_up_to_the_measured_latency(figure):
    cycles, until, _ = zip(*rows(figure), strict=True)
    assert list(until) == list(accumulate(cycles))
    assert until[-1] == int(MEASURED[figure])


@pytest.mark.parametrize("figure", sorted(TABLES))
def test_blocks_are_files_of_the_gateware(figure):
    blocks = {block for _, _, block in rows(figure)} - {"host memory"}
    assert [block for block in blocks if not (ROOT / "gateware" / block.strip("`")).is_file()] == []
