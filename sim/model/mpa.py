"""MPA: FPDUs, Markers, sizes (RFC 5044, 3 to 6). Startup frames are in ``startup``."""

from collections.abc import Iterator

from sim.model import errors
from sim.model.crc32c import crc32c_octets
from sim.model.errors import MpaError
from sim.model.startup import EnhancedData, Negotiated, StartupFrame, negotiate

__all__ = [
    "Deframer",
    "EnhancedData",
    "Framer",
    "MpaError",
    "Negotiated",
    "StartupFrame",
    "fpdu_length",
    "frame_fpdu",
    "mulpdu",
    "negotiate",
    "pad_length",
]

# RFC 5044, 4.1.
LENGTH_OCTETS = 2
CRC_OCTETS = 4
# RFC 5044, 4.3.
MARKER_OCTETS = 4
MARKER_INTERVAL = 512
# RFC 5044, 3 and 4.5.
MULPDU_FLOOR = 128
MULPDU_CEILING = 64768
# What the 16-bit ULPDU_Length field can hold.
ULPDU_LENGTH_MAX = 0xFFFF


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
    body = LENGTH_OCTETS + ulpdu_length + pad_length(ulpdu_length)
    if not markers:
        return body + CRC_OCTETS
    # A Marker stands in front of every word whose position is a multiple of the interval, the
    # CRC included: so count what fits before the last octet of the CRC is reached.
    to_first = -position % MARKER_INTERVAL
    octets = body + CRC_OCTETS
    if to_first >= octets:
        return octets
    count = 1 + (octets - to_first - 1) // (MARKER_INTERVAL - MARKER_OCTETS)
    return octets + count * MARKER_OCTETS


def frame_fpdu(ulpdu: bytes, *, crc: bool = True) -> bytes:
    """The FPDU of one ULPDU without Markers; with ``crc`` off the CRC field is zero."""
    return Framer(markers=False, crc=crc).frame(ulpdu)


class Framer:
    """Sender of one direction of Full Operation; remembers the stream position for Markers."""

    def __init__(self, markers: bool = False, crc: bool = True) -> None:
        self.markers = markers
        self.crc = crc
        self.position = 0

    def frame(self, ulpdu: bytes | bytearray | memoryview) -> bytes:
        """The next FPDU of the stream, Markers included."""
        if not 1 <= len(ulpdu) <= ULPDU_LENGTH_MAX:
            raise ValueError(f"ULPDU of {len(ulpdu)} octets; 1 to {ULPDU_LENGTH_MAX} are possible")
        body = len(ulpdu).to_bytes(2, "big") + bytes(ulpdu) + bytes(pad_length(len(ulpdu)))
        covered = self._insert_markers(body) if self.markers else body
        fpdu = covered + (crc32c_octets(covered) if self.crc else bytes(CRC_OCTETS))
        self.position += len(fpdu)
        return fpdu

    def _insert_markers(self, body: bytes) -> bytes:
        """What the CRC covers: ``body`` with a Marker at every multiple of the interval."""
        out = bytearray()
        position = self.position
        start: int | None = None
        taken = 0
        while True:
            if position % MARKER_INTERVAL == 0:
                distance = 0 if start is None else position - start
                out += b"\0\0" + distance.to_bytes(2, "big")
                position += MARKER_OCTETS
            if start is None:
                start = position
            if taken == len(body):
                # Reached also when a Marker was due between PAD and CRC (RFC 5044, 4.4).
                return bytes(out)
            count = min(len(body) - taken, MARKER_INTERVAL - position % MARKER_INTERVAL)
            out += body[taken : taken + count]
            taken += count
            position += count


class Deframer:
    """Receiver of one direction of Full Operation.

    ``feed`` takes the stream in any chunks. Nothing of an FPDU comes out before its CRC was found
    good (RFC 5044, 6). After an error the stream is dead: later octets are swallowed.
    """

    def __init__(self, markers: bool = False, crc: bool = True) -> None:
        self.markers = markers
        self.crc = crc
        self.position = 0
        self.error: MpaError | None = None
        self._buffer = bytearray()
        self._needed = LENGTH_OCTETS

    @property
    def pending(self) -> int:
        """Octets of the incomplete FPDU received so far."""
        return len(self._buffer)

    def feed(self, octets: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Take octets of the stream; gives the ULPDUs completed by them, in order.

        The octets are taken at the call, the checks happen while the result is iterated, so all
        good FPDUs before a bad one are seen before :class:`MpaError` is raised.
        """
        if self.error is None:
            self._buffer += octets
        return self._ulpdus()

    def _ulpdus(self) -> Iterator[bytes]:
        while self.error is None and len(self._buffer) >= self._needed:
            offset = MARKER_OCTETS if self._marker_at(self.position) else 0
            if len(self._buffer) < offset + LENGTH_OCTETS:
                self._needed = offset + LENGTH_OCTETS
                return
            length = int.from_bytes(self._buffer[offset : offset + LENGTH_OCTETS], "big")
            total = fpdu_length(length, markers=self.markers, position=self.position)
            if len(self._buffer) < total:
                self._needed = total
                return
            fpdu = bytes(memoryview(self._buffer)[:total])
            try:
                ulpdu = self._ulpdu_of(fpdu, length)
            except MpaError as error:
                self.error = error
                self._buffer.clear()
                raise
            del self._buffer[:total]
            self.position += total
            self._needed = LENGTH_OCTETS
            yield ulpdu

    def _marker_at(self, position: int) -> bool:
        return self.markers and position % MARKER_INTERVAL == 0

    def _ulpdu_of(self, fpdu: bytes, length: int) -> bytes:
        covered = fpdu[:-CRC_OCTETS]
        if self.crc:
            field, computed = fpdu[-CRC_OCTETS:], crc32c_octets(covered)
            if field != computed:
                raise MpaError(
                    errors.MPA_CRC,
                    f"FPDU at stream octet {self.position} carries CRC {field.hex()}, "
                    f"computed {computed.hex()}",
                )
        if not self.markers:
            return covered[LENGTH_OCTETS : LENGTH_OCTETS + length]
        return self._remove_markers(covered)[LENGTH_OCTETS : LENGTH_OCTETS + length]

    def _remove_markers(self, covered: bytes) -> bytes:
        body = bytearray()
        start: int | None = None
        offset = 0
        while offset < len(covered):
            if self._marker_at(self.position + offset):
                # The low two bits count as zero (RFC 5044, 4.2, erratum 1427).
                pointer = int.from_bytes(covered[offset + 2 : offset + 4], "big") & ~3
                distance = 0 if start is None else offset - start
                if pointer != distance:
                    raise MpaError(
                        errors.MPA_MARKER_MISMATCH,
                        f"Marker at stream octet {self.position + offset} has FPDUPTR {pointer}, "
                        f"the FPDU started {distance} octets before it",
                    )
                offset += MARKER_OCTETS
            if start is None:
                start = offset
            to_marker = MARKER_INTERVAL - (self.position + offset) % MARKER_INTERVAL
            body += covered[offset : offset + to_marker]
            offset += to_marker
        return bytes(body)
