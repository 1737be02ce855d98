"""The directive `conformance`: the statements of the RFCs in a list of tests/conformance."""

import csv
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[2] / "tests" / "conformance"

_COLUMNS = {"id": 20, "section": 10, "level": 10, "requirement": 60}
"""Those that are shown, with their widths."""


def statements(name: str) -> dict[str, list[dict[str, str]]]:
    """The rows of a list by their document, in the order of the list."""
    found: dict[str, list[dict[str, str]]] = {}
    with (FOLDER / name).open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["spec"], []).append(row)
    return found


class Conformance(SphinxDirective):
    """`.. conformance:: LIST.csv`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A section with a table for each document."""
        (name,) = self.arguments
        self.env.note_dependency(str(FOLDER / name))
        shown: list[nodes.Node] = []
        for document, rows in statements(name).items():
            section = nodes.section(ids=[nodes.make_id(f"conformance-{document}")])
            section += nodes.title("", f"{document}: {len(rows)} statements")
            section += _table(rows)
            shown.append(section)
        return shown


def _table(rows: list[dict[str, str]]) -> nodes.table:
    group = nodes.tgroup(cols=len(_COLUMNS))
    group += [nodes.colspec(colwidth=width) for width in _COLUMNS.values()]
    head, body = nodes.thead(), nodes.tbody()
    head += _row({name: name for name in _COLUMNS})
    body += [_row(row) for row in rows]
    group += [head, body]
    return nodes.table("", group)


def _row(row: dict[str, str]) -> nodes.row:
    # Text as it is: the lists have no markup.
    cells = [nodes.entry("", nodes.paragraph("", row[name])) for name in _COLUMNS]
    return nodes.row("", *cells)
