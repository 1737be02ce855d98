"""The transmitter asks for the words of a send entry in which its fields stand."""

import pytest

from stagecoach.gateware.rdmap.transmit import entry as words
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS, SendOpcode, send_units
from stagecoach.sim.cosim.streams import pack, seeded_random, unpack
from tests.rdmap.transmit.bench import Element, Entry


def test_every_field_stands_where_it_is_asked_for():
    rng = seeded_random()
    elements = [
        Element(rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(32))
        for _ in range(SCATTER_GATHER_ELEMENTS)
    ]
    entry = Entry(
        SendOpcode.ATOMIC,
        elements,
        remote_stag=rng.getrandbits(32),
        remote_tagged_offset=rng.getrandbits(64),
        flags=rng.getrandbits(8),
        length=rng.getrandbits(32),
        immediate_data=rng.randbytes(8),
        operands=tuple(rng.getrandbits(64) for _ in range(words.OPERANDS)),
    )
    stored = entry.words()
    assert len(stored) == words.SEND_ENTRY_WORDS
    assert unpack(words.OPERATION, stored[words.OPERATION_ADDRESS]) == {
        "opcode": entry.opcode,
        "flags": entry.flags,
        "element_count": len(elements),
        "atomic_operation": entry.operation,
        "length": entry.length,
    }
    assert stored[words.REMOTE_STAG_ADDRESS] % 2**32 == entry.remote_stag
    assert stored[words.REMOTE_OFFSET_ADDRESS] == entry.remote_tagged_offset
    immediate = stored[words.IMMEDIATE_DATA_ADDRESS].to_bytes(8, "little")
    assert immediate == entry.immediate_data
    assert tuple(stored[words.OPERANDS_ADDRESS :]) == entry.operands
    for number, element in enumerate(elements):
        assert stored[words.element_offset_address(number)] == element.tagged_offset
        of_range = unpack(words.ELEMENT_RANGE, stored[words.element_range_address(number)])
        assert of_range == {"length": element.length, "stag": element.stag}


@pytest.mark.parametrize("opcode", SendOpcode)
def test_a_second_unit_is_for_more_elements_and_for_operands(opcode):
    for count in range(SCATTER_GATHER_ELEMENTS + 1):
        operation = words.OPERATION.from_bits(
            pack(words.OPERATION, opcode=opcode, element_count=count)
        )
        assert 1 + words.takes_two_units(operation) == send_units(opcode, count)
