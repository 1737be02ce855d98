"""Frames of the host link, to and from bytes of the line."""

from dataclasses import dataclass

from stagecoach.host_driver.crc32c import crc32c
from stagecoach.hw.interface.hostlink import (
    CRC_OCTETS,
    ESCAPE,
    ESCAPE_CHANGE,
    FLAG,
    HEADER_OCTETS,
    MAXIMUM_PAYLOAD,
)

LEAST_OCTETS = HEADER_OCTETS + CRC_OCTETS
MOST_OCTETS = LEAST_OCTETS + MAXIMUM_PAYLOAD

_FLAG = bytes([FLAG])
_ESCAPE = bytes([ESCAPE])
_ESCAPED_FLAG = bytes([ESCAPE, FLAG ^ ESCAPE_CHANGE])
_ESCAPED_ESCAPE = bytes([ESCAPE, ESCAPE ^ ESCAPE_CHANGE])


@dataclass(frozen=True)
class Frame:
    """One frame; all numbers are mod 256."""

    kind: int
    number: int
    acknowledge: int
    payload: bytes = b""

    def pack(self) -> bytes:
        """The bytes of the line, with the flag after them."""
        octets = bytes([self.kind, self.number, self.acknowledge]) + self.payload
        octets += crc32c(octets).to_bytes(CRC_OCTETS, "little")
        octets = octets.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_FLAG, _ESCAPED_FLAG)
        return octets + _FLAG


def parse(octets: bytes) -> Frame | None:
    """The frame of what stood between two flags; `None` if it is broken."""
    if ESCAPE in octets:
        parts = octets.split(_ESCAPE)
        if not all(parts[1:]):  # something else than a byte follows
            return None
        octets = parts[0] + b"".join(
            bytes([part[0] ^ ESCAPE_CHANGE]) + part[1:] for part in parts[1:]
        )
    if not LEAST_OCTETS <= len(octets) <= MOST_OCTETS:
        return None
    content, crc = octets[:-CRC_OCTETS], octets[-CRC_OCTETS:]
    if crc32c(content) != int.from_bytes(crc, "little"):
        return None
    return Frame(content[0], content[1], content[2], content[HEADER_OCTETS:])


class Deframer:
    """Cuts the bytes of a line at the flags."""

    LONGEST = 2 * MOST_OCTETS
    """Bytes between two flags, escapes included; longer ones are no frame."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, octets: bytes) -> list[Frame | None]:
        """The frames that end in `octets`; `None` stands for a broken one."""
        *ended, rest = (self._rest + octets).split(_FLAG)
        self._rest = rest[: self.LONGEST + 1]  # one more, so that it stays too long
        return [parse(one) for one in ended if one]
