"""The register descriptions, `registers.rdl`, `network.rdl`, `memory.rdl`, as plain Python."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from systemrdl import RDLCompiler
from systemrdl.node import FieldNode, RegNode

RNIC = Path(__file__).with_name("registers.rdl")
NETWORK = Path(__file__).with_name("network.rdl")
"""What a device with a network of its own has beside those of the RNIC."""
MEMORY = Path(__file__).with_name("memory.rdl")
"""What a board's device with a memory of its own has beside those."""


@dataclass(frozen=True)
class Field:
    """A field: bits `low` to `low + width - 1` of its register.

    `readable` and `writable` are the host's access; `driven` if the device supplies the value;
    `clear_on_one` if writing 1 clears; `message` if a write is handed over (SystemRDL `swmod`).
    `encoding` names its values, (enumeration, ((name, value, words), ...)), if it has names.
    """

    name: str
    low: int
    width: int
    reset: int
    readable: bool
    writable: bool
    driven: bool
    clear_on_one: bool
    message: bool
    encoding: tuple[str, tuple[tuple[str, int, str], ...]] | None = None


@dataclass(frozen=True)
class Register:
    """A 32-bit register at byte offset `address`."""

    name: str
    address: int
    fields: tuple[Field, ...]

    @property
    def constant(self) -> int | None:
        """What the host always reads, if neither it nor the device changes it."""
        if any(field.driven or field.writable for field in self.fields):
            return None
        return sum(field.reset << field.low for field in self.fields)


def _field(node: FieldNode) -> Field:
    return Field(
        name=node.inst_name,
        low=node.low,
        width=node.width,
        reset=int(node.get_property("reset") or 0),
        readable=node.is_sw_readable,
        writable=node.is_sw_writable,
        driven=node.is_hw_writable,
        clear_on_one=str(node.get_property("onwrite")).endswith("woclr"),
        message=bool(node.get_property("swmod")),
        encoding=_encoding(node),
    )


def _encoding(node: FieldNode) -> tuple[str, tuple[tuple[str, int, str], ...]] | None:
    enum = node.get_property("encode")
    if enum is None:
        return None
    members = ((one.name, int(one.value), one.rdl_desc or "") for one in enum)
    return str(enum.type_name), tuple(members)


def encodings(source: Path = RNIC) -> dict[str, dict[str, int]]:
    """The enumerations of a description: names in upper case with their values."""
    fields = (field for register in registers(source) for field in register.fields)
    named = (field.encoding for field in fields if field.encoding)
    return {name: {member.upper(): value for member, value, _ in of} for name, of in named}


@cache
def registers(source: Path = RNIC) -> tuple[Register, ...]:
    """All registers of a description in address order."""
    compiler = RDLCompiler()
    compiler.compile_file(str(source))
    top = compiler.elaborate().top
    found = [
        Register(
            node.inst_name,
            node.absolute_address,
            tuple(_field(f) for f in node.fields()),
        )
        for node in top.descendants()
        if isinstance(node, RegNode)
    ]
    return tuple(sorted(found, key=lambda register: register.address))


def field_width(register: str, field: str, source: Path = RNIC) -> int:
    """Bits of a field; `KeyError` if there is none of that name."""
    widths = {(one.name, of.name): of.width for one in registers(source) for of in one.fields}
    return widths[register, field]
