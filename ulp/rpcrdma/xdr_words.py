"""The XDR words of an RPC-over-RDMA header (RFC 4506, 4.2 and 4.5), read without trust."""

WORD = 4
"""Bytes of a word."""


class Truncated(ValueError):
    """The bytes end in the middle of an item."""


class Words:
    """Reads big-endian words from the start of bytes.

    Attributes
    ----------
    at: bytes that are read.
    """

    def __init__(self, octets: bytes | bytearray | memoryview):
        self._octets = memoryview(octets)
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes that are not read."""
        return len(self._octets) - self.at

    def word(self, words: int = 1) -> int:
        """The next item of so many words as a number; `Truncated` if it is not all there."""
        end = self.at + WORD * words
        if end > len(self._octets):
            raise Truncated(f"{self.left} bytes from {self.at} on; allowed: {WORD * words}")
        value = int.from_bytes(self._octets[self.at : end])
        self.at = end
        return value


def pack(*values: int) -> bytes:
    """Words out of numbers of 32 bits."""
    return b"".join(value.to_bytes(WORD) for value in values)
