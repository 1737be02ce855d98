"""The directives `registers` and `queue-entries`: tables of what device and program share.

With `:network:` they are those of the network of a NIC; `registers` with `:memory:`, those of a
board's memory. They are made from hw/interface. PeakRDL's
pages say the same of the registers, but read their parts with `fetch`, which a browser does only
from a server.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from systemrdl import RDLCompiler
from systemrdl.node import FieldNode, RegNode

from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.queue_entries import offset_of, size_of
from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC
from stagecoach.hw.interface.shared import ENTRIES, ENUMS, NETWORK_ENTRIES, NETWORK_ENUMS


def _escape(words: str) -> str:
    return re.sub(r"([*_|\\])", r"\\\1", " ".join(words.split()))


def _heading(title: str) -> Iterator[str]:
    yield from (title, "-" * len(title), "")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "")
    for row in (heads, *rows):
        for index, cell in enumerate(row):
            yield f"   {'-' if index else '* -'} {cell}".replace("   - ", "     - ")
    yield ""


def _field_row(field: FieldNode) -> tuple[str, ...]:
    high, low = field.high, field.low
    access = "r" * field.is_sw_readable + "w" * field.is_sw_writable
    reset = field.get_property("reset")
    words = [field.get_property("desc") or ""]
    for value in field.get_property("encode") or ():
        words.append(f"{value.value}: {value.name}. {value.rdl_desc or ''}")
    return (
        str(low) if low == high else f"{high}:{low}",
        f"``{field.inst_name}``",
        access,
        "" if reset is None else f"{int(reset):#x}",
        _escape(" ".join(words)),
    )


def register_tables(source: Path = RNIC) -> list[str]:
    """The registers of a description in reStructuredText, a section for each."""
    compiler = RDLCompiler()
    compiler.compile_file(str(source))
    found = [node for node in compiler.elaborate().top.descendants() if isinstance(node, RegNode)]
    lines: list[str] = []
    for node in sorted(found, key=lambda register: register.absolute_address):
        lines += _heading(f"{_escape(node.inst_name)} at {node.absolute_address:#05x}")
        lines += [_escape(node.get_property("desc") or ""), ""]
        heads = ("bits", "field", "access", "reset", "meaning")
        lines += _table(heads, (_field_row(field) for field in node.fields()))
    return lines


def entry_tables(*, network: bool = False) -> list[str]:
    """Queue entries and their enumerations in reStructuredText, a section for each."""
    entries, enums = (NETWORK_ENTRIES, NETWORK_ENUMS) if network else (ENTRIES, ENUMS)
    lines: list[str] = []
    for name, fields in entries.items():
        lines += _heading(f"{name.replace('_', ' ').capitalize()}, {size_of(fields)} bytes")
        rows = (
            (
                str(offset_of(fields, one.name)),
                str(one.octets),
                f"``{one.name}``",
                _escape(one.about),
            )
            for one in fields
        )
        lines += _table(("offset", "bytes", "field", "meaning"), rows)
    for kind in enums.values():
        lines += _heading(kind.__name__)
        lines += [(kind.__doc__ or "").split("\n\n")[0], ""]
        named = (
            (
                str(one.value),
                f"``{one.name}``",
                _escape(CODES[one][1] if isinstance(one, Cause) else ""),
            )
            for one in kind
        )
        lines += _table(("value", "name", "meaning"), named)
    return lines


class Registers(SphinxDirective):
    """`.. registers::`."""

    option_spec: ClassVar = {"network": directives.flag, "memory": directives.flag}

    def run(self) -> list[nodes.Node]:
        """The sections."""
        sources = {"network": NETWORK, "memory": MEMORY}
        source = next((sources[name] for name in self.options), RNIC)
        text = "\n".join(register_tables(source))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class QueueEntries(SphinxDirective):
    """`.. queue-entries::`."""

    option_spec: ClassVar = {"network": directives.flag}

    def run(self) -> list[nodes.Node]:
        """The sections."""
        text = "\n".join(entry_tables(network="network" in self.options))
        return self.parse_text_to_nodes(text, allow_section_headings=True)
