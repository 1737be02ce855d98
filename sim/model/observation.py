"""What can be said of one FPDU that was seen on the wire."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stagecoach.sim.model import rdmap, words
from stagecoach.sim.model.atomics import (
    ATOMIC_REQUEST_OCTETS,
    ATOMIC_RESPONSE_OCTETS,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
)
from stagecoach.sim.model.ddp import Header, UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.extensions import EXTENSION_OPCODES
from stagecoach.sim.model.immediate import IMMEDIATE_OCTETS
from stagecoach.sim.model.mpa import Fpdu
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate


@dataclass(frozen=True)
class Problem:
    """What is wrong, and the text that says so; ``error`` if a receiver ends the stream for it."""

    detail: str
    source: str
    error: ErrorCode | None = None


@dataclass(frozen=True)
class Observation:
    """An FPDU understood as far as possible; ``number`` counts those of its direction from 1.

    ``header`` is ``None`` if the ULPDU is too short for one, ``payload`` what stands after it.
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
    atomic_request: AtomicRequest | None = None
    atomic_response: AtomicResponse | None = None
    immediate: bytes | None = None

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


def with_extension(seen: Observation) -> Observation:
    """With the header of RFC 7306 at the start of its payload, if that has enough octets."""
    payload = seen.payload
    if seen.opcode == Opcode.ATOMIC_REQUEST and len(payload) >= ATOMIC_REQUEST_OCTETS:
        request = AtomicRequest.decode(payload[:ATOMIC_REQUEST_OCTETS])
        return replace(seen, atomic_request=request)
    if seen.opcode == Opcode.ATOMIC_RESPONSE and len(payload) >= ATOMIC_RESPONSE_OCTETS:
        response = AtomicResponse.decode(payload[:ATOMIC_RESPONSE_OCTETS])
        return replace(seen, atomic_response=response)
    if seen.opcode in rdmap.IMMEDIATE_OPCODES and len(payload) >= IMMEDIATE_OCTETS:
        return replace(seen, immediate=payload[:IMMEDIATE_OCTETS])
    return seen


def unused_field_problems(seen: Observation) -> Iterator[Problem]:
    """What an Atomic Operation does not use has a fixed value (RFC 7306, 5.2.1)."""
    request = seen.atomic_request
    if request is None:
        return
    fixed = [("reserved bits", request.reserved, 0)]
    if request.operation == SWAP:
        fixed.append(("Add or Swap Mask", request.mask, WORD))
    if request.operation in (FETCH_ADD, SWAP):
        fixed.append(("Compare Data", request.compare, 0))
        fixed.append(("Compare Mask", request.compare_mask, WORD))
    for name, found, needed in fixed:
        if found != needed:
            yield Problem(f"{name} {found:#x}, not {needed:#x}", "RFC 7306, 5.2.1")


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
        extension = control.opcode in EXTENSION_OPCODES
        if control.opcode in rdmap.QUEUE_OF and control.opcode not in rdmap.INVALIDATE_OPCODES:
            yield Problem(
                f"Invalidate STag {header.rsvd_ulp_word:#010x} in a message without one",
                "RFC 7306, 4.1" if extension else "RFC 5040, 4.1",
            )
