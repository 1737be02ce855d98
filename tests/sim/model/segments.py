"""DDP Segments that fail one check of a receiver, made from good ones (sim/model/checks.py)."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stagecoach.sim.model import checks, mpa, rdmap
from stagecoach.sim.model.checks import Check
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.memory import Rights
from stagecoach.sim.model.predict import Prediction, Region, Scope, State, predict
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet

SIZE = 256
BASE = 0x2000
GOOD, READ_ONLY, WRITE_ONLY, OTHER_PD, OTHER_STREAM, SHARED, HIGH, SINK = range(0x100, 0x108)
UNKNOWN = 0x999
FILL = bytes([0xA5]) * SIZE
REGIONS = (
    Region(GOOD, FILL, BASE),
    Region(READ_ONLY, FILL, BASE, Rights.REMOTE_READ),
    Region(WRITE_ONLY, FILL, BASE, Rights.REMOTE_WRITE),
    Region(OTHER_PD, FILL, BASE, pd=1),
    Region(OTHER_STREAM, FILL, BASE, scope=Scope.OTHER),
    Region(SHARED, FILL, BASE, shared=True),
    Region(HIGH, FILL, 2**64 - SIZE),
    Region(SINK, FILL, 0, Rights.LOCAL_WRITE),
)
READ = ReadRequest(SINK, 16, 64, 1, 2)
STATE = State(REGIONS, receives=(64, 64), reads=(READ,), ird=2)


@dataclass(frozen=True)
class Segment:
    """A DDP Segment in parts, and the state of the end that receives it."""

    header: TaggedHeader | UntaggedHeader
    payload: bytes
    state: State = STATE

    @property
    def ulpdu(self) -> bytes:
        return self.header.encode() + self.payload


def send(opcode: Opcode = Opcode.SEND, stag: int = 0, **fields: object) -> UntaggedHeader:
    return UntaggedHeader(0, 1, rsvd_ulp=control_octet(opcode), rsvd_ulp_word=stag, **fields)


def header(**fields: object) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, header=replace(segment.header, **fields))


def state(**fields: object) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, state=replace(segment.state, **fields))


def payload(octets: bytes) -> Callable[[Segment], Segment]:
    return lambda segment: replace(segment, payload=octets)


def source(**fields: object) -> Callable[[Segment], Segment]:
    def change(segment: Segment) -> Segment:
        request = ReadRequest.decode(segment.payload[:28].ljust(28, b"\0"))
        octets = replace(request, **fields).encode()
        return replace(segment, payload=octets[: len(segment.payload)].ljust(len(segment.payload)))

    return change


def opcode(value: int) -> Callable[[Segment], Segment]:
    """Another opcode, with the RV that is there."""

    def change(segment: Segment) -> Segment:
        control = segment.header.rsvd_ulp & ~rdmap.MASK_OPCODE | value
        return replace(segment, header=replace(segment.header, rsvd_ulp=control))

    return change


def version(value: int) -> Callable[[Segment], Segment]:
    """Another RV, with the opcode that is there."""

    def change(segment: Segment) -> Segment:
        control = segment.header.rsvd_ulp & rdmap.MASK_OPCODE | value << rdmap.VERSION_SHIFT
        return replace(segment, header=replace(segment.header, rsvd_ulp=control))

    return change


WRITE = Segment(TaggedHeader(GOOD, BASE, rsvd_ulp=control_octet(Opcode.RDMA_WRITE)), b"written")

Break = tuple[Check, Callable[[Segment], Segment]]
# A good segment of each message, and what breaks each of its checks, in their order.
Breaks = dict[str, tuple[Segment, list[Break]]]
UNTAGGED_HEADER: list[Break] = [
    (checks.UNTAGGED_VERSION, header(version=2)),
    (checks.RDMAP_VERSION, version(0)),
    (checks.OPCODE, opcode(0xC)),
    (checks.BUFFER_MODEL, opcode(Opcode.RDMA_WRITE)),
    (checks.QUEUE, header(qn=3)),
    (checks.QUEUE_OF_OPCODE, header(qn=2)),
]
TAGGED_HEADER: list[Break] = [
    (checks.TAGGED_VERSION, header(version=0)),
    (checks.RDMAP_VERSION, version(2)),
    (checks.OPCODE, opcode(0xF)),
    (checks.BUFFER_MODEL, opcode(Opcode.SEND)),
]


def alone(messages: Breaks) -> list[Any]:
    """Parameters: a segment, a check, and what breaks it."""
    return [
        pytest.param(segment, check, change, id=f"{message}: {check.demand}")
        for message, (segment, breaks) in messages.items()
        for check, change in breaks
    ]


def pairs(messages: Breaks) -> list[Any]:
    """Parameters: a segment, and two checks with what breaks them, in their order."""
    return [
        pytest.param(
            segment, first, second, id=f"{message}: {first[0].demand} | {second[0].demand}"
        )
        for message, (segment, breaks) in messages.items()
        for first, second in itertools.combinations(breaks, 2)
    ]


def outcome(segment: Segment) -> Prediction:
    # A second, good FPDU must find a stream that takes nothing any more.
    stream = mpa.frame_fpdu(segment.ulpdu) + mpa.frame_fpdu(WRITE.ulpdu)
    return predict(segment.state, stream)


def assert_fails(segment: Segment, check: Check) -> None:
    found = outcome(segment)
    assert found.failure is not None, "no check failed"
    assert (found.failure.source, found.error) == (check.source, check.error), found.failure
    assert found.memory == {region.stag: region.octets for region in segment.state.regions}
    assert found.receives == [bytes(size) for size in segment.state.receives]
    assert not found.invalidated
    assert all(completion.status.name == "FLUSHED" for completion in found.completions)
    assert len(found.completions) == len(segment.state.receives) + len(segment.state.reads)
    assert len(found.ulpdus) == (found.terminate is not None)
