"""What the ends tell each other in the private data of MPA startup (RFC 8797, 4 and 5)."""

from dataclasses import dataclass

FORMAT = bytes.fromhex("f6ab0e18")
VERSION = 1
REMOTE_INVALIDATION = 0x01
"""The R bit of the flags."""

OCTETS = 8
INLINE_UNIT = 1024
MAXIMUM_INLINE = 256 * INLINE_UNIT


@dataclass(frozen=True, slots=True)
class PrivateData:
    """The message of RFC 8797.

    Attributes
    ----------
    send_octets, receive_octets: of its longest Send and receive, multiples of 1024 up to 256 KiB.
    remote_invalidation: whether the peer may use Send with Invalidate.
    """

    send_octets: int
    receive_octets: int
    remote_invalidation: bool = False

    def encode(self) -> bytes:
        """The 8 bytes."""
        sizes = (each // INLINE_UNIT - 1 for each in (self.send_octets, self.receive_octets))
        flags = REMOTE_INVALIDATION if self.remote_invalidation else 0
        return FORMAT + bytes([VERSION, flags, *sizes])

    @classmethod
    def decode(cls, octets: bytes) -> "PrivateData | None":
        """The message at the start of private data, `None` if there is none of version 1."""
        if len(octets) < OCTETS or octets[:4] != FORMAT or octets[4] != VERSION:
            return None
        send, receive = (INLINE_UNIT * (size + 1) for size in octets[6:OCTETS])
        return cls(send, receive, bool(octets[5] & REMOTE_INVALIDATION))
