"""Declarations of programs: the procedures of a version, with their types (RFC 5531, 12).

    SQUARE = Procedure(1, "SQUARE", arguments=UINT, result=UHYPER)
    MATHEMATICS = Program("MATHEMATICS", 0x20000001, 1, [null_procedure(), SQUARE])

Which arguments and results may be chunks is said by their types: those with a `BulkOpaque` inside
(RFC 5666, 3.4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from stagecoach.ulp.oncrpc.xdr_types import VOID, XdrType

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True)
class Procedure(Generic[A, R]):
    """A procedure: number, name, and the types of its arguments and of its result."""

    number: int
    name: str
    arguments: XdrType[A]
    result: XdrType[R]


def null_procedure() -> Procedure[None, None]:
    """Procedure 0, which every program has: it does nothing (RFC 5531, 12.1)."""
    return Procedure(0, "NULL", VOID, VOID)


@dataclass(frozen=True)
class Program:
    """A version of a program."""

    name: str
    number: int
    version: int
    procedures: Sequence[Procedure[Any, Any]]

    @cached_property
    def by_number(self) -> dict[int, Procedure[Any, Any]]:
        """The procedures."""
        return {procedure.number: procedure for procedure in self.procedures}
