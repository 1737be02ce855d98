"""MPA: how long ULPDUs may be, and FPDUs are (RFC 5044, 3 and 4)."""

from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS, marked_length

# RFC 5044, 4.1.
LENGTH_OCTETS = 2
CRC_OCTETS = 4
# RFC 5044, 3 and 4.5.
MULPDU_FLOOR = 128
MULPDU_CEILING = 64768


def mulpdu(emss: int, markers: bool = False) -> int:
    """Largest ULPDU for a TCP segment of ``emss`` octets (RFC 5044, 4.5)."""
    overhead = LENGTH_OCTETS + CRC_OCTETS + emss % 4
    if markers:
        overhead += MARKER_OCTETS * -(-emss // MARKER_INTERVAL)
    return min(max(emss - overhead, MULPDU_FLOOR), MULPDU_CEILING)


def pad_length(ulpdu_length: int) -> int:
    """Octets of PAD which make ULPDU_Length, ULPDU and PAD a multiple of four."""
    return -(LENGTH_OCTETS + ulpdu_length) % 4


def fpdu_length(ulpdu_length: int, *, markers: bool = False, position: int = 0) -> int:
    """Octets of the stream that an FPDU takes when it starts at stream ``position``.

    With Markers this includes a Marker directly before the FPDU and one between PAD and CRC.
    """
    octets = LENGTH_OCTETS + ulpdu_length + pad_length(ulpdu_length) + CRC_OCTETS
    return marked_length(octets, position) if markers else octets
