"""Writes what is made from the register descriptions, as text that is kept in the repository.

That is `host_driver/registers.py`, `network_registers.py` and `memory_registers.py` there, and in
the descriptions the digest of what device and host share.
`python -m stagecoach.hw.interface.generate` writes all, `--check` fails if one is out of date.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, encodings, registers
from stagecoach.hw.interface.shared import digest, memory_digest, network_digest

CLASSES = {
    "command": "CommandOpcode",
    "qp_state": "DeviceQPState",
    "counter": "CounterWord",
    "network_command": "NetworkOpcode",
}
"""Names of the enumerations in Python."""

DRIVER = Path(__file__).parents[2] / "host_driver"
TARGETS = {
    RNIC: DRIVER / "registers.py",
    NETWORK: DRIVER / "network_registers.py",
    MEMORY: DRIVER / "memory_registers.py",
}

DIGESTS: dict[Path, Callable[[], int]] = {
    RNIC: digest,
    NETWORK: network_digest,
    MEMORY: memory_digest,
}

DIGEST = re.compile(r"(digest\[31:0\] = 32'h)[0-9A-F]{8};")

KINDS = """\
from typing import NamedTuple


class Field(NamedTuple):
    \"\"\"Bits `low` to `low + width - 1` of a register.\"\"\"

    low: int
    width: int


class Register(NamedTuple):
    \"\"\"A 32-bit register at byte offset `address`; `constant` if it never changes.\"\"\"

    address: int
    fields: dict[str, Field]
    constant: int | None = None

    def pack(self, **values: int) -> int:
        \"\"\"The register value of the named fields; `ValueError` if one does not fit.\"\"\"
        word = 0
        for name, value in values.items():
            field = self.fields[name]
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"field {name} is {value}; allowed: 0 to {(1 << field.width) - 1}")
            word |= value << field.low
        return word

    def unpack(self, word: int) -> dict[str, int]:
        \"\"\"The fields of a register value.\"\"\"
        return {
            name: word >> field.low & ((1 << field.width) - 1)
            for name, field in self.fields.items()
        }


"""
"""Classes of the driver, in its first file."""


def description(source: Path = RNIC) -> str:
    """The text of a description with the digest that it should have."""
    text, found = DIGEST.subn(rf"\g<1>{DIGESTS[source]():08X};", source.read_text())
    if found != 1:
        raise ValueError(f"{source.name} has {found} digests; allowed: 1")
    return text


def driver_registers(source: Path = RNIC) -> str:
    """The text of the driver's file of a description."""
    lines = [
        f'"""Register addresses and fields, made from hw/interface/{source.name} by',
        "`python -m stagecoach.hw.interface.generate`. Do not edit.",
        '"""',
        "",
    ]
    if encodings(source):
        lines.append("from enum import IntEnum")
    if source == RNIC:
        lines += KINDS.splitlines()
    else:
        lines += [""] if encodings(source) else []
        lines += ["from stagecoach.host_driver.registers import Field, Register", ""]
    for register in registers(source):
        lines.append(f"{register.name} = Register(")
        lines.append(f"    0x{register.address:03X},")
        lines.append("    {")
        for field in register.fields:
            lines.append(f'        "{field.name}": Field({field.low}, {field.width}),')
        lines.append("    },")
        if register.constant is not None:
            lines.append(f"    0x{register.constant:08X},")
        lines.append(")")
    where = {
        field.encoding[0]: f"{register.name}.{field.name}"
        for register in registers(source)
        for field in register.fields
        if field.encoding
    }
    for name, members in encodings(source).items():
        lines += ["", "", f"class {CLASSES[name]}(IntEnum):", f'    """{where[name]}."""', ""]
        lines += [f"    {member} = {value}" for member, value in members.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file is out of date")
    arguments = parser.parse_args()
    for source, target in TARGETS.items():
        for path, made in ((source, description), (target, driver_registers)):
            text = made(source)
            if path.exists() and path.read_text() == text:
                continue
            if arguments.check:
                print(f"{path.name} is out of date: run python -m stagecoach.hw.interface.generate")
                return 1
            path.write_text(text)
            registers.cache_clear()  # the driver's constants come after the digest
    return 0


if __name__ == "__main__":
    sys.exit(main())
