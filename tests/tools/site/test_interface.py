"""Tables of the reference: every register, field, queue entry and value is there."""

import pytest

from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, registers
from stagecoach.hw.interface.shared import ENTRIES, ENUMS, NETWORK_ENTRIES, NETWORK_ENUMS
from tools.site.interface import entry_tables, register_tables


@pytest.mark.parametrize("source", [RNIC, NETWORK, MEMORY], ids=lambda path: path.stem)
def test_every_register_and_field_is_in_the_tables(source):
    lines = register_tables(source)
    for register in registers(source):
        name = register.name.replace("_", r"\_")
        assert f"{name} at {register.address:#05x}" in lines
    fields = [field.name for register in registers(source) for field in register.fields]
    cells = [line for line in lines if line.startswith("     - ``")]
    assert [cell.strip(" -`") for cell in cells] == fields


def test_values_of_a_field_are_told():
    (opcode,) = [line for line in register_tables() if "1: qp\\_create" in line]
    assert "9: stag\\_reset. Empties the STag table." in opcode


@pytest.mark.parametrize(
    ("network", "entries", "enums"),
    [(False, ENTRIES, ENUMS), (True, NETWORK_ENTRIES, NETWORK_ENUMS)],
)
def test_every_queue_entry_and_value_is_in_the_tables(network, entries, enums):
    text = "\n".join(entry_tables(network=network))
    for name, fields in entries.items():
        assert f"{name.replace('_', ' ').capitalize()}, " in text
        assert all(f"     - ``{field.name}``" in text for field in fields)
    for kind in enums.values():
        assert all(f"   * - {one.value}\n     - ``{one.name}``" in text for one in kind)
