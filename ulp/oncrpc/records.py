"""Structures of XDR (RFC 4506, 4.14) declared as dataclasses.

@dataclass(frozen=True)
class Entry:
    fileid: Uhyper
    name: Annotated[bytes, Opaque(255)]
    attributes: Attributes | None  # another dataclass, as optional data

Record(Entry).pack(encoder, Entry(7, b"name", None))
"""

import dataclasses
import types
import typing
from enum import IntEnum
from typing import Annotated, Any, TypeVar

from stagecoach.ulp.oncrpc.errors import XdrError
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder
from stagecoach.ulp.oncrpc.xdr_types import BOOL, UHYPER, UINT, Enumeration, Maybe, XdrType

R = TypeVar("R")

Uint = Annotated[int, UINT]
Uhyper = Annotated[int, UHYPER]


class Record(XdrType[R]):
    """A dataclass whose annotations say the type of each field.

    These are: `Annotated` with an `XdrType`, a dataclass, an `IntEnum`, `bool`, or one of them
    `| None`, which is optional data.
    """

    def __init__(self, record: type[R]):
        hints = typing.get_type_hints(record, include_extras=True)
        assert dataclasses.is_dataclass(record)
        self._record = record
        self._fields = [(field.name, xdr_type(hints[field.name])) for field in _fields(record)]
        self.octets = sum(item.octets for _, item in self._fields)
        self.bulk_octets = sum(item.bulk_octets for _, item in self._fields)

    def pack(self, encoder: Encoder, value: R) -> None:
        if not isinstance(value, self._record):
            raise XdrError(f"a {type(value).__name__}; allowed: {self._record.__name__}")
        for name, item in self._fields:
            item.pack(encoder, getattr(value, name))

    def unpack(self, decoder: Decoder) -> R:
        return self._record(*[item.unpack(decoder) for _, item in self._fields])


def _fields(record: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(record)


def xdr_type(hint: Any) -> XdrType[Any]:
    """The type that an annotation stands for. `TypeError` if it is none of `Record`'s."""
    if typing.get_origin(hint) is Annotated:
        for item in hint.__metadata__:
            if isinstance(item, XdrType):
                return item
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [item for item in typing.get_args(hint) if item is not type(None)]
        if len(rest) == 1:
            return Maybe(xdr_type(rest[0]))
    if isinstance(hint, type):
        if hint is bool:
            return BOOL
        if issubclass(hint, IntEnum):
            return Enumeration(hint)
        if dataclasses.is_dataclass(hint):
            return Record(hint)
    raise TypeError(
        f"{hint} says no type of XDR; allowed: Annotated, dataclass, IntEnum, bool, or one | None"
    )
