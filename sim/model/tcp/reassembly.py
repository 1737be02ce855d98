"""Data out of order, and the SACK blocks that report it (RFC 9293, 3.10.7.4; RFC 2018)."""

from stagecoach.sim.model.tcp.options import SACK_BLOCKS_MAX

RANGES_MAX = 4


class Reassembly:
    """Bytes received past the first gap, in at most ``ranges_max`` ranges.

    Positions are counts of bytes since the first byte of the stream; ``next`` is RCV.NXT.
    A range that would be one too many is discarded, as RFC 2018, 8 allows before it is reported.
    """

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        if ranges_max < 1:
            raise ValueError(f"{ranges_max} ranges (expected at least 1)")
        self.next = 0
        self._ranges_max = ranges_max
        # Disjoint, with a gap between each two; the one received last is first.
        self._ranges: list[tuple[int, bytes]] = []

    def take(self, position: int, octets: bytes) -> bytes:
        """Take a segment's data; returns what is in order now, possibly nothing."""
        cut = max(0, self.next - position)
        start, octets = position + cut, octets[cut:]
        if not octets:
            return b""
        touched = [item for item in self._ranges if self._touch(item, start, octets)]
        others = [item for item in self._ranges if item not in touched]
        if start > self.next and len(others) == self._ranges_max:
            return b""
        first = min([start, *(item[0] for item in touched)])
        joined = bytearray(max([start + len(octets), *map(_end, touched)]) - first)
        # What was there first stays.
        for at, part in [(start, octets), *touched]:
            joined[at - first : at - first + len(part)] = part
        if first > self.next:
            self._ranges = [(first, bytes(joined)), *others]
            return b""
        self._ranges = others
        self.next = first + len(joined)
        return bytes(joined)

    @property
    def gap(self) -> bool:
        """Whether data after a gap is held."""
        return bool(self._ranges)

    def blocks(self) -> list[tuple[int, int]]:
        """Left and right edges for the SACK option, the range received last first (RFC 2018, 4)."""
        return [(item[0], _end(item)) for item in self._ranges[:SACK_BLOCKS_MAX]]

    @staticmethod
    def _touch(item: tuple[int, bytes], start: int, octets: bytes) -> bool:
        """Whether they overlap or are adjacent."""
        return item[0] <= start + len(octets) and start <= _end(item)


def _end(item: tuple[int, bytes]) -> int:
    return item[0] + len(item[1])
