"""Writes what is made from the register description, as text that is kept in the repository.

That is `host_driver/registers.py`, and in `registers.rdl` the digest of what device and host share.
`python -m stagecoach.hw.interface.generate` writes both, `--check` fails if one is out of date.
"""

import argparse
import re
import sys
from pathlib import Path

from stagecoach.hw.interface.registers import SOURCE, encodings, registers
from stagecoach.hw.interface.shared import digest

CLASSES = {"command": "CommandOpcode", "qp_state": "DeviceQPState", "counter": "CounterWord"}
"""Names of the enumerations in Python."""

WHERE = {
    field.encoding[0]: f"{register.name}.{field.name}"
    for register in registers()
    for field in register.fields
    if field.encoding
}

TARGET = Path(__file__).parents[2] / "host_driver" / "registers.py"


DIGEST = re.compile(r"(digest\[31:0\] = 32'h)[0-9A-F]{8};")


def description() -> str:
    """The text of `registers.rdl` with the digest that it should have."""
    text, found = DIGEST.subn(rf"\g<1>{digest():08X};", SOURCE.read_text())
    if found != 1:
        raise ValueError(f"{SOURCE.name} has {found} digests; allowed: 1")
    return text


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
        '    """A 32-bit register at octet offset `address`; `constant` if it never changes."""',
        "",
        "    address: int",
        "    fields: dict[str, Field]",
        "    constant: int | None = None",
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
        if register.constant is not None:
            lines.append(f"    0x{register.constant:08X},")
        lines.append(")")
    for name, members in encodings().items():
        lines += ["", "", f"class {CLASSES[name]}(IntEnum):", f'    """{WHERE[name]}."""', ""]
        lines += [f"    {member} = {value}" for member, value in members.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file is out of date")
    arguments = parser.parse_args()
    for path, made in ((SOURCE, description), (TARGET, driver_registers)):
        text = made()
        if path.read_text() == text:
            continue
        if arguments.check:
            print(f"{path.name} is out of date: run python -m stagecoach.hw.interface.generate")
            return 1
        path.write_text(text)
        registers.cache_clear()  # the driver's constants come after the digest
    return 0


if __name__ == "__main__":
    sys.exit(main())
