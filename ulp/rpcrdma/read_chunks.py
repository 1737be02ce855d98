"""Read chunks out of a read list, and a message out of a reduced stream and their data.

RFC 5666, 3.4, 3.7 and 5.1; RFC 8166, 3.4.5 and 3.5.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stagecoach.ulp.oncrpc.message import Bulk, Message, roundup
from stagecoach.ulp.rpcrdma.chunks import ReadSegment, Segment, octets_of
from stagecoach.ulp.rpcrdma.errors import ErrorCode, HeaderError
from stagecoach.ulp.rpcrdma.header import Header, Procedure
from stagecoach.ulp.rpcrdma.xdr_words import WORD

_OFFSETS = 1 << 64


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """The segments of a read list that have one Position, in their order there."""

    position: int
    segments: tuple[Segment, ...]

    @property
    def octets(self) -> int:
        """Bytes of all segments."""
        return octets_of(self.segments)


def chunk_error(header: Header, detail: str) -> HeaderError:
    """The exception for a list of this header that lies; a responder answers ERR_CHUNK."""
    return HeaderError(detail, header.xid, header.version, ErrorCode.ERR_CHUNK)


def read_chunks(header: Header, most_octets: int) -> tuple[ReadChunk | None, list[ReadChunk]]:
    """The chunk at position zero, which an RDMA_NOMSG has, and the others by position.

    Raises `HeaderError` if positions are not multiples of 4, chunks overlap, a segment passes the
    end of the Tagged Offsets, all together have more than `most_octets`, or a chunk at position
    zero is missing or out of place.
    """
    found: dict[int, list[Segment]] = {}
    for each in header.lists.reads:
        _check_segment(header, each)
        found.setdefault(each.position, []).append(each.target)
    chunks = [ReadChunk(position, tuple(found[position])) for position in sorted(found)]
    if (octets := sum(chunk.octets for chunk in chunks)) > most_octets:
        raise chunk_error(header, f"read chunks of {octets} bytes; allowed: 0 to {most_octets}")
    whole = chunks.pop(0) if chunks and not chunks[0].position else None
    if (whole is None) == (header.procedure is Procedure.RDMA_NOMSG):
        there = "without" if whole is None else "with"
        raise chunk_error(header, f"{header.procedure.name} {there} a read chunk at position 0")
    for first, second in pairwise(chunks):
        end = first.position + first.octets
        if end > second.position:
            raise chunk_error(
                header,
                f"read chunks at {first.position} and {second.position} overlap: the first has "
                f"{first.octets} bytes; allowed: 0 to {second.position - first.position}",
            )
    return whole, chunks


def _check_segment(header: Header, segment: ReadSegment) -> None:
    if segment.position % WORD:
        raise chunk_error(header, f"Position {segment.position}; allowed: multiples of 4")
    end = segment.target.offset + segment.target.length
    if end > _OFFSETS:
        raise chunk_error(header, f"a segment ends at {end:#x}; allowed: up to {_OFFSETS:#x}")


def check_stream(header: Header, stream: bytes) -> None:
    """Raises `HeaderError` if this is no stream that begins with the XID of the header."""
    if len(stream) % WORD or len(stream) < WORD:
        raise chunk_error(
            header, f"RPC message of {len(stream)} bytes; allowed: multiples of 4 from 4 on"
        )
    if (xid := int.from_bytes(stream[:WORD])) != header.xid:
        raise chunk_error(
            header, f"XID {xid:#010x} in the RPC message; allowed: {header.xid:#010x}"
        )


def items(header: Header, stream: bytes, chunks: Sequence[ReadChunk]) -> list[int]:
    """Bytes of the item that each chunk holds, from where the reduced stream has its length word.

    The roundup that a chunk may have is left out if that word says so. Raises `HeaderError` for a
    position that the stream does not reach: what is between two chunks, and before the first one,
    is in the stream.
    """
    check_stream(header, stream)
    found: list[int] = []
    taken = inserted = 0  # bytes of the stream, and of chunks with their roundup
    for chunk in chunks:
        at = chunk.position - inserted
        # A length word, or whatever else, is between two items: they are of variable length.
        if not max(taken, WORD) <= at <= len(stream):
            raise chunk_error(
                header,
                f"read chunk at position {chunk.position}; allowed: "
                f"{max(taken, WORD) + inserted} to {len(stream) + inserted}",
            )
        count = int.from_bytes(stream[at - WORD : at])
        found.append(count if roundup(count) == chunk.octets else chunk.octets)
        taken, inserted = at, inserted + roundup(found[-1])
    return found


def join(
    header: Header, stream: bytes, chunks: Sequence[ReadChunk], data: Sequence[memoryview]
) -> Message:
    """The message of a reduced stream and the data of its chunks by position; as `items`."""
    counts = items(header, stream, chunks)
    bulks = [
        Bulk(chunk.position, octets[:count])
        for chunk, octets, count in zip(chunks, data, counts, strict=True)
    ]
    return Message(stream, tuple(bulks))


def split(message: Message, reduced: Sequence[Bulk]) -> bytes:
    """The stream in which all bulk items but the `reduced` ones are inserted.

    `ValueError` if a position is none of the stream.
    """
    positions = {bulk.position for bulk in reduced}
    pieces: list[bytes | memoryview] = []
    taken = passed = least = 0
    for bulk in message.bulks:
        at = bulk.position - passed
        if not least <= at <= len(message.stream) or bulk.position % WORD:
            raise ValueError(
                f"bulk item at position {bulk.position}; allowed: multiples of 4 from "
                f"{least + passed} to {len(message.stream) + passed}"
            )
        least = at
        octets = roundup(len(bulk.data))
        passed += octets
        if bulk.position not in positions:
            pieces += (message.stream[taken:at], bulk.data, bytes(octets - len(bulk.data)))
            taken = at
    return b"".join([*pieces, message.stream[taken:]])
