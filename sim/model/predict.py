"""What an end in a given state does with a stream of octets, whatever is in it.

This is the oracle of tests which send malformed streams to a device: put the device into a
:class:`State`, send it the octets, and compare with the :class:`Prediction`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from stagecoach.sim.model import ddp, mpa
from stagecoach.sim.model.atomics import AtomicRequest
from stagecoach.sim.model.effects import (
    AtomicAccepted,
    Effect,
    Failure,
    Invalidation,
    ReadAccepted,
    Recorder,
)
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.memory import MemoryRegion, Rights
from stagecoach.sim.model.rdmap import ReadRequest, Terminate
from stagecoach.sim.model.work import Buffer, Completion

__all__ = ["Prediction", "Region", "Scope", "State", "effects_of", "predict"]


class Scope(Enum):
    """Which streams of the Protection Domain may use an STag."""

    ALL = "all"
    THIS = "the one that receives"
    OTHER = "one other"


@dataclass(frozen=True)
class Region:
    """A registered buffer and its content; ``address`` is that of its first octet."""

    stag: int
    octets: bytes
    base: int = 0
    rights: Rights = Rights.ALL
    pd: int = 0
    scope: Scope = Scope.ALL
    shared: bool = False
    address: int = 0


@dataclass(frozen=True)
class State:
    """All that the receiver's checks depend on.

    ``receives`` are the sizes of the posted receives, whose ``work_id`` is their index;
    ``reads`` the RDMA Reads and Atomic Operations sent and unanswered, with their index as
    ``work_id``. ``extensions`` are the supported ones of RFC 7306. ``position`` is the number of
    octets of Full Operation received before (a multiple of four); it matters with Markers. A
    ``responder`` that has ``started`` received a good FPDU before.
    """

    regions: tuple[Region, ...] = ()
    receives: tuple[int, ...] = ()
    reads: tuple[ReadRequest | AtomicRequest, ...] = ()
    pd: int = 0
    ird: int = 16
    crc: bool = True
    markers: bool = False
    position: int = 0
    responder: bool = True
    started: bool = True
    send_msn: int = ddp.FIRST_MSN
    read_request_msn: int = ddp.FIRST_MSN
    mulpdu: int = 1454
    extensions: Extensions | None = None
    atomic_response_msn: int = ddp.FIRST_MSN


@dataclass(frozen=True)
class Prediction:
    """What becomes of the octets.

    ``memory`` is the content of every region and ``receives`` that of every receive afterwards;
    nothing else may have changed. ``completions`` are in order, with those that a failure
    flushed. ``ulpdus`` are what is sent. ``pending`` is the number of octets kept of an FPDU that
    is not complete, ``accepted`` of all FPDUs that MPA found good.

    When the answers to the peer's Read Requests are made (before or after a later Write, Send
    with Invalidate or Read Request of the stream) is left open by the RFCs, and so is when its
    Atomic Operations change the memory. This prediction has each made at once; if it matters,
    ``late`` is the one with all of them made after the last octet, and a device may do anything
    in between. After a failure a device may also leave out answers (and Atomic Operations with
    them), from any FPDU on (RFC 5040, 7.1: the Terminate goes at the earliest opportunity).
    """

    effects: list[Effect]
    memory: dict[int, bytes]
    receives: list[bytes]
    ulpdus: list[bytes]
    completions: list[Completion]
    error: ErrorCode | None
    terminate: Terminate | None
    terminate_received: Terminate | None
    closed: bool
    pending: int
    accepted: int
    late: "Prediction | None" = None

    @property
    def failure(self) -> Failure | None:
        """The failed check, with its reason and source."""
        return next((e for e in self.effects if isinstance(e, Failure)), None)

    @property
    def invalidated(self) -> set[int]:
        """STags which the peer made invalid."""
        return {effect.stag for effect in self.effects if isinstance(effect, Invalidation)}


def effects_of(endpoint: Endpoint, octets: Buffer, *, answer: bool = True) -> Iterator[bytes]:
    """Feeds ``octets`` to an endpoint and gives the FPDUs that it sends.

    With ``answer`` what it has to send is taken after each FPDU received, else at the end. The
    recorder of the endpoint learns the effects, in order.
    """
    for _ in endpoint.process(octets):
        if answer:
            yield from endpoint.take_output()
    yield from endpoint.take_output()


def predict(state: State, octets: Buffer) -> Prediction:
    """What an end in ``state`` does when the peer sends ``octets`` and then nothing."""
    prompt = _run(state, octets, answer=True)
    if not any(isinstance(effect, ReadAccepted | AtomicAccepted) for effect in prompt.effects):
        return prompt
    late = _run(state, octets, answer=False)
    if replace(late, effects=[]) == replace(prompt, effects=[]):
        return prompt
    return replace(prompt, late=late)


def _run(state: State, octets: Buffer, *, answer: bool) -> Prediction:
    effects: list[Effect] = []
    memory = {region.stag: bytearray(region.octets) for region in state.regions}
    receives = [bytearray(size) for size in state.receives]
    endpoint = _endpoint(state, memory, receives, effects.append)
    deframer = mpa.Deframer(crc=state.crc)
    ulpdus: list[bytes] = []
    for fpdu in effects_of(endpoint, octets, answer=answer):
        ulpdus += deframer.feed(fpdu)
    return Prediction(
        effects,
        {stag: bytes(content) for stag, content in memory.items()},
        [bytes(content) for content in receives],
        ulpdus,
        endpoint.poll(),
        endpoint.error,
        endpoint.terminate_sent,
        endpoint.terminate_received,
        endpoint.closed,
        endpoint.pending,
        endpoint.position - state.position,
    )


def _endpoint(
    state: State,
    memory: dict[int, bytearray],
    receives: list[bytearray],
    record: Recorder,
) -> Endpoint:
    endpoint = Endpoint(
        mulpdu=state.mulpdu,
        markers_in=state.markers,
        crc=state.crc,
        ird=state.ird,
        ord=len(state.reads),
        pd=state.pd,
        responder=state.responder,
        extensions=state.extensions,
        record=record,
    )
    streams = {Scope.ALL: None, Scope.THIS: endpoint, Scope.OTHER: Scope.OTHER}
    for region in state.regions:
        endpoint.memory.add(
            MemoryRegion(
                stag=region.stag,
                buffer=memoryview(memory[region.stag]),
                base=region.base,
                rights=region.rights,
                pd=region.pd,
                stream=streams[region.scope],
                shared=region.shared,
                address=region.address,
            )
        )
    for number, buffer in enumerate(receives):
        endpoint.post_receive(buffer, number)
    if state.started:
        endpoint.resume(
            position=state.position,
            send_msn=state.send_msn,
            read_request_msn=state.read_request_msn,
            atomic_response_msn=state.atomic_response_msn,
        )
    for number, request in enumerate(state.reads):
        if isinstance(request, AtomicRequest):
            endpoint.expect_atomic(request, number)
        else:
            endpoint.expect_read(request, number)
    return endpoint
