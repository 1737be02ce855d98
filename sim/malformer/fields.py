"""The header fields of a DDP Segment as ranges of bits, and the values that are worth trying."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from stagecoach.sim.malformer.layout import Layout
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.memory import TAGGED_OFFSET_SPAN
from stagecoach.sim.model.rdmap import Opcode

STAG, OFFSET, NUMBER, SIZE = "STag", "TO", "number", "size"


@dataclass(frozen=True)
class Field:
    """`bits` bits from bit `first` on of a ULPDU; bit 0 is the most significant one.

    `content` tells which values mean something.
    """

    name: str
    first: int
    bits: int
    content: str = NUMBER

    @property
    def maximum(self) -> int:
        """All ones."""
        return (1 << self.bits) - 1

    def read(self, ulpdu: bytes) -> int:
        """The value in a ULPDU that holds the field."""
        whole = int.from_bytes(ulpdu, "big")
        return whole >> 8 * len(ulpdu) - self.first - self.bits & self.maximum

    def write(self, ulpdu: bytes, value: int) -> bytes:
        """The ULPDU with another value."""
        shift = 8 * len(ulpdu) - self.first - self.bits
        whole = int.from_bytes(ulpdu, "big") & ~(self.maximum << shift)
        return (whole | value << shift).to_bytes(len(ulpdu), "big")


# RFC 5041, 4.1; RFC 5040, 4.1.
CONTROL = (
    Field("T", 0, 1),
    Field("L", 1, 1),
    Field("Rsvd", 2, 4),
    Field("DV", 6, 2),
    Field("RV", 8, 2),
    Field("Rsv", 10, 2),
    Field("opcode", 12, 4),
)
OPCODE = CONTROL[-1]
# RFC 5041, 4.2.
TAGGED = (Field("STag", 16, 32, STAG), Field("TO", 48, 64, OFFSET))
# RFC 5041, 4.3.
INVALIDATE_STAG = Field("Invalidate STag", 16, 32, STAG)
QN, MSN = Field("QN", 48, 32), Field("MSN", 80, 32)
UNTAGGED = (INVALIDATE_STAG, QN, MSN, Field("MO", 112, 32))
# RFC 5040, 4.4.
SOURCE_STAG = Field("SrcSTag", 272, 32, STAG)
SOURCE_OFFSET = Field("SrcTO", 304, 64, OFFSET)
READ_SIZE = Field("RDMARDSZ", 240, 32, SIZE)
READ_REQUEST = (
    Field("SinkSTag", 144, 32, STAG),
    Field("SinkTO", 176, 64, OFFSET),
    READ_SIZE,
    SOURCE_STAG,
    SOURCE_OFFSET,
)
# RFC 7306, 5.2.1.
TARGET_STAG = Field("Remote STag", 208, 32, STAG)
TARGET_OFFSET = Field("Remote TO", 240, 64, OFFSET)
ATOMIC_REQUEST = (
    Field("reserved of Atomic Request", 144, 28),
    Field("AOpCode", 172, 4),
    Field("Request Identifier", 176, 32),
    TARGET_STAG,
    TARGET_OFFSET,
    Field("Add or Swap Data", 304, 64),
    Field("Add or Swap Mask", 368, 64),
    Field("Compare Data", 432, 64),
    Field("Compare Mask", 496, 64),
)
# RFC 5040, 4.8.
TERMINATE = (
    Field("Layer", 144, 4),
    Field("EType", 148, 4),
    Field("Error Code", 152, 8),
    Field("HdrCt", 160, 3),
    Field("reserved of Terminate", 163, 13),
    Field("DDP Segment Length", 176, 16),
)


def fields_of(ulpdu: bytes) -> list[Field]:
    """The fields that a ULPDU has, as its T and its opcode say."""
    if len(ulpdu) < ddp.TAGGED_HEADER_OCTETS:
        return [field for field in CONTROL if field.first + field.bits <= 8 * len(ulpdu)]
    found = [*CONTROL]
    if ulpdu[0] & ddp.FLAG_TAGGED:
        found += TAGGED
    else:
        found += UNTAGGED
        opcode = rdmap.decode_control(ulpdu[1]).opcode
        if opcode == Opcode.RDMA_READ_REQUEST:
            found += READ_REQUEST
        elif opcode == Opcode.ATOMIC_REQUEST:
            found += ATOMIC_REQUEST
        elif opcode == Opcode.TERMINATE:
            found += TERMINATE
    return [field for field in found if field.first + field.bits <= 8 * len(ulpdu)]


def _values(field: Field, old: int, layout: Layout) -> Iterator[int]:
    """Values at the edges of what is right."""
    yield from (0, 1, 2, 3, old + 1, old - 1, old + 2, old ^ 1 << field.bits - 1)
    yield from (field.maximum, field.maximum - 1, field.maximum >> 1)
    places = layout.places.values()
    if field.content == STAG:
        for place in places:
            yield from (place.stag, place.stag ^ 1, place.stag ^ 1 << 31)
    elif field.content == OFFSET:
        for place in places:
            yield from (place.base - 1, place.base, place.base + 1, place.end - 1, place.end)
        yield TAGGED_OFFSET_SPAN - 4
    elif field.content == SIZE:
        for place in places:
            yield from (place.size, place.size + 1)


def another_value(field: Field, ulpdu: bytes, layout: Layout, rng: random.Random) -> int:
    """A value that the field does not have: at an edge, or any."""
    old = field.read(ulpdu)
    edges = [value & field.maximum for value in _values(field, old, layout)]
    edges += [rng.getrandbits(field.bits) for _ in range(1 + len(edges) // 4)]
    return rng.choice([value for value in edges if value != old])
