"""The words of a send entry, as the transmitter asks for them."""

from amaranth.hdl import Value, ValueLike
from amaranth.lib import data

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.hw.interface.queue_entries import (
    SCATTER_GATHER_ELEMENT,
    SCATTER_GATHER_ELEMENT_OCTETS,
    SEND_ENTRY,
    SEND_ENTRY_OCTETS,
    SEND_UNIT_ELEMENTS,
    Fields,
    SendOpcode,
    offset_of,
    size_of,
)

SEND_ENTRY_WORDS = SEND_ENTRY_OCTETS // WORD_OCTETS

OPERATION_ADDRESS = 0
REMOTE_STAG_ADDRESS = offset_of(SEND_ENTRY, "remote_stag") // WORD_OCTETS
REMOTE_OFFSET_ADDRESS = offset_of(SEND_ENTRY, "remote_tagged_offset") // WORD_OCTETS
IMMEDIATE_DATA_ADDRESS = offset_of(SEND_ENTRY, "immediate_data") // WORD_OCTETS
OPERANDS = 4
"""Words with the operands of an ATOMIC."""

OPERANDS_ADDRESS = offset_of(SEND_ENTRY, "add_or_swap_data") // WORD_OCTETS
ELEMENTS_ADDRESS = offset_of(SEND_ENTRY, "elements") // WORD_OCTETS
ELEMENT_WORDS = SCATTER_GATHER_ELEMENT_OCTETS // WORD_OCTETS


def _word_layout(fields: Fields, word: int) -> data.StructLayout:
    """The fields of a queue entry that stand in one of its words."""
    first = word * WORD_OCTETS
    inside = {
        name: 8 * octets
        for name, octets, _ in fields
        if first <= offset_of(fields, name) < first + WORD_OCTETS
    }
    return data.StructLayout(inside)


OPERATION = _word_layout(SEND_ENTRY, OPERATION_ADDRESS)
"""Opcode, flags, count, AOpCode and length of a send entry."""


def takes_two_units(operation: data.View) -> Value:
    """Whether the entry with this word 0 (`OPERATION`) has a second unit; see `send_units`."""
    return (operation.element_count > SEND_UNIT_ELEMENTS) | (operation.opcode == SendOpcode.ATOMIC)


ELEMENT_OFFSET_WORD = offset_of(SCATTER_GATHER_ELEMENT, "tagged_offset") // WORD_OCTETS
ELEMENT_RANGE_WORD = offset_of(SCATTER_GATHER_ELEMENT, "length") // WORD_OCTETS

ELEMENT_RANGE = _word_layout(SCATTER_GATHER_ELEMENT, ELEMENT_RANGE_WORD)
"""Length and STag of an element."""


def element_offset_address(number: ValueLike) -> Value:
    """Address of the word with the Tagged Offset of an element."""
    return ELEMENTS_ADDRESS + ELEMENT_WORDS * number + ELEMENT_OFFSET_WORD


def element_range_address(number: ValueLike) -> Value:
    """Address of the word with length and STag of an element."""
    return ELEMENTS_ADDRESS + ELEMENT_WORDS * number + ELEMENT_RANGE_WORD


assert size_of(SEND_ENTRY) == SEND_ENTRY_OCTETS
assert size_of(SCATTER_GATHER_ELEMENT) == SCATTER_GATHER_ELEMENT_OCTETS
assert OPERATION.size == ELEMENT_RANGE.size == 8 * WORD_OCTETS
