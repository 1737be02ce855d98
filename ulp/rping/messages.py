"""What the Sends of rping carry, and the text of its pings, as rdmacm-utils has them."""

import struct
from dataclasses import dataclass
from typing import Self

MINIMUM_SIZE = 26
MAXIMUM_SIZE = 65535
"""Bytes of a ping: those that rdmacm-utils takes."""

_ADVERTISEMENT = struct.Struct("!QII")
ADVERTISEMENT_OCTETS = _ADVERTISEMENT.size
GO_AHEAD = bytes(ADVERTISEMENT_OCTETS)
"""The server's Sends: as long as an advertisement; nobody looks at their bytes."""

_FIRST, _LAST = ord("A"), ord("z")


@dataclass(frozen=True)
class Advertisement:
    """The client's Sends: a buffer that the server reads, or writes. Big endian."""

    addr: int
    rkey: int
    length: int

    def pack(self) -> bytes:
        """The bytes on the wire."""
        return _ADVERTISEMENT.pack(self.addr, self.rkey, self.length)

    @classmethod
    def unpack(cls, octets: bytes) -> Self:
        """The inverse of `pack`, for 16 bytes."""
        return cls(*_ADVERTISEMENT.unpack(octets))


def ping_text(number: int, size: int) -> bytes:
    """Ping `number` (from 0) in `size` bytes: its name, letters from another one on, a zero."""
    letters = _LAST - _FIRST + 1
    name = f"rdma-ping-{number}: ".encode()
    rest = bytes(_FIRST + (number + at) % letters for at in range(max(0, size - len(name))))
    return (name + rest)[: size - 1] + b"\0"


def text_of(octets: bytes | bytearray) -> str:
    """The text up to the first zero; what is not ASCII as escapes."""
    return octets.split(b"\0", 1)[0].decode("ascii", "backslashreplace")
