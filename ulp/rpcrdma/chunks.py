"""Segments and the three chunk lists of a header (RFC 5666, 4.3; RFC 8166, 4.1.2 and 4.3)."""

from collections.abc import Iterable
from dataclasses import dataclass

from stagecoach.ulp.rpcrdma.xdr_words import WORD, Words, pack

SEGMENT_OCTETS = 4 * WORD
READ_SEGMENT_OCTETS = 2 * WORD + SEGMENT_OCTETS
"""With the word that says that there is one, and its Position."""

EMPTY_LISTS_OCTETS = 3 * WORD


class ListError(ValueError):
    """The bytes are no chunk lists."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A plain segment: `length` bytes at `offset` of the memory registered under `handle`."""

    handle: int
    length: int
    offset: int

    def encode(self) -> bytes:
        """HLOO."""
        return pack(self.handle, self.length) + self.offset.to_bytes(2 * WORD)

    @classmethod
    def decode(cls, words: Words) -> "Segment":
        """The inverse of `encode`."""
        return cls(words.word(), words.word(), words.word(2))


@dataclass(frozen=True, slots=True)
class ReadSegment:
    """A read segment; those of one chunk have the same `position` in the whole XDR stream."""

    position: int
    target: Segment


WriteChunk = tuple[Segment, ...]
"""A chunk of the write list, or the reply chunk."""


def octets_of(chunk: Iterable[Segment]) -> int:
    """Bytes of a chunk."""
    return sum(segment.length for segment in chunk)


@dataclass(frozen=True, slots=True)
class ChunkLists:
    """Read list, write list, and reply chunk, `None` if there is none."""

    reads: tuple[ReadSegment, ...] = ()
    writes: tuple[WriteChunk, ...] = ()
    reply: WriteChunk | None = None

    @property
    def octets(self) -> int:
        """Length of `encode()`."""
        octets = EMPTY_LISTS_OCTETS + READ_SEGMENT_OCTETS * len(self.reads)
        octets += sum(2 * WORD + SEGMENT_OCTETS * len(chunk) for chunk in self.writes)
        return octets + (0 if self.reply is None else WORD + SEGMENT_OCTETS * len(self.reply))

    def encode(self) -> bytes:
        """The three lists as in the header."""
        reads = [pack(1, each.position) + each.target.encode() for each in self.reads]
        writes = [pack(1) + _encode_chunk(chunk) for chunk in self.writes]
        reply = pack(0) if self.reply is None else pack(1) + _encode_chunk(self.reply)
        return b"".join([*reads, pack(0), *writes, pack(0), reply])

    @classmethod
    def decode(cls, words: Words) -> "ChunkLists":
        """The inverse of `encode`; raises `Truncated` or `ListError`.

        A list has no more entries than the bytes hold, so that none is endless.
        """
        reads: list[ReadSegment] = []
        while _present(words, "read list"):
            reads.append(ReadSegment(words.word(), Segment.decode(words)))
        writes: list[WriteChunk] = []
        while _present(words, "write list"):
            writes.append(_decode_chunk(words))
        reply = _decode_chunk(words) if _present(words, "reply chunk") else None
        return cls(tuple(reads), tuple(writes), reply)


def _encode_chunk(chunk: WriteChunk) -> bytes:
    return pack(len(chunk)) + b"".join(segment.encode() for segment in chunk)


def _decode_chunk(words: Words) -> WriteChunk:
    count = words.word()
    if count > words.left // SEGMENT_OCTETS:
        raise ListError(
            f"a chunk of {count} segments; allowed: 0 to {words.left // SEGMENT_OCTETS}, "
            "for which there are bytes"
        )
    return tuple(Segment.decode(words) for _ in range(count))


def _present(words: Words, what: str) -> bool:
    """The boolean of optional data (RFC 4506, 4.4 and 4.19)."""
    value = words.word()
    if value > 1:
        raise ListError(f"{what} begins with {value}; allowed: 0, 1")
    return bool(value)
