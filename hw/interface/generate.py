"""Writes what is made from the register description: `host_driver/registers.py`.

`python -m stagecoach.hw.interface.generate` writes it, `--check` fails if it is out of date.
"""

import argparse
import sys
from pathlib import Path

from stagecoach.hw.interface.registers import encodings, registers

CLASSES = {"command": "CommandOpcode", "qp_state": "DeviceQPState", "counter": "CounterWord"}
"""Names of the enumerations in Python."""

WHERE = {
    field.encoding[0]: f"{register.name}.{field.name}"
    for register in registers()
    for field in register.fields
    if field.encoding
}

TARGET = Path(__file__).parents[2] / "host_driver" / "registers.py"


def driver_registers() -> str:
    """The text of `host_driver/registers.py`."""
    lines = [
        '"""Register addresses and fields, made from hw/interface/registers.rdl by',
        "`python -m stagecoach.hw.interface.generate`. Do not edit.",
        '"""',
        "",
        "from enum import IntEnum",
        "from typing import NamedTuple",
        "",
        "",
        "class Field(NamedTuple):",
        '    """Bits `low` to `low + width - 1` of a register."""',
        "",
        "    low: int",
        "    width: int",
        "",
        "",
        "class Register(NamedTuple):",
        '    """A 32-bit register at octet offset `address`."""',
        "",
        "    address: int",
        "    fields: dict[str, Field]",
        "",
        "    def pack(self, **values: int) -> int:",
        '        """The register value of the named fields; `ValueError` if one does not fit."""',
        "        word = 0",
        "        for name, value in values.items():",
        "            field = self.fields[name]",
        "            if not 0 <= value < 1 << field.width:",
        '                raise ValueError(f"field {name} is {value}; '
        'allowed: 0 to {(1 << field.width) - 1}")',
        "            word |= value << field.low",
        "        return word",
        "",
        "    def unpack(self, word: int) -> dict[str, int]:",
        '        """The fields of a register value."""',
        "        return {",
        "            name: word >> field.low & ((1 << field.width) - 1)",
        "            for name, field in self.fields.items()",
        "        }",
        "",
        "",
    ]
    for register in registers():
        lines.append(f"{register.name} = Register(")
        lines.append(f"    0x{register.address:03X},")
        lines.append("    {")
        for field in register.fields:
            lines.append(f'        "{field.name}": Field({field.low}, {field.width}),')
        lines.append("    },")
        lines.append(")")
    for name, members in encodings().items():
        lines += ["", "", f"class {CLASSES[name]}(IntEnum):", f'    """{WHERE[name]}."""', ""]
        lines += [f"    {member} = {value}" for member, value in members.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date")
    arguments = parser.parse_args()
    text = driver_registers()
    if arguments.check:
        if TARGET.read_text() != text:
            print(f"{TARGET.name} is out of date: run python -m stagecoach.hw.interface.generate")
            return 1
        return 0
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
