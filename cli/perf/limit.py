"""What the protocol allows: bytes on the wire for a message, against 8 bytes per cycle.

A message is cut into segments of at most MULPDU bytes with their header, and each travels in an
FPDU: how long those are, the reference model says (`sim/model`). With Markers, 4 of every 512
octets of the stream are one (RFC 5044, 4.3).

The two directions of a connection, and so of the LLP port, are independent of each other: the one
with more bytes on the wire is the limit. What TCP and the layers below add is not counted.
"""

from dataclasses import dataclass

from stagecoach.sim.model.fpdu_sizes import fpdu_length, mulpdu
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS

PORT_OCTETS = 8
"""Of the LLP port, per cycle and direction."""


@dataclass(frozen=True)
class Framing:
    """What connections agreed on: `emss` in bytes, and whether both send `markers`."""

    emss: int
    markers: bool = False

    @property
    def mulpdu(self) -> int:
        """Bytes of the longest segment, with its header."""
        return mulpdu(self.emss, self.markers)

    def segments(self, octets: int, header: int) -> list[tuple[int, int]]:
        """The segments of a message of `octets`, in order: how many, and the bytes of each.

        `header`: bytes of DDP and RDMAP in each segment.
        """
        full, rest = divmod(octets, self.mulpdu - header)
        last = [(1, rest + header)] if rest or not full else []
        return [(full, self.mulpdu), *last]

    def message(self, octets: int, header: int) -> float:
        """Bytes on the wire for a message, as in `segments`; with Markers, on average."""
        total = sum(count * fpdu_length(ulpdu) for count, ulpdu in self.segments(octets, header))
        if self.markers:
            return total * MARKER_INTERVAL / (MARKER_INTERVAL - MARKER_OCTETS)
        return total


@dataclass(frozen=True)
class WireOctets:
    """Bytes on the wire for one message: to the server, and back from it."""

    there: float
    back: float = 0

    @property
    def messages_per_cycle(self) -> float:
        """The most that the protocol allows, over however many QPs."""
        return PORT_OCTETS / max(self.there, self.back)

    @property
    def messages_per_cycle_both_ways(self) -> float:
        """The same, if as many messages come from each end; those of both count."""
        return 2 * PORT_OCTETS / (self.there + self.back)
