"""A small program for tests, with a bulk item in arguments and result, and its service."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from stagecoach.ulp.oncrpc.errors import GarbageArguments
from stagecoach.ulp.oncrpc.program import Procedure, Program, null_procedure
from stagecoach.ulp.oncrpc.records import Record, Uint
from stagecoach.ulp.oncrpc.server import Service
from stagecoach.ulp.oncrpc.xdr_types import UHYPER, UINT, BulkOpaque, Opaque


@dataclass(frozen=True)
class Block:
    name: Annotated[bytes, Opaque(16)]
    data: Annotated[memoryview, BulkOpaque(1 << 20)]
    factor: Uint


NULL = null_procedure()
SQUARE = Procedure(1, "SQUARE", UINT, UHYPER)
ADD_TO_OCTETS = Procedure(2, "ADD_TO_OCTETS", Record(Block), Record(Block))
WAIT = Procedure(3, "WAIT", UINT, UINT)
FAIL = Procedure(4, "FAIL", UINT, UINT)
MISSING = Procedure(5, "MISSING", UINT, UINT)
WHOAMI = Procedure(6, "WHOAMI", NULL.arguments, UINT)
ARITHMETIC = Program(
    "ARITHMETIC",
    0x20000001,
    3,
    [NULL, SQUARE, ADD_TO_OCTETS, WAIT, FAIL, MISSING, WHOAMI],
)


def add_to_octets(request, block):
    data = request.buffer(len(block.data))
    data[:] = bytes((octet + block.factor) % 256 for octet in block.data)
    return Block(block.name[::-1], data, block.factor + 1)


async def wait(request, milliseconds):
    await asyncio.sleep(milliseconds / 1000)
    return milliseconds


def fail(request, how):
    if how:
        raise GarbageArguments
    raise RuntimeError("a fault in the handler, on purpose")


def service():
    handlers = {
        SQUARE: lambda request, number: number * number,
        ADD_TO_OCTETS: add_to_octets,
        WAIT: wait,
        FAIL: fail,
        WHOAMI: lambda request, _: 0 if request.credential is None else request.credential.uid,
    }
    return Service(ARITHMETIC, handlers)
