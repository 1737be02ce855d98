"""All that device and host share, and one number for it."""

import hashlib
import json
from collections.abc import Mapping
from enum import IntEnum, IntFlag
from pathlib import Path

from stagecoach.hw.interface import litedram, network_entries, queue_entries
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import Fields
from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, Field, encodings, registers

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


NETWORK_ENTRIES: dict[str, Fields] = {
    "network_entry": network_entries.NETWORK_ENTRY,
    "frame_descriptor": network_entries.FRAME_DESCRIPTOR,
    "connection_info": network_entries.CONNECTION_INFO,
    "header_fields": network_entries.HEADER_FIELDS,
}
"""Those of a network, which not every device has."""

NETWORK_ENUMS: dict[str, type[IntEnum] | type[IntFlag]] = {
    "network_kind": network_entries.NetworkKind,
    "network_flags": network_entries.NetworkFlags,
    "frame_fate": network_entries.FrameFate,
    "header_row": network_entries.HeaderRow,
    "info_flags": network_entries.InfoFlags,
}


def _place(field: Field) -> tuple[str | int, ...]:
    access = field.readable, field.writable, field.clear_on_one, field.message
    return field.name, field.low, field.width, *access


def _digest(
    source: Path,
    entries: Mapping[str, Fields],
    enums: Mapping[str, type[IntEnum] | type[IntFlag]],
    **others: object,
) -> int:
    shared = {
        "registers": [
            (register.name, register.address, [_place(field) for field in register.fields])
            for register in registers(source)
        ],
        "encodings": encodings(source),
        "entries": {
            name: [(field.name, field.octets) for field in fields]
            for name, fields in entries.items()
        },
        "enums": {
            name: {str(member.name): int(member) for member in kind} for name, kind in enums.items()
        },
        **others,
    }
    text = json.dumps(shared, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def digest() -> int:
    """First 32 bits of the SHA-256 of names, places, accesses and values of the RNIC.

    Words count for nothing, nor what constant registers hold.
    """
    return _digest(RNIC, ENTRIES, ENUMS)


def network_digest() -> int:
    """The same of the network."""
    return _digest(NETWORK, NETWORK_ENTRIES, NETWORK_ENUMS)


def memory_digest() -> int:
    """The same of the memory of a board, with what is behind its window."""
    controller = {name: [one.address, one.words] for name, one in litedram.REGISTERS.items()}
    return _digest(MEMORY, {}, {}, controller=controller, settings=litedram.SETTINGS)
