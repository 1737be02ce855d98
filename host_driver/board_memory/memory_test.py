"""A test of data pins and address pins of a memory, by bursts of software.

It finds pins that are stuck, open or shorted, and lanes that disturb each other. It is no test of
all cells, nor of the user port: what it writes are some dozens of bursts.
"""

from collections.abc import Iterator
from random import Random

from stagecoach.host_driver.board_memory.bursts import BURST, BURST_OCTETS, LANES, Bursts
from stagecoach.host_driver.board_memory.errors import MemoryTestFailed, Place
from stagecoach.host_driver.board_memory.levelling import Progress
from stagecoach.hw.interface.litedram import GEOMETRY

DATA, ADDRESSES = "data test", "address test"

RANDOM_BURSTS = 8


def _burst(*words: int) -> bytes:
    """A burst of these words, one for each column, over and over."""
    octets = b"".join(word.to_bytes(LANES, "little") for word in words)
    return octets * (BURST_OCTETS // len(octets))


def data_patterns() -> Iterator[bytes]:
    """Levels, changes of all pins at once and of their neighbours, each pin alone, random ones."""
    pins = 8 * LANES
    ones = (1 << pins) - 1
    checker = ones // 3
    yield from (_burst(0), _burst(ones), _burst(0, ones), _burst(checker, ones ^ checker))
    for flip in (0, ones):
        for first in range(0, pins, BURST):
            yield _burst(*(1 << pin ^ flip for pin in range(first, first + BURST)))
    random = Random(1)
    for _ in range(RANDOM_BURSTS):
        yield random.randbytes(BURST_OCTETS)


def address_places() -> Iterator[Place]:
    """The first burst, and those whose address has one bit."""
    yield Place(0, 0, 0)
    for bit in range(GEOMETRY["bankbits"]):
        yield Place(1 << bit, 0, 0)
    for bit in range(GEOMETRY["rowbits"]):
        yield Place(0, 1 << bit, 0)
    for bit in range(GEOMETRY["colbits"]):
        if 1 << bit >= BURST:
            yield Place(0, 0, 1 << bit)


def check_memory(bursts: Bursts, progress: Progress) -> None:
    """Test a memory that is levelled; what it held is lost.

    Raises `MemoryTestFailed`, and errors as `Bursts` does.
    """
    patterns = list(data_patterns())
    for number, pattern in enumerate(patterns):
        progress(DATA, number, len(patterns))
        place = Place(0, 0, 0)
        bursts.write(place, pattern)
        _compare(DATA, bursts, place, pattern)
    progress(DATA, len(patterns), len(patterns))

    places = list(address_places())
    random = Random(2)
    written = [random.randbytes(BURST_OCTETS) for _ in places]
    for place, octets in zip(places, written, strict=True):
        bursts.write(place, octets)
    for number, (place, octets) in enumerate(zip(places, written, strict=True)):
        progress(ADDRESSES, number, len(places))
        _compare(ADDRESSES, bursts, place, octets)
    progress(ADDRESSES, len(places), len(places))


def _compare(test: str, bursts: Bursts, place: Place, written: bytes) -> None:
    read, _ = bursts.read(place)
    if read != written:
        raise MemoryTestFailed(test, place, written, read)
