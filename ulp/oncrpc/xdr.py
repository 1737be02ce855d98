"""XDR streams (RFC 4506) with bulk items beside them: what types pack into and unpack from."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import xdrlib3

from stagecoach.ulp.oncrpc.errors import MisplacedItem, XdrError
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message, roundup

T = TypeVar("T")


@contextmanager
def _as_xdr_error() -> Iterator[None]:
    """Tells what xdrlib3 raises as `XdrError`."""
    try:
        yield
    except EOFError as error:
        raise XdrError("the stream ends inside an item") from error
    except (xdrlib3.Error, TypeError) as error:
        raise XdrError(str(error)) from error


class Encoder:
    """Makes a `Message`, item by item."""

    def __init__(self) -> None:
        self._packer = xdrlib3.Packer()
        self._pieces: list[bytes] = []
        self._bulks: list[Bulk] = []
        self._position = 0  # in the whole stream, where the packer's bytes begin

    def uint(self, value: int) -> None:
        """An unsigned integer of 32 bits."""
        with _as_xdr_error():
            self._packer.pack_uint(value)

    def enum(self, value: int) -> None:
        """An integer of 32 bits, that of an enumeration."""
        with _as_xdr_error():
            self._packer.pack_int(value)

    def uhyper(self, value: int) -> None:
        """An unsigned integer of 64 bits, range checked by the caller."""
        with _as_xdr_error():
            self._packer.pack_uhyper(value)

    def fixed(self, octets: bytes) -> None:
        """Opaque data of a length that is declared."""
        self._packer.pack_fopaque(len(octets), octets)

    def opaque(self, octets: bytes) -> None:
        """Opaque data after its length."""
        self._packer.pack_opaque(octets)

    def bulk(self, data: memoryview) -> None:
        """Opaque data after its length that the transport may move beside the stream."""
        self.uint(len(data))
        if len(data):
            self._cut()
            self._bulks.append(Bulk(self._position, data))
            self._position += roundup(len(data))

    def _cut(self) -> None:
        piece = self._packer.get_buffer()
        self._packer.reset()
        self._pieces.append(piece)
        self._position += len(piece)

    def message(self) -> Message:
        """All that was packed."""
        self._cut()
        return Message(b"".join(self._pieces), tuple(self._bulks))


class Decoder:
    """Takes a `Message` apart, item by item. All methods raise `XdrError`, and nothing else.

    Parameters
    ----------
    into: buffers where bulk items shall be, in order; those that a transport has placed there are,
        the others are copied there. An item whose buffer is empty is left where it is.

    Bulk items are found where the binding has them only: a chunk in another place is an error of
    the item that it is in, or that follows.
    """

    def __init__(self, message: Message, into: Sequence[memoryview] = ()):
        self._unpacker = xdrlib3.Unpacker(message.stream)
        self._octets = len(message.stream)
        self._bulks = list(reversed(message.bulks))
        self._inserted = 0
        self._into = iter(into)

    def _take(self, unpack: Callable[[], T]) -> T:
        with _as_xdr_error():
            taken = unpack()
        self._check_passed()
        return taken

    @property
    def _position(self) -> int:
        """In the whole stream."""
        return self._unpacker.get_position() + self._inserted

    def _check_passed(self) -> None:
        """Raises if a chunk begins inside of what was taken: it was reduced, and must not be."""
        bulk = self._bulks[-1] if self._bulks else None
        if bulk is not None and len(bulk.data) and PLACED < bulk.position < self._position:
            raise MisplacedItem(
                f"a chunk at position {bulk.position}; allowed: where a bulk item begins"
            )

    @property
    def remaining(self) -> int:
        """Bytes of the stream that are not unpacked yet."""
        return self._octets - self._unpacker.get_position()

    def uint(self) -> int:
        """An unsigned integer of 32 bits."""
        return self._take(self._unpacker.unpack_uint)

    def enum(self) -> int:
        """An integer of 32 bits, that of an enumeration."""
        return self._take(self._unpacker.unpack_enum)

    def uhyper(self) -> int:
        """An unsigned integer of 64 bits."""
        return self._take(self._unpacker.unpack_uhyper)

    def fixed(self, octets: int) -> bytes:
        """Opaque data of a length that is declared."""
        return self._take(lambda: self._unpacker.unpack_fopaque(octets))

    def length(self, maximum: int) -> int:
        """The length word of an item, at most `maximum`."""
        octets = self.uint()
        if octets > maximum:
            raise XdrError(f"length {octets}; allowed: 0 to {maximum}")
        return octets

    def bulk(self, maximum: int) -> memoryview:
        """Opaque data after its length, from beside the stream if the transport moved it there."""
        octets = self.length(maximum)
        if not octets and self._next_is_placed:
            # That is the next item: an empty one need not take a chunk (RFC 8166, 4.3.2.2).
            return memoryview(b"")
        place = next(self._into, None)
        bulk = self._beside(octets, place)
        if bulk is not None and bulk.position == PLACED:
            return bulk.data[:octets]
        data = memoryview(self.fixed(octets)) if bulk is None else bulk.data[:octets]
        if not place:
            return data
        if octets > len(place):
            raise XdrError(f"an item of {octets} bytes; allowed: {len(place)}, its buffer")
        place[:octets] = data
        return place[:octets]

    @property
    def _next_is_placed(self) -> bool:
        """Whether the next write chunk is used."""
        bulk = self._bulks[-1] if self._bulks else None
        return bulk is not None and bulk.position == PLACED and len(bulk.data) > 0

    def _beside(self, octets: int, place: memoryview | None) -> Bulk | None:
        if not self._bulks or self._bulks[-1].position not in (self._position, PLACED):
            return None
        bulk = self._bulks.pop()
        if bulk.position == PLACED and not len(bulk.data):
            # A write chunk that the peer did not use.
            if octets and place:
                raise MisplacedItem(
                    f"an item of {octets} bytes in the stream; allowed: in its write chunk of "
                    f"{len(place)}"
                )
            return None
        # With or without roundup (RFC 5666, 3.7; RFC 8166, 3.4.5.2).
        if len(bulk.data) not in (octets, roundup(octets)):
            raise XdrError(f"an item of {octets} bytes has a chunk of {len(bulk.data)}")
        if bulk.position != PLACED:
            self._inserted += roundup(octets)
        return bulk

    def done(self) -> None:
        """Raises unless everything was unpacked."""
        if self.remaining:
            raise XdrError(f"{self.remaining} bytes too many in the stream")
        for bulk in self._bulks:
            if len(bulk.data):
                raise XdrError(f"a chunk of {len(bulk.data)} bytes belongs to no item")
