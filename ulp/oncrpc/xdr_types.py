"""Types of XDR (RFC 4506, 4) that declarations are made of: numbers, opaques, arrays, lists."""

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, Generic, TypeVar

from stagecoach.ulp.oncrpc.errors import XdrError
from stagecoach.ulp.oncrpc.message import roundup
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)

WORD = 4
UNLIMITED = 1 << 48
"""Bytes of a type that has no greatest size; any more is the same."""
_MAXIMUM_LENGTH = (1 << 32) - 1


class XdrType(ABC, Generic[T]):
    """A type: packs values, unpacks them, and knows how large they get.

    Attributes
    ----------
    octets: the most that a value takes in the stream, without the contents of bulk items.
    bulk_octets: the most that its bulk items take, with their roundup.
    """

    octets: int
    bulk_octets: int = 0

    @abstractmethod
    def pack(self, encoder: Encoder, value: T) -> None:
        """Raises `XdrError` if the value is none of this type."""

    @abstractmethod
    def unpack(self, decoder: Decoder) -> T:
        """Raises `XdrError` if the bytes are none of this type."""


class _Void(XdrType[None]):
    octets = 0

    def pack(self, encoder: Encoder, value: None) -> None:
        if value is not None:
            raise XdrError(f"{value!r} for void; allowed: None")

    def unpack(self, decoder: Decoder) -> None:
        return None


class _Integer(XdrType[int]):
    def __init__(self, bits: int):
        self.octets = bits // 8
        self._limit = 1 << bits

    def pack(self, encoder: Encoder, value: int) -> None:
        if not 0 <= value < self._limit:
            raise XdrError(f"{value} for {self.octets * 8} bits; allowed: 0 to {self._limit - 1}")
        if self.octets == WORD:
            encoder.uint(value)
        else:
            encoder.uhyper(value)

    def unpack(self, decoder: Decoder) -> int:
        return decoder.uint() if self.octets == WORD else decoder.uhyper()


class _Bool(XdrType[bool]):
    octets = WORD

    def pack(self, encoder: Encoder, value: bool) -> None:
        encoder.uint(int(value))

    def unpack(self, decoder: Decoder) -> bool:
        word = decoder.uint()
        if word > 1:
            raise XdrError(f"{word} for bool; allowed: 0, 1")
        return bool(word)


VOID = _Void()
UINT = _Integer(32)
UHYPER = _Integer(64)
BOOL = _Bool()


class Enumeration(XdrType[E]):
    """The members of an `IntEnum`, no others."""

    octets = WORD

    def __init__(self, members: type[E]):
        self._members = members

    def pack(self, encoder: Encoder, value: E) -> None:
        encoder.enum(self._members(value))

    def unpack(self, decoder: Decoder) -> E:
        word = decoder.enum()
        try:
            return self._members(word)
        except ValueError as error:
            raise XdrError(str(error)) from error


def _check_length(length: int, maximum: int) -> None:
    if length > maximum:
        raise XdrError(f"length {length}; allowed: 0 to {maximum}")


class FixedOpaque(XdrType[bytes]):
    """opaque[octets]."""

    def __init__(self, octets: int):
        self.octets = roundup(octets)
        self._length = octets

    def pack(self, encoder: Encoder, value: bytes) -> None:
        if len(value) != self._length:
            raise XdrError(f"{len(value)} bytes; allowed: {self._length}")
        encoder.fixed(value)

    def unpack(self, decoder: Decoder) -> bytes:
        return decoder.fixed(self._length)


class Opaque(XdrType[bytes]):
    """opaque<maximum>, and string<maximum>, whose bytes have no encoding here."""

    def __init__(self, maximum: int = _MAXIMUM_LENGTH):
        self.octets = WORD + roundup(maximum) if maximum < _MAXIMUM_LENGTH else UNLIMITED
        self.maximum = maximum

    def pack(self, encoder: Encoder, value: bytes) -> None:
        _check_length(len(value), self.maximum)
        encoder.opaque(value)

    def unpack(self, decoder: Decoder) -> bytes:
        return decoder.fixed(decoder.length(self.maximum))


class BulkOpaque(XdrType[memoryview]):
    """opaque<maximum> that the binding makes eligible for chunks (RFC 5666, 3.4)."""

    octets = WORD

    def __init__(self, maximum: int = _MAXIMUM_LENGTH):
        self.bulk_octets = roundup(maximum) if maximum < _MAXIMUM_LENGTH else UNLIMITED
        self.maximum = maximum

    def pack(self, encoder: Encoder, value: memoryview) -> None:
        _check_length(len(value), self.maximum)
        encoder.bulk(value)

    def unpack(self, decoder: Decoder) -> memoryview:
        return decoder.bulk(self.maximum)


class Maybe(XdrType[T | None]):
    """Optional data, and unions of bool whose FALSE is void: a value or `None`."""

    def __init__(self, item: XdrType[T]):
        self.octets = WORD + item.octets
        self.bulk_octets = item.bulk_octets
        self._item = item

    def pack(self, encoder: Encoder, value: T | None) -> None:
        BOOL.pack(encoder, value is not None)
        if value is not None:
            self._item.pack(encoder, value)

    def unpack(self, decoder: Decoder) -> T | None:
        return self._item.unpack(decoder) if BOOL.unpack(decoder) else None


class Array(XdrType[list[T]]):
    """item<maximum>, with items that take at least a word."""

    def __init__(self, item: XdrType[T], maximum: int):
        self.octets = WORD + maximum * item.octets
        self._item, self._maximum = item, maximum

    def pack(self, encoder: Encoder, value: list[T]) -> None:
        _check_length(len(value), self._maximum)
        encoder.uint(len(value))
        for item in value:
            self._item.pack(encoder, item)

    def unpack(self, decoder: Decoder) -> list[T]:
        return [self._item.unpack(decoder) for _ in range(decoder.length(self._maximum))]


class LinkedList(XdrType[list[T]]):
    """A list whose last member is optional data of the same type: entries of a directory."""

    octets = UNLIMITED

    def __init__(self, item: XdrType[T]):
        self._item = item

    def pack(self, encoder: Encoder, value: list[T]) -> None:
        for item in value:
            encoder.uint(1)
            self._item.pack(encoder, item)
        encoder.uint(0)

    def unpack(self, decoder: Decoder) -> list[T]:
        items = []
        while BOOL.unpack(decoder):
            items.append(self._item.unpack(decoder))
        return items


class Union(XdrType[tuple[Any, Any]]):
    """A discriminated union: a pair of discriminant and value.

    Parameters
    ----------
    arms: the type for each member of `members`. default: for all others; without one, they are
        errors.
    """

    def __init__(
        self,
        members: type[IntEnum],
        arms: dict[Any, XdrType[Any]],
        default: XdrType[Any] | None = None,
    ):
        self._discriminant = Enumeration(members)
        self._arms, self._default = arms, default
        types = [*arms.values(), *([] if default is None else [default])]
        self.octets = WORD + max(arm.octets for arm in types)
        self.bulk_octets = max(arm.bulk_octets for arm in types)

    def _arm(self, discriminant: IntEnum) -> XdrType[Any]:
        arm = self._arms.get(discriminant, self._default)
        if arm is None:
            raise XdrError(f"{discriminant!r} has no arm; allowed: {list(self._arms)}")
        return arm

    def pack(self, encoder: Encoder, value: tuple[Any, Any]) -> None:
        discriminant, arm_value = value
        self._discriminant.pack(encoder, discriminant)
        self._arm(discriminant).pack(encoder, arm_value)

    def unpack(self, decoder: Decoder) -> tuple[Any, Any]:
        discriminant = self._discriminant.unpack(decoder)
        return discriminant, self._arm(discriminant).unpack(decoder)
