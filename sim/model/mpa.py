"""MPA: FPDUs (RFC 5044, 3 to 6). Their sizes, Markers and startup frames have own modules."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from stagecoach.sim.model import checks
from stagecoach.sim.model.crc32c import crc32c_octets
from stagecoach.sim.model.errors import MpaError, StreamError
from stagecoach.sim.model.fpdu_sizes import (
    CRC_OCTETS,
    LENGTH_OCTETS,
    MULPDU_CEILING,
    fpdu_length,
    mulpdu,
    pad_length,
)
from stagecoach.sim.model.markers import (
    MARKER_INTERVAL,
    MARKER_OCTETS,
    Marker,
    due,
    insert_markers,
    remove_markers,
)
from stagecoach.sim.model.startup import EnhancedData, Negotiated, StartupFrame, negotiate

__all__ = [
    "MARKER_INTERVAL",
    "MARKER_OCTETS",
    "Deframer",
    "EnhancedData",
    "Fpdu",
    "Framer",
    "Marker",
    "MpaError",
    "Negotiated",
    "StartupFrame",
    "fpdu_length",
    "frame_fpdu",
    "mulpdu",
    "needed_octets",
    "negotiate",
    "pad_length",
    "parse_fpdu",
]

# What the 16-bit ULPDU_Length field can hold; above the ceiling only to provoke a receiver.
ULPDU_LENGTH_MAX = 0xFFFF


def frame_fpdu(
    ulpdu: bytes, *, crc: bool = True, markers: bool = False, position: int = 0
) -> bytes:
    """The FPDU of one ULPDU at stream ``position``; with ``crc`` off the CRC field is zero."""
    return Framer(markers, crc, position).frame(ulpdu)


class Framer:
    """Sender of one direction of Full Operation; remembers the stream position for Markers."""

    def __init__(self, markers: bool = False, crc: bool = True, position: int = 0) -> None:
        self.markers = markers
        self.crc = crc
        self.position = position

    def frame(self, ulpdu: bytes | bytearray | memoryview) -> bytes:
        """The next FPDU of the stream, Markers included."""
        if not 1 <= len(ulpdu) <= ULPDU_LENGTH_MAX:
            raise ValueError(f"ULPDU of {len(ulpdu)} bytes; 1 to {ULPDU_LENGTH_MAX} are possible")
        body = len(ulpdu).to_bytes(2, "big") + bytes(ulpdu) + bytes(pad_length(len(ulpdu)))
        covered = insert_markers(body, self.position) if self.markers else body
        fpdu = covered + (crc32c_octets(covered) if self.crc else bytes(CRC_OCTETS))
        self.position += len(fpdu)
        return fpdu


@dataclass(frozen=True)
class Fpdu:
    """One whole FPDU as it came, nothing of it checked but its length."""

    position: int
    octets: bytes
    ulpdu: bytes
    pad: bytes
    markers: tuple[Marker, ...]

    @property
    def crc(self) -> bytes:
        """The CRC field."""
        return self.octets[-CRC_OCTETS:]

    @cached_property
    def computed_crc(self) -> bytes:
        """What the CRC field has to be (RFC 5044, 4.4)."""
        return crc32c_octets(self.octets[:-CRC_OCTETS])

    def failures(self, crc: bool) -> Iterator[StreamError]:
        """The checks that it fails, in their order; ``crc`` says whether CRCs are in use."""
        if crc and self.crc != self.computed_crc:
            yield checks.CRC.failed(
                f"FPDU at stream byte {self.position} carries CRC {self.crc.hex()}, "
                f"computed {self.computed_crc.hex()}"
            )
        for marker in self.markers:
            if not marker.matches:
                yield checks.MARKER.failed(
                    f"Marker at stream byte {self.position + marker.offset} has FPDUPTR "
                    f"{marker.fpduptr}, the FPDU started {marker.distance} bytes before it"
                )


def needed_octets(
    octets: bytes | bytearray | memoryview, *, markers: bool = False, position: int = 0
) -> int:
    """How many octets there must be for the FPDU at the start of ``octets``.

    As long as its ULPDU_Length is missing, the octets up to its end. Raises :class:`MpaError` for
    one above 64768 as soon as it is seen.
    """
    offset = MARKER_OCTETS if markers and due(position) else 0
    if len(octets) < offset + LENGTH_OCTETS:
        return offset + LENGTH_OCTETS
    length = int.from_bytes(octets[offset : offset + LENGTH_OCTETS], "big")
    if length > MULPDU_CEILING:
        raise checks.ULPDU_LENGTH.failed(
            f"FPDU at stream byte {position} has ULPDU_Length {length}; "
            f"{MULPDU_CEILING} is the most"
        )
    return fpdu_length(length, markers=markers, position=position)


def parse_fpdu(fpdu: bytes, *, markers: bool = False, position: int = 0) -> Fpdu:
    """The parts of an FPDU of which :func:`needed_octets` are there."""
    covered = fpdu[:-CRC_OCTETS]
    body, found = remove_markers(covered, position) if markers else (covered, ())
    end = LENGTH_OCTETS + int.from_bytes(body[:LENGTH_OCTETS], "big")
    return Fpdu(position, fpdu, body[LENGTH_OCTETS:end], body[end:], found)


class Deframer:
    """Receiver of one direction of Full Operation.

    ``feed`` takes the stream in any chunks. Nothing of an FPDU comes out before its CRC was found
    good (RFC 5044, 6), and its Markers, every one of which is checked although 8 makes most of
    that optional. After an error the stream is dead: later octets are swallowed.
    """

    def __init__(self, markers: bool = False, crc: bool = True, position: int = 0) -> None:
        self.markers = markers
        self.crc = crc
        self.position = position
        self.error: StreamError | None = None
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
            try:
                self._needed = needed_octets(
                    self._buffer, markers=self.markers, position=self.position
                )
                if len(self._buffer) < self._needed:
                    return
                octets = bytes(memoryview(self._buffer)[: self._needed])
                fpdu = parse_fpdu(octets, markers=self.markers, position=self.position)
                for failure in fpdu.failures(self.crc):
                    raise failure
            except StreamError as error:
                self.error = error
                self._buffer.clear()
                raise
            del self._buffer[: len(octets)]
            self.position += len(octets)
            self._needed = LENGTH_OCTETS
            yield fpdu.ulpdu
