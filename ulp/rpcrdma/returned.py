"""What a reply says of the chunks that the call offered (RFC 5666, 3.6; RFC 8166, 3.4.6)."""

from collections.abc import Sequence

from stagecoach.ulp.oncrpc.errors import RpcTransportError
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, roundup
from stagecoach.ulp.rpcrdma.chunks import WriteChunk, octets_of


def returned_octets(offered: WriteChunk, returned: WriteChunk) -> int:
    """Bytes that the peer says to have written into a chunk, at most its length.

    Raises `RpcTransportError` if it is another chunk, more than was offered, or one with gaps. The
    last segment may be longer by the roundup, of which nothing is written (C-29).
    """
    if [(each.handle, each.offset) for each in offered] != [
        (each.handle, each.offset) for each in returned
    ]:
        raise RpcTransportError(f"the reply returns chunk {returned}; allowed: that of {offered}")
    octets = octets_of(returned)
    if octets > roundup(octets_of(offered)):
        raise RpcTransportError(
            f"the reply returns {octets} bytes in a chunk; allowed: 0 to {octets_of(offered)}"
        )
    left = octets
    for number, (given, came) in enumerate(zip(offered, returned, strict=True)):
        holds_the_end = came.length == left and came.length <= roundup(given.length)
        if came.length != given.length and not holds_the_end:
            raise RpcTransportError(
                f"segment {number} of a returned chunk has {came.length} of {given.length} bytes "
                f"with {left} to come; allowed: chunks that are filled without gaps"
            )
        left -= came.length
    return min(octets, octets_of(offered))


def placed(
    offered: Sequence[WriteChunk], returned: Sequence[WriteChunk], room: Sequence[memoryview]
) -> tuple[Bulk, ...]:
    """A bulk item for each buffer of the write list: an empty one if its chunk is not used.

    A reply without write list uses none.
    """
    if not returned:
        return tuple(Bulk(PLACED, buffer[:0]) for buffer in room)
    if len(returned) != len(offered):
        raise RpcTransportError(
            f"the reply has {len(returned)} write chunks; allowed: {len(offered)}"
        )
    return tuple(
        Bulk(PLACED, buffer[: returned_octets(given, came)])
        for given, came, buffer in zip(offered, returned, room, strict=True)
    )
