"""Atomic Operations and their headers (RFC 7306, 5)."""

import struct
from dataclasses import dataclass

_WORD = 2**64 - 1
# RFC 7306, 5.2.1: AOpCode (low 4 bits), Request Identifier, STag, TO, data and masks.
_REQUEST = struct.Struct(">IIIQQQQQ")
# RFC 7306, 5.2.2: Original Request Identifier, Original Remote Data Value.
_RESPONSE = struct.Struct(">IQ")
FETCH_ADD = 0
SWAP = 1
CMP_SWAP = 2


@dataclass(frozen=True)
class AtomicRequest:
    """Atomic Request header, 52 octets."""

    operation: int
    identifier: int
    stag: int
    tagged_offset: int
    data: int
    mask: int
    compare: int = 0
    compare_mask: int = _WORD

    def encode(self) -> bytes:
        return _REQUEST.pack(
            self.operation,
            self.identifier,
            self.stag,
            self.tagged_offset,
            self.data,
            self.mask,
            self.compare,
            self.compare_mask,
        )

    @classmethod
    def decode(cls, payload: bytes) -> "AtomicRequest":
        operation, *rest = _REQUEST.unpack(payload)
        return cls(operation & 0xF, *rest)


@dataclass(frozen=True)
class AtomicResponse:
    """Atomic Response header, 12 octets."""

    identifier: int
    original: int

    def encode(self) -> bytes:
        return _RESPONSE.pack(self.identifier, self.original)

    @classmethod
    def decode(cls, payload: bytes) -> "AtomicResponse":
        return cls(*_RESPONSE.unpack(payload))


def fetch_add(original: int, add: int, mask: int) -> int:
    """Sum of fields that end, at their most significant bit, where ``mask`` has a one."""
    result = 0
    carry = 0
    for bit in range(64):
        total = (original >> bit & 1) + (add >> bit & 1) + carry
        result |= (total & 1) << bit
        carry = 0 if mask >> bit & 1 else total >> 1
    return result


def cmp_swap(original: int, swap: int, swap_mask: int, compare: int, compare_mask: int) -> int:
    """``original`` with the masked bits swapped, if the compared bits agree."""
    if (original ^ compare) & compare_mask:
        return original
    return original & ~swap_mask & _WORD | swap & swap_mask
