"""What the protocol allows: octets on the wire for a message, against 8 octets per cycle.

A message is cut into segments of at most MULPDU octets with their header (RFC 5044, 4.5):

    EMSS - (6 + EMSS mod 4)                          without Markers
    EMSS - (6 + 4 * ceil(EMSS / 512) + EMSS mod 4)   with Markers

and from 128 to 64768 (RFC 5044, 3). A segment has a DDP and RDMAP header of 14 octets if it is
tagged (RDMA Write and Read Response; RFC 5041, 4.2) or 18 if it is untagged (RFC 5041, 4.3). A
Read Request has 28 more octets (RFC 5040, 4.4), an Atomic Request 52 and an Atomic Response 12
(RFC 7306, 5.2). A segment travels in an FPDU: ULPDU_Length of 2 octets, the segment, a pad to a
multiple of 4, and a CRC of 4 (RFC 5044, 4.1). With Markers, 4 of every 512 octets of the stream are
one (RFC 5044, 4.3).

The two directions of a connection, and so of the LLP port, are independent of each other: the one
with more octets on the wire is the limit. What TCP and the layers below add is not counted.
"""

import math
from dataclasses import dataclass

PORT_OCTETS = 8
"""Of the LLP port, per cycle and direction."""

TAGGED_HEADER = 14
UNTAGGED_HEADER = 18
READ_REQUEST_HEADER = 28
ATOMIC_REQUEST_HEADER = 52
ATOMIC_RESPONSE_HEADER = 12

_LEAST_MULPDU, _MOST_MULPDU = 128, 64768  # RFC 5044, 3
_LENGTH = 2
_CRC = 4
_MARKER = 4
_MARKER_SPACING = 512


@dataclass(frozen=True)
class Framing:
    """What connections agreed on: `emss` in octets, and whether both send `markers`."""

    emss: int
    markers: bool = False

    @property
    def mulpdu(self) -> int:
        """Octets of the longest segment, with its header."""
        taken = 6 + self.emss % 4
        if self.markers:
            taken += _MARKER * math.ceil(self.emss / _MARKER_SPACING)
        return min(max(self.emss - taken, _LEAST_MULPDU), _MOST_MULPDU)

    def message(self, octets: int, header: int) -> float:
        """Octets on the wire for a message of `octets`; with Markers, on average.

        `header`: octets of DDP and RDMAP in each segment.
        """
        room = self.mulpdu - header
        full, rest = divmod(octets, room)
        total = full * _fpdu(self.mulpdu)
        if rest or not full:
            total += _fpdu(rest + header)
        if self.markers:
            return total * _MARKER_SPACING / (_MARKER_SPACING - _MARKER)
        return total


def _fpdu(ulpdu: int) -> int:
    return -(-(_LENGTH + ulpdu) // 4) * 4 + _CRC


@dataclass(frozen=True)
class WireOctets:
    """Octets on the wire for one message: to the server, and back from it."""

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
