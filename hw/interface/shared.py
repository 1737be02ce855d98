"""All that device and host share, and one number for it."""

import hashlib
import json
from enum import IntEnum, IntFlag

from stagecoach.hw.interface import queue_entries
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import Fields
from stagecoach.hw.interface.registers import Field, encodings, registers

ELEMENT = "element"
ENTRIES: dict[str, Fields] = {
    ELEMENT: queue_entries.SCATTER_GATHER_ELEMENT,
    "send_entry": queue_entries.SEND_ENTRY,
    "receive_entry": queue_entries.RECEIVE_ENTRY,
    "completion_entry": queue_entries.COMPLETION_ENTRY,
    "event_entry": queue_entries.EVENT_ENTRY,
}
"""Layouts by their name in C."""

ENUMS: dict[str, type[IntEnum] | type[IntFlag]] = {
    "send_opcode": queue_entries.SendOpcode,
    "atomic_operation": queue_entries.AtomicOperation,
    "send_flags": queue_entries.SendFlags,
    "completion_opcode": queue_entries.CompletionOpcode,
    "completion_flags": queue_entries.CompletionFlags,
    "rights": queue_entries.Rights,
    "cause": Cause,
}
"""Enumerations of their fields by their name in C."""


def _place(field: Field) -> tuple[str | int, ...]:
    access = field.readable, field.writable, field.clear_on_one, field.message
    return field.name, field.low, field.width, *access


def digest() -> int:
    """First 32 bits of the SHA-256 of names, places, accesses and values.

    Words count for nothing, nor what constant registers hold.
    """
    shared = {
        "registers": [
            (register.name, register.address, [_place(field) for field in register.fields])
            for register in registers()
        ],
        "encodings": encodings(),
        "entries": {
            name: [(field.name, field.octets) for field in fields]
            for name, fields in ENTRIES.items()
        },
        "enums": {
            name: {str(member.name): int(member) for member in kind} for name, kind in ENUMS.items()
        },
    }
    text = json.dumps(shared, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
