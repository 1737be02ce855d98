"""The lists of normative statements in the reference."""

import pytest

from tools.site.conformance import FOLDER, statements

LISTS = ["requirements.csv", "rfc8166.csv", "tcp.csv"]


def test_every_list_is_in_the_reference():
    page = (FOLDER.parents[1] / "docs" / "reference" / "conformance.rst").read_text()
    assert sorted(LISTS) == sorted(path.name for path in FOLDER.glob("*.csv"))
    assert all(f".. conformance:: {name}\n" in page for name in LISTS)


@pytest.mark.parametrize("name", LISTS)
def test_every_statement_is_shown_once_under_its_document(name):
    found = statements(name)
    numbers = [row["id"] for rows in found.values() for row in rows]
    assert len(numbers) == len(set(numbers)) == len((FOLDER / name).read_text().splitlines()) - 1
    assert all(row["spec"] == document for document, rows in found.items() for row in rows)
