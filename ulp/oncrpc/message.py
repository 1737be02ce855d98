"""An RPC message between the RPC layer and a transport: XDR stream, and bulk items beside it.

A bulk item is the content of an opaque (RFC 4506, 4.9 and 4.10) which the upper layer's binding
makes eligible for direct data placement (RFC 5666, 3.4). A transport may move it out of the stream,
which RFC 8166 calls reducing, or insert it with `Message.whole`.
"""

from dataclasses import dataclass

XDR_UNIT = 4
"""Octets; every item of XDR is a multiple of it (RFC 4506, 3)."""

PLACED = -1
"""`Bulk.position` in a reply whose item came through a write list, which has no positions."""


def roundup(octets: int) -> int:
    """Bytes of an item of variable length with its XDR roundup."""
    return -(-octets // XDR_UNIT) * XDR_UNIT


@dataclass(frozen=True, slots=True)
class Bulk:
    """An item beside the stream.

    Attributes
    ----------
    position: where its first byte is in the whole stream, that is in the stream with all bulk
        items and their roundup inserted, counted from the first byte of the XID. This is the
        Position of a read chunk (RFC 5666, 3.4 and 4.3), a multiple of 4. For counted opaques it
        is the byte after the length word. Or `PLACED`.
    data: its bytes without roundup, contiguous, of format "B".
    """

    position: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Message:
    """A call or a reply, from XID to end; no record mark and no transport header.

    Attributes
    ----------
    stream: the whole stream without the bytes and the roundup of `bulks`. Length words are there.
    bulks: in the order of their positions, which do not overlap.
    """

    stream: bytes
    bulks: tuple[Bulk, ...] = ()

    @property
    def xid(self) -> int:
        """The transaction's id, the first word. `ValueError` if there is none."""
        if len(self.stream) < XDR_UNIT:
            raise ValueError(f"message has {len(self.stream)} bytes; allowed: 4 or more")
        return int.from_bytes(self.stream[:XDR_UNIT])

    @property
    def whole_octets(self) -> int:
        """Bytes of the whole stream."""
        return len(self.stream) + sum(roundup(len(bulk.data)) for bulk in self.bulks)

    def whole(self) -> bytes:
        """The whole stream. `ValueError` if a position is none of the stream (`PLACED` too)."""
        if not self.bulks:
            return self.stream
        pieces: list[bytes | memoryview] = []
        taken = inserted = 0  # bytes of the stream and of bulk items so far
        for bulk in self.bulks:
            start = bulk.position - inserted
            if not taken <= start <= len(self.stream) or bulk.position % XDR_UNIT:
                raise ValueError(
                    f"bulk item at position {bulk.position}; allowed: multiples of 4 from "
                    f"{taken + inserted} to {len(self.stream) + inserted}"
                )
            octets = roundup(len(bulk.data))
            pieces += (self.stream[taken:start], bulk.data, bytes(octets - len(bulk.data)))
            taken, inserted = start, inserted + octets
        pieces.append(self.stream[taken:])
        return b"".join(pieces)
