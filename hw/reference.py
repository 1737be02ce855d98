"""What programs and readers outside get of the host interface, made from its descriptions.

`python -m stagecoach.hw.reference` (`make docs`) writes to `build/docs`:

* `registers/index.html`, `network_registers/index.html`, `memory_registers/index.html`: the
  registers of the RNIC, those that a NIC has beside them, those of a board's memory, by PeakRDL;
* `queue_entries.html`: entries of rings, their enumerations and the causes of errors;
* `stagecoach_registers.h`, `stagecoach_network.h`, `stagecoach_memory.h`, `stagecoach_entries.h`:
  the same for C and C++;
* `stagecoach_llp.vh`: the kinds of events of the LLP port for Verilog.
"""

import argparse
import html
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from stagecoach.hw.interface import queue_entries
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.hw.interface.queue_entries import (
    SCATTER_GATHER_ELEMENTS,
    Field,
    offset_of,
    size_of,
)
from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, registers
from stagecoach.hw.interface.shared import (
    ELEMENT,
    ENTRIES,
    ENUMS,
    NETWORK_ENTRIES,
    NETWORK_ENUMS,
)

TARGET = Path("build") / "docs"
REGISTER_HEADER = "stagecoach_registers.h"
ENTRY_HEADER = "stagecoach_entries.h"
LLP_HEADER = "stagecoach_llp.vh"
ENTRY_PAGE = "queue_entries.html"
REGISTER_PAGE = Path("registers") / "index.html"
NETWORK_HEADER = "stagecoach_network.h"
NETWORK_PAGE = Path("network_registers") / "index.html"
MEMORY_HEADER = "stagecoach_memory.h"
MEMORY_PAGE = Path("memory_registers") / "index.html"

DESCRIPTIONS = {
    RNIC: (REGISTER_HEADER, REGISTER_PAGE),
    NETWORK: (NETWORK_HEADER, NETWORK_PAGE),
    MEMORY: (MEMORY_HEADER, MEMORY_PAGE),
}
"""Header and page of each register description."""

ALL_ENTRIES = ENTRIES | NETWORK_ENTRIES
ALL_ENUMS = ENUMS | NETWORK_ENUMS

_MATHJAX = re.compile(r"<script[^>]*(?:mathjax).*?</script>\s*", re.DOTALL | re.IGNORECASE)
_TYPES = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


class ToolFailure(RuntimeError):
    """A tool failed; the message has what it said."""


def _member(field: Field) -> str:
    if field.name == "elements":
        return f"struct stagecoach_{ELEMENT} elements[{SCATTER_GATHER_ELEMENTS}]"
    if field.octets in _TYPES:
        return f"{_TYPES[field.octets]} {field.name}"
    return f"uint8_t {field.name}[{field.octets}]"


def entry_header() -> str:
    """The C header of the queue entries: structures, their enumerations, the causes."""
    guard = ENTRY_HEADER.upper().replace(".", "_")
    lines = [
        "/* Queue entries of the Stagecoach RNIC and NIC, and the values of register fields, made",
        " * from hw/interface. All fields are little endian. Registers: stagecoach_registers.h,",
        " * stagecoach_network.h. */",
        "",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <assert.h>",
        "#include <stdint.h>",
    ]
    for name, kind in ALL_ENUMS.items():
        lines += ["", f"enum stagecoach_{name} {{"]
        for member in kind:
            about = f" /* {CODES[member][1]} */" if isinstance(member, Cause) else ""
            lines.append(f"    STAGECOACH_{name.upper()}_{member.name} = {member.value},{about}")
        lines.append("};")
    for register in (*registers(RNIC), *registers(NETWORK)):
        for one in register.fields:
            if one.encoding is None:
                continue
            name, values = one.encoding
            lines += ["", f"/* {register.name}.{one.name} */", f"enum stagecoach_{name} {{"]
            for value_name, value, about in values:
                member_name = f"STAGECOACH_{name}_{value_name}".upper()
                lines.append(f"    {member_name} = {value}, /* {about} */")
            lines.append("};")
    lines += ["", f"#define STAGECOACH_SEND_UNIT_OCTETS {queue_entries.SEND_UNIT_OCTETS}"]
    lines.append(f"#define STAGECOACH_SEND_UNIT_ELEMENTS {queue_entries.SEND_UNIT_ELEMENTS}")
    for name, fields in ALL_ENTRIES.items():
        lines += ["", f"struct stagecoach_{name} {{"]
        for field in fields:
            about = f" /* {field.about} */" if field.about else ""
            lines.append(f"    {_member(field)};{about}")
        lines.append("};")
        size = size_of(fields)
        lines.append(f'static_assert(sizeof(struct stagecoach_{name}) == {size}, "{size} bytes");')
    lines += ["", "#endif", ""]
    return "\n".join(lines)


def llp_header() -> str:
    """The Verilog header of the LLP port: what its events say."""
    lines = [
        "// Events of the LLP port, made from hw/interface/llp.py.",
        "/* verilator lint_save */",
        "/* verilator lint_off UNUSEDPARAM */",
    ]
    bits = max(LlpEventKind).bit_length()
    for kind in LlpEventKind:
        lines.append(f"localparam [{bits - 1}:0] LLP_{kind.name} = {bits}'d{kind.value};")
    return "\n".join([*lines, "/* verilator lint_restore */", ""])


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(one)}</td>" for one in cells) + "</tr>"


def entry_page() -> str:
    """The HTML page of the queue entries."""
    body = ["<h1>Queue entries of the Stagecoach RNIC and NIC</h1>"]
    pages = ", ".join(
        f'<a href="{page.as_posix()}">{page.as_posix()}</a>' for _, page in DESCRIPTIONS.values()
    )
    body.append(
        "<p>Entries stand in rings in host memory; all fields are little endian. Registers: "
        f"{pages}.</p>"
    )
    for name, fields in ALL_ENTRIES.items():
        title = "scatter/gather element" if name == ELEMENT else name.replace("_", " ")
        body.append(f'<h2 id="{name}">{title.capitalize()}, {size_of(fields)} bytes</h2>')
        body.append("<table><tr><th>offset</th><th>bytes</th><th>field</th><th></th></tr>")
        for field in fields:
            offset = offset_of(fields, field.name)
            body.append(_row(str(offset), str(field.octets), field.name, field.about))
        body.append("</table>")
    for name, kind in ALL_ENUMS.items():
        about = (kind.__doc__ or "").split("\n\n")[0]
        body.append(f'<h2 id="{name}">{kind.__name__}</h2><p>{html.escape(about)}</p>')
        body.append("<table><tr><th>value</th><th>name</th><th></th></tr>")
        for member in kind:
            words = CODES[member][1] if isinstance(member, Cause) else ""
            body.append(_row(str(member.value), str(member.name), words))
        body.append("</table>")
    style = (
        "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .6em;"
        "text-align:left;vertical-align:top}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Queue entries</title><style>{style}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _peakrdl(*arguments: str) -> None:
    program = Path(sysconfig.get_path("scripts")) / "peakrdl"
    if not program.exists():
        raise ToolFailure("peakrdl is not installed; run: pip install 'stagecoach[docs]'")
    result = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise ToolFailure(f"peakrdl {arguments[0]} failed:\n{result.stdout}{result.stderr}")


def write_headers(folder: Path) -> None:
    """Writes the headers of C and Verilog."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, (header, _) in DESCRIPTIONS.items():
        _peakrdl("c-header", str(source), "-o", str(folder / header))
    (folder / ENTRY_HEADER).write_text(entry_header())
    (folder / LLP_HEADER).write_text(llp_header())


def write_reference(folder: Path) -> None:
    """Writes everything."""
    write_headers(folder)
    for source, (_, name) in DESCRIPTIONS.items():
        page = folder / name
        _peakrdl("html", str(source), "-o", str(page.parent))
        # No description has formulas; with this the page would ask another host for MathJax.
        page.write_text(_MATHJAX.sub("", page.read_text()))
    (folder / ENTRY_PAGE).write_text(entry_page())


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.hw.reference", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=TARGET, help="%(default)s")
    folder = parser.parse_args().output
    try:
        write_reference(folder)
    except ToolFailure as failure:
        print(f"{parser.prog}: {failure}", file=sys.stderr)
        return 1
    made = [name for names in DESCRIPTIONS.values() for name in names]
    for name in (*made, ENTRY_PAGE, ENTRY_HEADER, LLP_HEADER):
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
