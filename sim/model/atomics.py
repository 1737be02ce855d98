"""Atomic Operations: their headers and their arithmetic (RFC 7306, 5)."""

import struct
from dataclasses import dataclass, replace
from enum import IntEnum

ATOMIC_OCTETS = 8
WORD = 2**64 - 1
# RFC 7306, 5.2.1: reserved (28 bits) and AOpCode, Request Identifier, STag, TO, data and masks.
_REQUEST = struct.Struct(">IIIQQQQQ")
ATOMIC_REQUEST_OCTETS = _REQUEST.size
_OPERATION_BITS = 4
# RFC 7306, 5.2.2: Original Request Identifier, Original Remote Data Value.
_RESPONSE = struct.Struct(">IQ")
ATOMIC_RESPONSE_OCTETS = _RESPONSE.size


class AtomicOperation(IntEnum):
    """AOpCodes (RFC 7306, Figure 5).

    Swap is that of draft-ietf-storm-rdmap-ext-00; RFC 7306, 10.1 keeps its number reserved.
    """

    FETCH_ADD = 0
    SWAP = 1
    CMP_SWAP = 2


FETCH_ADD, SWAP, CMP_SWAP = AtomicOperation


def _check_width(name: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} {value:#x}; {bits} bits are possible")


@dataclass(frozen=True)
class AtomicRequest:
    """Atomic Request header, 52 octets (RFC 7306, 5.2.1).

    ``operation`` may be an unassigned AOpCode, ``reserved`` are the 28 bits before it. ``data``
    and ``mask`` are Add or Swap Data and Add or Swap Mask.
    """

    operation: int
    identifier: int
    stag: int
    tagged_offset: int
    data: int
    mask: int
    compare: int = 0
    compare_mask: int = WORD
    reserved: int = 0

    def __post_init__(self) -> None:
        _check_width("AOpCode", self.operation, _OPERATION_BITS)
        _check_width("reserved bits", self.reserved, 28)
        _check_width("Request Identifier", self.identifier, 32)
        _check_width("Remote STag", self.stag, 32)
        _check_width("Remote Tagged Offset", self.tagged_offset, 64)
        _check_width("Add or Swap Data", self.data, 64)
        _check_width("Add or Swap Mask", self.mask, 64)
        _check_width("Compare Data", self.compare, 64)
        _check_width("Compare Mask", self.compare_mask, 64)

    def encode(self) -> bytes:
        return _REQUEST.pack(
            self.reserved << _OPERATION_BITS | self.operation,
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
        _check_length("Atomic Request", payload, ATOMIC_REQUEST_OCTETS)
        first, *rest = _REQUEST.unpack(payload)
        reserved, operation = divmod(first, 1 << _OPERATION_BITS)
        return replace(cls(operation, *rest), reserved=reserved)


@dataclass(frozen=True)
class AtomicResponse:
    """Atomic Response header, 12 octets (RFC 7306, 5.2.2)."""

    identifier: int
    original: int

    def __post_init__(self) -> None:
        _check_width("Original Request Identifier", self.identifier, 32)
        _check_width("Original Remote Data Value", self.original, 64)

    def encode(self) -> bytes:
        return _RESPONSE.pack(self.identifier, self.original)

    @classmethod
    def decode(cls, payload: bytes) -> "AtomicResponse":
        _check_length("Atomic Response", payload, ATOMIC_RESPONSE_OCTETS)
        return cls(*_RESPONSE.unpack(payload))


def _check_length(name: str, payload: bytes, needed: int) -> None:
    if len(payload) != needed:
        raise ValueError(f"{name} header of {len(payload)} bytes; {needed} are required")


def fetch_add(original: int, add: int, mask: int) -> int:
    """Sum of fields that end, at their most significant bit, where ``mask`` has a one.

    RFC 7306, 5.1.1.
    """
    result = 0
    carry = 0
    for bit in range(64):
        total = (original >> bit & 1) + (add >> bit & 1) + carry
        result |= (total & 1) << bit
        carry = 0 if mask >> bit & 1 else total >> 1
    return result


def cmp_swap(original: int, swap: int, swap_mask: int, compare: int, compare_mask: int) -> int:
    """``original`` with the masked bits swapped, if the compared bits agree (RFC 7306, 5.1.2)."""
    if (original ^ compare) & compare_mask:
        return original
    return original & ~swap_mask & WORD | swap & swap_mask


def result_of(request: AtomicRequest, original: int) -> int:
    """What is in memory after the operation; fields that it does not use are ignored.

    Raises ``ValueError`` for an unassigned AOpCode.
    """
    match AtomicOperation(request.operation):
        case AtomicOperation.FETCH_ADD:
            return fetch_add(original, request.data, request.mask)
        case AtomicOperation.SWAP:
            return request.data
        case AtomicOperation.CMP_SWAP:
            return cmp_swap(
                original, request.data, request.mask, request.compare, request.compare_mask
            )
