"""Enumerations of the interface's description with the shapes that the gateware gives them."""

import types
from collections.abc import Mapping
from typing import Any

from amaranth.lib import enum


def encoding(
    name: str, members: Mapping[str, int], shape: Any, doc: str, kind: Any = enum.Enum
) -> Any:
    """An enumeration of a shape, with members that are described elsewhere.

    `kind`: class of `amaranth.lib.enum`; with an `IntEnum` its signals are plain numbers.
    """

    def fill(body: dict[str, Any]) -> None:
        body["__doc__"] = doc
        for member, value in members.items():
            body[member] = int(value)

    return types.new_class(name, (kind,), {"shape": shape}, fill)
