"""Record marking: messages in a stream of octets (RFC 5531, 11)."""

import asyncio
from collections.abc import Awaitable, Callable

from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.oncrpc.message import Message, roundup

_LAST = 1 << 31
_MARK = 4

_FRAGMENTS = 1 << 16
"""Fragments of one record that are taken; a peer may not send empty ones for ever."""


def pieces(message: Message) -> list[bytes | memoryview]:
    """The record of a message, as one fragment, with its bulk items not copied."""
    octets = message.whole_octets
    if octets >= _LAST:
        raise ValueError(f"message of {octets} bytes; allowed: 0 to {_LAST - 1}")
    found: list[bytes | memoryview] = [(_LAST | octets).to_bytes(_MARK)]
    taken = inserted = 0
    for bulk in message.bulks:
        start = bulk.position - inserted
        padding = roundup(len(bulk.data)) - len(bulk.data)
        found += (message.stream[taken:start], bulk.data, bytes(padding))
        taken, inserted = start, inserted + len(bulk.data) + padding
    found.append(message.stream[taken:])
    return found


async def _admit_all(octets: int) -> None:
    pass


async def read_record(
    reader: asyncio.StreamReader,
    maximum: int,
    first: bytes = b"",
    admit: Callable[[int], Awaitable[None]] = _admit_all,
) -> bytes:
    """The next record; `first` are bytes of it that were read already, at most 4.

    `admit` is awaited before memory is taken, with the bytes that the record may have.

    Raises `RpcConnectionError` at the end of the stream, also inside a record, for a record of more
    than `maximum` bytes, or one of very many fragments.
    """
    record = bytearray()
    try:
        for number in range(_FRAGMENTS):
            head = first + await reader.readexactly(_MARK - len(first))
            first = b""
            mark = int.from_bytes(head)
            octets = mark & ~_LAST
            if len(record) + octets > maximum:
                raise RpcConnectionError(
                    f"a record of {len(record) + octets} bytes or more; allowed: {maximum}"
                )
            if number == 0:
                await admit(octets if mark & _LAST else maximum)
            record += await reader.readexactly(octets)
            if mark & _LAST:
                return bytes(record)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise RpcConnectionError(f"the connection ended: {error}") from error
    raise RpcConnectionError(f"a record of more than {_FRAGMENTS} fragments")
