"""What can be said of one FPDU that was seen on the wire."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.model import rdmap, words
from sim.model.ddp import Header, UntaggedHeader
from sim.model.direction import Direction
from sim.model.errors import ErrorCode
from sim.model.mpa import Fpdu
from sim.model.rdmap import Opcode, ReadRequest, Terminate


@dataclass(frozen=True)
class Problem:
    """What is wrong, and the text that says so; ``error`` if a receiver ends the stream for it."""

    detail: str
    source: str
    error: ErrorCode | None = None


@dataclass(frozen=True)
class Observation:
    """An FPDU understood as far as possible; ``number`` counts those of its direction from 1.

    ``header`` is ``None`` if the ULPDU is too short for one, ``payload`` what stands behind it.
    ``dropped`` says that the receiver had met an error before. ``about`` is the number of the
    FPDU of the other direction that a Terminate complains about.
    """

    direction: Direction
    number: int
    fpdu: Fpdu
    crc_in_use: bool
    header: Header | None = None
    payload: bytes = b""
    problems: tuple[Problem, ...] = ()
    ready_to_receive: bool = False
    dropped: bool = False
    read_request: ReadRequest | None = None
    terminate: Terminate | None = None
    about: int | None = None

    @property
    def opcode(self) -> int | None:
        """The RDMAP opcode, assigned or not."""
        return None if self.header is None else opcode_of(self.header)

    @property
    def message(self) -> str:
        """Name of the message."""
        return "no DDP Segment" if self.opcode is None else words.message_name(self.opcode)

    @property
    def invalidate_stag(self) -> int | None:
        """The STag that a Send with Invalidate names."""
        if isinstance(self.header, UntaggedHeader) and self.opcode in rdmap.INVALIDATE_OPCODES:
            return self.header.rsvd_ulp_word
        return None


def opcode_of(header: Header) -> int:
    """The RDMAP opcode, assigned or not."""
    return rdmap.decode_control(header.rsvd_ulp).opcode


def reserved_problems(fpdu: Fpdu, header: Header | None) -> Iterator[Problem]:
    """What a sender has to leave zero and every receiver ignores."""
    if any(fpdu.pad):
        yield Problem(f"PAD is {fpdu.pad.hex()}, not zero", "RFC 5044, 4.1")
    for marker in fpdu.markers:
        if marker.reserved or marker.fpduptr & 3:
            yield Problem(
                f"Marker {marker.reserved:04x} {marker.fpduptr:04x} has reserved bits set",
                "RFC 5044, 4.2",
            )
    if header is None:
        return
    if header.reserved:
        yield Problem(f"reserved bits {header.reserved:#04x} of DDP are set", "RFC 5041, 4.1")
    control = rdmap.decode_control(header.rsvd_ulp)
    if control.reserved:
        yield Problem(f"reserved bits {control.reserved:#04x} of RDMAP are set", "RFC 5040, 4.1")
    if isinstance(header, UntaggedHeader) and header.rsvd_ulp_word:
        if control.opcode in {*rdmap.SEND_OPCODES, Opcode.RDMA_READ_REQUEST, Opcode.TERMINATE}:
            if control.opcode not in rdmap.INVALIDATE_OPCODES:
                yield Problem(
                    f"Invalidate STag {header.rsvd_ulp_word:#010x} in a message without one",
                    "RFC 5040, 4.1",
                )
