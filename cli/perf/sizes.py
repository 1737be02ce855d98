"""The sizes of messages as options name them."""

import argparse

from stagecoach.cli.options import parse_size
from stagecoach.cli.perf.settings import MAXIMUM_SIZE


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes in ascending order, of a list such as `64,1000,4KiB` or a range such as `1-64KiB`.

    A range is all powers of two from its first to its last, which are powers of two. Raises
    `ArgumentTypeError`.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash:
            sizes.update(_powers(_size(first), _size(last), part))
        else:
            sizes.add(_size(first))
    return tuple(sorted(sizes))


def _size(text: str) -> int:
    octets = parse_size(text)
    if not 1 <= octets <= MAXIMUM_SIZE:
        raise argparse.ArgumentTypeError(f"size is {text}; allowed: 1 to {MAXIMUM_SIZE >> 20}MiB")
    return octets


def _powers(first: int, last: int, text: str) -> list[int]:
    if first & (first - 1) or last & (last - 1) or first > last:
        raise argparse.ArgumentTypeError(
            f"range of sizes is {text}; allowed: from a power of two to one that is not smaller"
        )
    return [1 << power for power in range(first.bit_length() - 1, last.bit_length())]


def size_text(octets: int) -> str:
    """A size as the options take it."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if octets % factor == 0:
            return f"{octets // factor}{unit}"
    return str(octets)
