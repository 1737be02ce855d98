"""Options of a SYN (RFC 9293, 3.2; RFC 7323, 2.2; RFC 2018, 2)."""

import enum
from dataclasses import dataclass

MAXIMUM_SHIFT = 14
"""A larger one of the peer counts as this (RFC 7323, 2.3)."""


class Option(enum.IntEnum):
    """The kinds that are understood."""

    END = 0
    NO_OPERATION = 1
    MAXIMUM_SEGMENT_SIZE = 2
    WINDOW_SCALE = 3
    SACK_PERMITTED = 4


_LENGTHS = {Option.MAXIMUM_SEGMENT_SIZE: 4, Option.WINDOW_SCALE: 3, Option.SACK_PERMITTED: 2}


@dataclass(frozen=True, slots=True)
class SynOptions:
    """What a SYN says; `None` for an option that it does not have.

    Attributes
    ----------
    illegal: an option had a length below 2, or beyond the header: nothing after it was read.
    """

    maximum_segment_size: int | None = None
    window_shift: int | None = None
    sack_permitted: bool = False
    illegal: bool = False

    def encode(self) -> bytes:
        """A multiple of four bytes, no-operations before the shorter ones."""
        octets = b""
        if self.maximum_segment_size is not None:
            octets += bytes((Option.MAXIMUM_SEGMENT_SIZE, 4))
            octets += self.maximum_segment_size.to_bytes(2)
        if self.window_shift is not None:
            octets += bytes((Option.NO_OPERATION, Option.WINDOW_SCALE, 3, self.window_shift))
        if self.sack_permitted:
            octets += bytes((Option.NO_OPERATION,) * 2 + (Option.SACK_PERMITTED, 2))
        return octets


def decode(octets: bytes) -> SynOptions:
    """Reads what it can: an unknown option, or one of wrong length, is passed over.

    One of illegal length ends it (RFC 9293, MUST-7).
    """
    found: dict[int, bytes] = {}
    illegal = False
    place = 0
    while place < len(octets) and (kind := octets[place]) != Option.END:
        if kind == Option.NO_OPERATION:
            place += 1
            continue
        length = octets[place + 1] if place + 1 < len(octets) else 0
        if length < 2 or place + length > len(octets):
            illegal = True
            break
        if _LENGTHS.get(Option(kind) if kind in _LENGTHS else Option.END) == length:
            found[kind] = octets[place + 2 : place + length]
        place += length
    segment = found.get(Option.MAXIMUM_SEGMENT_SIZE)
    shift = found.get(Option.WINDOW_SCALE)
    return SynOptions(
        None if segment is None else int.from_bytes(segment),
        None if shift is None else min(shift[0], MAXIMUM_SHIFT),
        Option.SACK_PERMITTED in found,
        illegal,
    )
