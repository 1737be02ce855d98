"""The register description, and what is made from it."""

import subprocess
import sys
from dataclasses import replace

import pytest

from stagecoach.host_driver import memory_registers, network_registers
from stagecoach.host_driver import registers as driver
from stagecoach.hw.interface import shared
from stagecoach.hw.interface.generate import TARGETS, description, driver_registers
from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, registers
from stagecoach.hw.interface.shared import ENTRIES, digest, memory_digest, network_digest

DRIVERS = {RNIC: driver, NETWORK: network_registers, MEMORY: memory_registers}

each_description = pytest.mark.parametrize("source", list(TARGETS), ids=lambda path: path.stem)


@each_description
def test_generated_files_are_fresh(source):
    assert TARGETS[source].read_text() == driver_registers(source)
    assert source.read_text() == description(source)


def test_the_digest_is_of_places_and_values_and_not_of_words(monkeypatch):
    assert digest() == driver.INTERFACE.constant
    assert network_digest() == network_registers.NETWORK_INTERFACE.constant
    assert memory_digest() == memory_registers.MEMORY_INTERFACE.constant
    known = registers()

    def changed(register, **changes):
        fields = (replace(register.fields[0], **changes), *register.fields[1:])
        others = [one for one in known if one is not register]
        monkeypatch.setattr(
            shared, "registers", lambda source: (replace(register, fields=fields), *others)
        )
        return digest()

    first = known[0]
    plain = changed(first)
    assert plain == digest()
    assert changed(first, reset=first.fields[0].reset ^ 1) == plain
    for change in ({"low": 1}, {"width": 5}, {"name": "other"}, {"writable": True}):
        assert changed(first, **change) != plain
    monkeypatch.undo()
    words = {
        name: tuple(field._replace(about="") for field in fields)
        for name, fields in ENTRIES.items()
    }
    monkeypatch.setattr(shared, "ENTRIES", words)
    assert digest() == driver.INTERFACE.constant
    monkeypatch.setitem(words, "element", tuple(reversed(words["element"])))
    assert digest() != driver.INTERFACE.constant


@each_description
def test_generated_file_is_formatted(source):
    name = TARGETS[source].name
    check = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", "--stdin-filename", name, "-"],
        input=driver_registers(source),
        text=True,
        capture_output=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr + check.stdout


@each_description
def test_driver_knows_every_register_and_field(source):
    for register in registers(source):
        made = getattr(DRIVERS[source], register.name)
        assert made.address == register.address
        assert {name: tuple(field) for name, field in made.fields.items()} == {
            field.name: (field.low, field.width) for field in register.fields
        }


def test_fields_of_a_register_do_not_overlap_and_addresses_are_aligned():
    found = [register for source in TARGETS for register in registers(source)]
    addresses = [register.address for register in found]
    assert len(set(addresses)) == len(addresses)
    for register in found:
        assert register.address % 4 == 0
        used = 0
        for field in register.fields:
            mask = ((1 << field.width) - 1) << field.low
            assert not used & mask, f"{register.name}.{field.name}"
            assert mask < 1 << 32
            used |= mask


def test_pack_refuses_a_value_that_does_not_fit():
    try:
        driver.QP_NUMBER.pack(qp=1 << 16)
    except ValueError as error:
        assert str(error) == "field qp is 65536; allowed: 0 to 65535"
    else:
        raise AssertionError("a value of 17 bits went into a field of 16")
