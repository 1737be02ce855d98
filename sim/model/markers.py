"""MPA Markers: where they stand, what they say, and how they come and go (RFC 5044, 4.2, 4.3).

A position counts the octets of one direction from the first of Full Operation, Markers included:
it is the TCP sequence number less that of the first octet, so the wrap of sequence numbers does
not touch it.
"""

from dataclasses import dataclass

# RFC 5044, 4.3.
MARKER_OCTETS = 4
MARKER_INTERVAL = 512
# RFC 5044, 4.2: the low two bits of FPDUPTR count as zero.
_POINTER_MASK = 0xFFFC
_POINTER_SPAN = 2**16


@dataclass(frozen=True)
class Marker:
    """A Marker as received.

    ``offset`` counts from the first octet of its FPDU, a Marker directly before the FPDU being
    part of it. ``distance`` is what FPDUPTR has to say: the octets from the ULPDU_Length field to
    the Marker, or 0 directly before that field.
    """

    offset: int
    reserved: int
    fpduptr: int
    distance: int

    @property
    def matches(self) -> bool:
        """Whether FPDUPTR and the FPDU agree; the low two bits count as zero (erratum 1427)."""
        return self.fpduptr & _POINTER_MASK == self.distance % _POINTER_SPAN


def due(position: int) -> bool:
    """Whether a Marker stands at ``position``."""
    return position % MARKER_INTERVAL == 0


def marked_length(octets: int, position: int) -> int:
    """Length of ``octets`` (a multiple of four) of an FPDU, CRC included, with its Markers.

    A Marker stands in front of every word whose position is a multiple of the interval, so a
    Marker directly before the FPDU counts and one after its CRC does not.
    """
    to_first = -position % MARKER_INTERVAL
    if to_first >= octets:
        return octets
    count = 1 + (octets - to_first - 1) // (MARKER_INTERVAL - MARKER_OCTETS)
    return octets + count * MARKER_OCTETS


def insert_markers(body: bytes, position: int) -> bytes:
    """What the CRC of an FPDU at ``position`` covers.

    ``body`` is ULPDU_Length, ULPDU and PAD. A Marker due between PAD and CRC ends the result.
    """
    out = bytearray()
    start = MARKER_OCTETS if due(position) else 0
    taken = 0
    while True:
        if due(position + len(out)):
            distance = max(len(out) - start, 0)
            out += b"\0\0" + (distance % _POINTER_SPAN).to_bytes(2, "big")
        if taken == len(body):
            return bytes(out)
        count = MARKER_INTERVAL - (position + len(out)) % MARKER_INTERVAL
        out += body[taken : taken + count]
        taken = min(taken + count, len(body))


def remove_markers(covered: bytes, position: int) -> tuple[bytes, tuple[Marker, ...]]:
    """Undoes :func:`insert_markers`: the body and the Markers, which are not checked."""
    body = bytearray()
    found = []
    start = MARKER_OCTETS if due(position) else 0
    offset = 0
    while offset < len(covered):
        if due(position + offset):
            reserved = int.from_bytes(covered[offset : offset + 2], "big")
            pointer = int.from_bytes(covered[offset + 2 : offset + MARKER_OCTETS], "big")
            found.append(Marker(offset, reserved, pointer, max(offset - start, 0)))
            offset += MARKER_OCTETS
        to_marker = MARKER_INTERVAL - (position + offset) % MARKER_INTERVAL
        body += covered[offset : offset + to_marker]
        offset += to_marker
    return bytes(body), tuple(found)
