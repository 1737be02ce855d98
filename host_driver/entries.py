"""Queue entries as bytes, after the table in `hw/interface/queue_entries.py`."""

import struct

from stagecoach.hw.interface.queue_entries import (
    COMPLETION_ENTRY,
    EVENT_ENTRY,
    SCATTER_GATHER_ELEMENT,
    SEND_ENTRY,
    Fields,
    size_of,
)

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


class EntryLayout:
    """Packs and unpacks one kind of entry.

    Fields of 1, 2, 4 and 8 bytes are integers, others are `bytes`; names that begin with
    `reserved` are zero and not given.
    """

    def __init__(self, fields: Fields):
        self._names = [field.name for field in fields]
        codes = []
        for name, octets, _ in fields:
            if name.startswith("reserved"):
                codes.append(f"{octets}x")
            else:
                codes.append(_CODES.get(octets, f"{octets}s"))
        self._names = [name for name in self._names if not name.startswith("reserved")]
        self._struct = struct.Struct("<" + "".join(codes))
        self.size = self._struct.size
        assert self.size == size_of(fields)

    def pack_into(self, buffer: memoryview, offset: int, **values: int | bytes) -> None:
        """Writes an entry at `offset`; fields that are not named are zero."""
        unknown = values.keys() - set(self._names)
        if unknown:
            raise ValueError(f"no field {sorted(unknown)}; allowed: {self._names}")
        self._struct.pack_into(buffer, offset, *(values.get(name, 0) for name in self._names))

    def unpack_from(self, buffer: memoryview, offset: int) -> dict[str, int | bytes]:
        """The fields of the entry at `offset`."""
        return dict(zip(self._names, self._struct.unpack_from(buffer, offset), strict=True))

    def pack(self, **values: int | bytes) -> bytes:
        """An entry as bytes."""
        buffer = bytearray(self.size)
        self.pack_into(memoryview(buffer), 0, **values)
        return bytes(buffer)


ELEMENT = EntryLayout(SCATTER_GATHER_ELEMENT)
SEND = EntryLayout(SEND_ENTRY)
COMPLETION = EntryLayout(COMPLETION_ENTRY)
EVENT = EntryLayout(EVENT_ENTRY)
