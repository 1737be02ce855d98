"""Tables of the reference: every register, field, queue entry and value is there."""

from stagecoach.hw.interface.registers import registers
from stagecoach.hw.interface.shared import ENTRIES, ENUMS
from tools.site.interface import entry_tables, register_tables


def test_every_register_and_field_is_in_the_tables():
    lines = register_tables()
    for register in registers():
        name = register.name.replace("_", r"\_")
        assert f"{name} at {register.address:#05x}" in lines
    fields = [field.name for register in registers() for field in register.fields]
    cells = [line for line in lines if line.startswith("     - ``")]
    assert [cell.strip(" -`") for cell in cells] == fields


def test_values_of_a_field_are_told():
    (opcode,) = [line for line in register_tables() if "1: qp\\_create" in line]
    assert "9: stag\\_reset. Empties the STag table." in opcode


def test_every_queue_entry_and_value_is_in_the_tables():
    text = "\n".join(entry_tables())
    for name, fields in ENTRIES.items():
        assert f"{name.replace('_', ' ').capitalize()}, " in text
        assert all(f"     - ``{field.name}``" in text for field in fields)
    for kind in ENUMS.values():
        assert all(f"   * - {one.value}\n     - ``{one.name}``" in text for one in kind)
