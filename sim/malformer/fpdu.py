"""An FPDU that may be wrong, and the bytes that a list of them gives on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass

from stagecoach.sim.malformer.setting import Setting
from stagecoach.sim.model import mpa
from stagecoach.sim.model.crc32c import crc32c_octets
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS, insert_markers


@dataclass(frozen=True)
class Edit:
    """Bytes of the framed FPDU replaced: `cut` of them at `at` (mod its length) by `octets`."""

    at: int
    cut: int
    octets: bytes

    def apply(self, fpdu: bytearray, markers: Sequence[int]) -> None:
        """Does it; `markers` are the offsets of the FPDU's Markers."""
        at = self.at % max(1, len(fpdu))
        fpdu[at : at + self.cut] = self.octets


@dataclass(frozen=True)
class Flip:
    """One bit of the framed FPDU inverted (mod its length)."""

    bit: int

    def apply(self, fpdu: bytearray, markers: Sequence[int]) -> None:
        """Does it."""
        if fpdu:
            bit = self.bit % (8 * len(fpdu))
            fpdu[bit // 8] ^= 0x80 >> bit % 8


@dataclass(frozen=True)
class MarkerEdit:
    """One Marker (mod their number) XORed with `mask`, or replaced by `octets` if these are given.

    Without a Marker in the FPDU nothing happens.
    """

    which: int
    mask: int = 0
    octets: bytes | None = None

    def apply(self, fpdu: bytearray, markers: Sequence[int]) -> None:
        """Does it."""
        if not markers:
            return
        at = markers[self.which % len(markers)]
        old = int.from_bytes(fpdu[at : at + MARKER_OCTETS], "big")
        new = (old ^ self.mask).to_bytes(MARKER_OCTETS, "big")
        fpdu[at : at + MARKER_OCTETS] = new if self.octets is None else self.octets


@dataclass(frozen=True)
class Fpdu:
    """A ULPDU and what was done to it.

    Attributes
    ----------
    kind: the message that it was. claimed: ULPDU_Length if not the length of the ULPDU.
    pad: if not zeros. edits: made after framing. crc_mask: XORed to the CRC. fixed: the CRC is
        made good again, where the receiver will look for it. mutations: their names.
    """

    kind: str
    ulpdu: bytes
    claimed: int | None = None
    pad: bytes | None = None
    edits: tuple[Edit | Flip | MarkerEdit, ...] = ()
    crc_mask: int = 0
    fixed: bool = True
    mutations: tuple[str, ...] = ()

    def frame(self, setting: Setting, position: int) -> bytes:
        """The bytes at a position of the stream."""
        claimed = len(self.ulpdu) if self.claimed is None else self.claimed
        pad = bytes(mpa.pad_length(len(self.ulpdu))) if self.pad is None else self.pad
        body = claimed.to_bytes(mpa.LENGTH_OCTETS, "big") + self.ulpdu + pad
        covered = insert_markers(body, position) if setting.markers_in else body
        octets = bytearray(covered)
        octets += crc32c_octets(covered) if setting.crc else bytes(mpa.CRC_OCTETS)
        if self.edits:
            first = -position % MARKER_INTERVAL if setting.markers_in else len(covered)
            markers = range(first, len(covered), MARKER_INTERVAL)
            for edit in self.edits:
                edit.apply(octets, markers)
            if self.fixed and setting.crc and len(octets) > mpa.CRC_OCTETS:
                octets[-mpa.CRC_OCTETS :] = crc32c_octets(octets[: -mpa.CRC_OCTETS])
        if self.crc_mask:
            crc = int.from_bytes(octets[-mpa.CRC_OCTETS :], "big") ^ self.crc_mask
            octets[-mpa.CRC_OCTETS :] = crc.to_bytes(mpa.CRC_OCTETS, "big")
        return bytes(octets)


def assemble(fpdus: Sequence[Fpdu], setting: Setting) -> tuple[bytes, list[int]]:
    """The bytes of the stream, and where each FPDU starts in it."""
    stream = bytearray()
    starts = []
    for fpdu in fpdus:
        starts.append(len(stream))
        stream += fpdu.frame(setting, len(stream))
    for fpdu, start in zip(fpdus, starts, strict=True):
        if fpdu.claimed is not None and fpdu.fixed and setting.crc:
            _fit_crc(stream, start, setting)
    return bytes(stream), starts


def _fit_crc(stream: bytearray, start: int, setting: Setting) -> None:
    """Makes the CRC good where a ULPDU_Length in error puts it, if the stream goes so far."""
    rest = memoryview(stream)[start:]
    try:
        needed = mpa.needed_octets(rest, markers=setting.markers_in, position=start)
    except StreamError:
        return
    if needed > len(rest):
        return
    crc = crc32c_octets(rest[: needed - mpa.CRC_OCTETS])
    rest[needed - mpa.CRC_OCTETS : needed] = crc
