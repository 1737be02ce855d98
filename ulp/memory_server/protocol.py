"""What a memory server tells its peers: the MPA private data of its Reply.

Big endian: the bytes `SCMS`, the version in 16 bits, 16 bits that are 0, the Tagged Offset of the
first byte and the length in bytes in 64 bits each, the STag in 32 bits. What follows is ignored.
"""

import struct
from dataclasses import dataclass
from typing import Self

DEFAULT_PORT = 7176

MAGIC = b"SCMS"
VERSION = 1

_LAYOUT = struct.Struct("!4sHxxQQI")
PRIVATE_DATA_OCTETS = _LAYOUT.size

_SHOWN_OCTETS = 16


@dataclass(frozen=True)
class Region:
    """The memory that a server offers.

    addr: Tagged Offset of its first byte. length: in bytes. rkey: its STag.
    """

    addr: int
    length: int
    rkey: int

    def pack(self) -> bytes:
        """The private data."""
        return _LAYOUT.pack(MAGIC, VERSION, self.addr, self.length, self.rkey)

    @classmethod
    def unpack(cls, octets: bytes) -> Self:
        """The inverse of `pack`. Raises `ValueError` for what is no such private data."""
        if len(octets) < PRIVATE_DATA_OCTETS or not octets.startswith(MAGIC):
            raise ValueError(
                f"its private data are {len(octets)} bytes, {octets[:_SHOWN_OCTETS]!r}; allowed: "
                f"{PRIVATE_DATA_OCTETS} or more, from {MAGIC!r} on"
            )
        _, version, addr, length, rkey = _LAYOUT.unpack_from(octets)
        if version != VERSION:
            raise ValueError(f"its private data have version {version}; allowed: {VERSION}")
        return cls(addr, length, rkey)
