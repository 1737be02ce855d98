"""What the two ends of the demonstration tell each other, in private data and in Sends."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

_LENGTH = struct.Struct("!Q")
_REGION = struct.Struct("!QIQ")
_NOTE = struct.Struct("!I32s")
NOTE_OCTETS = _NOTE.size


def pack_length(octets: int) -> bytes:
    """Private data of the MPA Request: bytes of the file."""
    return _LENGTH.pack(octets)


def unpack_length(private_data: bytes) -> int:
    """The inverse of `pack_length`; `ValueError` for anything else."""
    if len(private_data) != _LENGTH.size:
        raise ValueError(f"{len(private_data)} bytes of private data; allowed: {_LENGTH.size}")
    return int(_LENGTH.unpack(private_data)[0])


@dataclass(frozen=True)
class Region:
    """Private data of the MPA Reply: where the file goes."""

    addr: int
    rkey: int
    length: int

    def pack(self) -> bytes:
        """The bytes on the wire."""
        return _REGION.pack(self.addr, self.rkey, self.length)

    @classmethod
    def unpack(cls, private_data: bytes) -> Self:
        """The inverse of `pack`; `ValueError` for anything else."""
        if len(private_data) != _REGION.size:
            raise ValueError(f"{len(private_data)} bytes of private data; allowed: {_REGION.size}")
        return cls(*_REGION.unpack(private_data))


class NoteKind(IntEnum):
    """What a Send says."""

    WRITTEN = 1  # the whole file was written; its digest
    RECEIVED = 2  # the digest of what came
    READ_BACK = 3  # the digest of what was read back; the end


@dataclass(frozen=True)
class Note:
    """The payload of a Send."""

    kind: NoteKind
    digest: bytes

    def pack(self) -> bytes:
        """The bytes on the wire."""
        return _NOTE.pack(self.kind, self.digest)

    @classmethod
    def unpack(cls, octets: bytes | bytearray) -> Self:
        """The inverse of `pack`; `ValueError` for anything else."""
        if len(octets) != _NOTE.size:
            raise ValueError(f"a Send of {len(octets)} bytes; allowed: {_NOTE.size}")
        kind, digest = _NOTE.unpack(octets)
        return cls(NoteKind(kind), digest)
