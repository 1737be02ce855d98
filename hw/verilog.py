"""The device as one self-contained Verilog file, for designs of others.

`stagecoach verilog QPS=8 STAGS=64` (`make verilog`) takes the sizes of `RnicConfig` by name; those
that are not named have their defaults.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.cached_verilog import TOP, export_verilog

MODULE = "stagecoach_rnic"
"""Name of the top module; all others in the file have names that begin with it and a dot."""

TARGET = Path("build") / "verilog" / f"{MODULE}.v"

LINT_OFF = (
    ("DECLFILENAME", "one file holds all modules"),
    ("UNUSEDSIGNAL", "a struct is one vector, and not every block uses all of its fields"),
    ("WIDTHEXPAND", "Yosys leaves it to the rules of Verilog to extend operands with zeros,"),
    ("WIDTHTRUNC", "and a number to its truth value; Amaranth has made all widths explicit"),
    ("PROCASSINIT", "the value of a register before its reset"),
    ("CASEINCOMPLETE", "every variable has its default before the case statement"),
    ("UNSIGNED", "comparisons with a bound that the sizes of this device make constant"),
    ("CMPCONST", "the same"),
    ("VARHIDDEN", "instances are named as signals inside of them, in other modules"),
    ("ASCRANGE", "a vector [-1:0] is one without bits: the address of a memory of one word"),
    ("INITIALDLY", "lets each process run at time 0, also if none of its inputs ever changes"),
)
"""Warnings of Verilator that say nothing about this file, and why."""

NOTICE = """\
// Stagecoach: an iWARP RNIC. BSD-2-Clause. Made by `make verilog`; do not edit.
//
// {sizes}
//
// Ports, clock, reset and the rules of the three ports: docs/integration.md.
"""


class SizeError(ValueError):
    """A size that is unknown or not allowed; the message says what is."""


def device_verilog(config: RnicConfig) -> str:
    """The Verilog of the whole device with the top module `MODULE`; it depends on nothing else."""
    text = export_verilog(config)
    text = re.sub(rf"^module {TOP}\(", f"module {MODULE}(", text, flags=re.MULTILINE)
    text = text.replace(rf"\{TOP}.", rf"\{MODULE}.")
    sizes = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(config).items())
    width = max(len(name) for name, _ in LINT_OFF)
    pragmas = "\n".join(
        f"/* verilator lint_off {name} */{' ' * (width - len(name))} // {why}"
        for name, why in LINT_OFF
    )
    return "\n".join(
        [
            NOTICE.format(sizes=sizes),
            "/* verilator lint_save */",
            pragmas,
            start_processes(text),
            "/* verilator lint_restore */\n",
        ]
    )


def start_processes(verilog_text: str) -> str:
    """Make every `always @*` run at time 0, also if none of its inputs ever changes.

    Yosys lets nearly all of them read a variable with an initial value. In Verilog-2005 that is an
    assignment at time 0; in SystemVerilog, which cocotb's runner and its waveforms need, the
    variable has its value before any process waits for it. `always_comb` is no way out: Icarus
    11.0 may run such processes for ever (https://github.com/steveicarus/iverilog/issues/508).
    """
    text, variables = re.subn(
        r"^  reg (\\\$auto\$verilog_backend\S+)  = 0;$",
        r"  reg \1 ; initial \1 <= 0;",
        verilog_text,
        flags=re.MULTILINE,
    )
    if "always @* begin" in text and not variables:
        raise RuntimeError("Yosys has written processes without a variable that starts them")
    # Processes of one assignment get no variable from Yosys.
    text, single = re.subn(
        r"^  always @\*\n    (\S.*;)$",
        r"  always @* begin\n    if (_start) begin end\n    \1\n  end",
        text,
        flags=re.MULTILINE,
    )
    if single:
        declaration = r"\1\n  reg _start; initial _start <= 0;"
        text = re.sub(r"^(module [^;]*;)$", declaration, text, flags=re.MULTILINE)
    return text


def parse_sizes(arguments: Sequence[str]) -> RnicConfig:
    """The configuration of arguments such as `QPS=8`; `SizeError` names what is wrong."""
    names = [field.name for field in dataclasses.fields(RnicConfig)]
    sizes: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.lower() not in names or not equals:
            allowed = ", ".join(f"{known.upper()}=" for known in names)
            raise SizeError(f"{argument!r} is not a size of the device; allowed: {allowed}")
        try:
            sizes[name.lower()] = int(value, 0)
        except ValueError:
            raise SizeError(f"{name} is {value!r}; allowed: a whole number") from None
    try:
        return RnicConfig(**sizes)
    except ValueError as error:
        raise SizeError(str(error)) from None


def write_verilog(config: RnicConfig, output: Path) -> int:
    """Writes the device to a file, says so, and returns the exit status of the command."""
    text = device_verilog(config)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text)
    print(f"{output}: module {MODULE}, {len(text.splitlines()):,} lines")
    return 0
