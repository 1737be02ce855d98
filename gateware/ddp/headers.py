"""DDP segment headers (RFC 5041, 4) and the order of octets on the wire.

A header layout has its fields in wire order, so that it can be laid over a vector that holds octet
i in bits [8i+7:8i]. A field of several octets is an array of octets, most significant first, as it
is on the wire; `from_wire` reads one as a number and `to_wire` makes one from a number:

    header = data.View(TAGGED_HEADER, segment.header[: TAGGED_HEADER.size])
    stag = from_wire(header.stag)
    m.d.comb += header.stag.eq(to_wire(stag, 4))
"""

from amaranth.hdl import Cat, Const, Value, ValueLike
from amaranth.lib import data

from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS


def octets(count: int) -> data.ArrayLayout:
    """A wire field of `count` octets, most significant first."""
    return data.ArrayLayout(8, count)


def from_wire(field: ValueLike) -> Value:
    """The number in a wire field, whose width must be a multiple of 8."""
    return _reverse_octets(Value.cast(field))


def to_wire(number: ValueLike, count: int) -> Value:
    """The wire field of `count` octets that holds an unsigned number, zero-extended if narrower.

    Raises ValueError if the number has more bits.
    """
    value = Value.cast(number)
    if len(value) > 8 * count:
        raise ValueError(
            f"a number of {len(value)} bits does not fit a wire field of {count} octets; "
            f"allowed: at most {8 * count} bits"
        )
    return _reverse_octets(Cat(value, Const(0, 8 * count - len(value))))


def _reverse_octets(value: Value) -> Value:
    if len(value) % 8:
        raise ValueError(f"a wire field has {len(value)} bits; allowed: a multiple of 8")
    return Cat(*(value[low : low + 8] for low in reversed(range(0, len(value), 8))))


CONTROL = data.StructLayout({"version": 2, "reserved": 4, "last": 1, "tagged": 1})
"""The DDP control octet (RFC 5041, 4.1): DV, Rsvd, L, T from bit 0 to bit 7."""

TAGGED_HEADER = data.StructLayout(
    {
        "control": CONTROL,
        "rsvd_ulp": 8,  # the RDMAP control octet
        "stag": octets(4),
        "tagged_offset": octets(8),
    }
)
"""Tagged Buffer header (RFC 5041, 4.2)."""

UNTAGGED_HEADER = data.StructLayout(
    {
        "control": CONTROL,
        "rsvd_ulp": 8,  # RsvdULP[0:7], the RDMAP control octet
        "rsvd_ulp_word": octets(4),  # RsvdULP[8:39], the Invalidate STag
        "qn": octets(4),
        "msn": octets(4),
        "mo": octets(4),
    }
)
"""Untagged Buffer header (RFC 5041, 4.3)."""

assert TAGGED_HEADER.size == 8 * TAGGED_HEADER_OCTETS
assert UNTAGGED_HEADER.size == 8 * UNTAGGED_HEADER_OCTETS
