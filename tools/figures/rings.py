"""Rings in host memory, their entries, and the phase bit of completions."""

from collections.abc import Iterator, Sequence
from typing import cast

from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.transport.base import Transport
from stagecoach.hw.interface.queue_entries import (
    COMPLETION_ENTRY,
    COMPLETION_ENTRY_OCTETS,
    RECEIVE_ENTRY_OCTETS,
    SCATTER_GATHER_ELEMENT,
    SCATTER_GATHER_ELEMENT_OCTETS,
    SEND_ENTRY,
    SEND_UNIT_OCTETS,
    Fields,
    offset_of,
)
from tools.figures.svg import HOST, INK, MEMORY, MUTED, PLAIN, QUEUES, RECEIVE, TRANSMIT, Drawing

ENTRIES = 8
WRITTEN = 11
READ = 9
_LEFT, _CELL, _ROW = 150, 92, 8
_SHORT = {
    "element_count": "elements",
    "atomic_operation": "atomic",
    "remote_stag": "remote STag",
    "invalidated_stag": "invalidated STag",
    "stag": "STag",
    "qp": "QP",
}


class _Mapping:
    """What a ring needs of a transport."""

    def map_memory(self, _memory: object) -> int:
        return 0

    def unmap_memory(self, _address: int) -> None:
        pass


def places() -> list[tuple[int, int]]:
    """For each place of the completion ring: the entry that is there, and its phase bit."""
    ring = Ring(cast(Transport, _Mapping()), ENTRIES, COMPLETION_ENTRY_OCTETS)
    there = [0] * ENTRIES
    for number in range(WRITTEN):
        there[ring.offset(number) // COMPLETION_ENTRY_OCTETS] = number
    found = [(number, ring.phase(number)) for number in there]
    ring.close()
    return found


def _ring(d: Drawing, y: float, name: str, note: str, cells: Sequence[tuple[str, str]]) -> None:
    d.text(_LEFT - 14, y + 18, name, 13, anchor="end", bold=True)
    d.text(_LEFT - 14, y + 34, note, 12, MUTED, "end")
    for place, (words, fill) in enumerate(cells):
        d.cell(_LEFT + place * _CELL, y, _CELL, 44, fill, words)


def _laid_out(fields: Fields, base: int = 0) -> Iterator[tuple[int, int, str]]:
    """Offset, bytes and name of each field, the elements' own fields in place of `elements`."""
    for field in fields:
        offset = base + offset_of(fields, field.name)
        if field.name == "elements":
            for number in range(field.octets // SCATTER_GATHER_ELEMENT_OCTETS):
                at = offset + number * SCATTER_GATHER_ELEMENT_OCTETS
                for low, octets, name in _laid_out(SCATTER_GATHER_ELEMENT, at):
                    yield low, octets, f"element {number}: {name}"
        else:
            yield offset, field.octets, _SHORT.get(field.name, field.name).replace("_", " ")


def _entry(d: Drawing, y: float, title: str, fields: Fields, end: int) -> float:
    """Its fields up to byte `end` in rows of 8 bytes; the height after them."""
    d.text(_LEFT, y, title, 13, anchor="start", bold=True)
    for offset, octets, name in _laid_out(fields):
        if offset >= end:
            break
        top, x = y + 10 + offset // _ROW * 28, _LEFT + offset % _ROW * _CELL
        free = name.startswith("reserved")
        d.cell(x, top, octets * _CELL, 28, PLAIN if free else MEMORY, "" if free else name)
        if offset % _ROW == 0:
            d.text(_LEFT - 14, top + 19, str(offset), 12, MUTED, "end")
    return y + 10 + end // _ROW * 28


def rings() -> str:
    """A send, a receive and a completion ring; a send entry and a completion entry."""
    d = Drawing(910, 758, "Rings, entries and phase bits in host memory")
    posted = [("done", PLAIN)] * 2 + [("posted", TRANSMIT)] * 3 + [("free", PLAIN)] * 3
    _ring(d, 30, "send ring", f"{SEND_UNIT_OCTETS} bytes a unit", posted)
    d.arrow((_LEFT + 2 * _CELL, 100), (_LEFT + 2 * _CELL, 76))
    d.label(_LEFT + 2 * _CELL + 8, 96, "the device reads from here")
    d.arrow((_LEFT + 5 * _CELL, 100), (_LEFT + 5 * _CELL, 76))
    d.label(_LEFT + 5 * _CELL + 8, 96, "the program writes here, then the doorbell")
    posted = [("posted", RECEIVE)] * 5 + [("free", PLAIN)] * 3
    _ring(d, 122, "receive ring", f"{RECEIVE_ENTRY_OCTETS} bytes each", posted)
    cells = []
    for number, phase in places():
        fill = QUEUES if READ <= number < WRITTEN else HOST
        cells.append((f"{number}: phase {phase}", fill))
    _ring(d, 204, "completion ring", f"{COMPLETION_ENTRY_OCTETS} bytes each", cells)
    x = _LEFT + READ % ENTRIES * _CELL
    d.arrow((x, 278), (x, 250))
    d.label(x + 8, 272, "next to read")
    x = _LEFT + WRITTEN % ENTRIES * _CELL
    d.arrow((x, 278), (x, 250))
    d.label(x + 8, 272, "next to be written")
    number, phase = places()[WRITTEN % ENTRIES]
    words = (
        f"The phase changes with every turn: entry {WRITTEN} will have phase {1 - phase}.",
        f"Its place has phase {phase}, of entry {number}: it is not there. No register is read.",
    )
    for line, text in enumerate(words):
        d.text(_LEFT, 302 + 18 * line, text, 13, INK, "start")
    y = _entry(d, 356, "first unit of a send entry", SEND_ENTRY, SEND_UNIT_OCTETS)
    _entry(d, y + 26, "completion entry", COMPLETION_ENTRY, COMPLETION_ENTRY_OCTETS)
    return d.svg()
