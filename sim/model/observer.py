"""Watches a connection from outside and says what its ends should not have sent.

It runs the receiver of the reference model for each direction, with memory which takes anything:
what STags stand for, and which receives are posted, cannot be seen on the wire. Everything else
is checked as a receiver would, in the same order. Afterwards it goes on where the sender is, so
one error does not hide what comes after.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.anything import AnyMemory, AnyReceive
from stagecoach.sim.model.atomic_responses import OutstandingAtomic
from stagecoach.sim.model.ddp import Header, TaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.extensions import EXTENSION_OPCODES, Extensions
from stagecoach.sim.model.memory import TAGGED_OFFSET_SPAN, Accessor
from stagecoach.sim.model.mpa import Fpdu
from stagecoach.sim.model.observation import (
    Observation,
    Problem,
    opcode_of,
    reserved_problems,
    unused_field_problems,
    with_extension,
)
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from stagecoach.sim.model.sink import DataSink
from stagecoach.sim.model.startup import DEPTH_NOT_NEGOTIATED, StartupFrame, negotiate
from stagecoach.sim.model.terminate import read_terminate
from stagecoach.sim.model.untagged import MSN_SPAN, InboundAtomic, InboundRead
from stagecoach.sim.model.work import Operation, OutstandingRead, Work

_NO_LIMIT = 2**32


@dataclass
class _Half:
    """One direction: its receiver, and what was seen of it."""

    sink: DataSink
    markers: bool
    count: int = 0
    position: int = 0
    failed: bool = False
    terminated: bool = False
    # Number of the last FPDU with each DDP header, for Terminates which send it back.
    headers: dict[bytes, int] = field(default_factory=dict)


class Observer:
    """Both directions of a connection in Full Operation, as Request and Reply settled it."""

    def __init__(self, request: StartupFrame, reply: StartupFrame) -> None:
        settled = negotiate(request, reply)
        self.crc = settled.crc
        responder_ird, initiator_ird = _inbound_depths(request, reply)
        self._halves = {
            Direction.TO_RESPONDER: _half(settled.initiator_sends_markers, responder_ird),
            Direction.TO_INITIATOR: _half(settled.responder_sends_markers, initiator_ird),
        }
        self._ready_to_receive = _ready_to_receive_opcodes(request, reply)

    def markers(self, direction: Direction) -> bool:
        """Whether the FPDUs of a direction have Markers in them."""
        return self._halves[direction].markers

    def position(self, direction: Direction) -> int:
        """Octets of Full Operation of a direction observed so far."""
        return self._halves[direction].position

    def observe(self, direction: Direction, fpdu: Fpdu) -> Observation:
        """The next FPDU of a direction."""
        half = self._halves[direction]
        half.count += 1
        half.position += len(fpdu.octets)
        failures = list(fpdu.failures(self.crc))
        header: Header | None = None
        payload = b""
        try:
            header, payload = ddp.decode(fpdu.ulpdu)
        except StreamError as failure:
            failures.append(failure)
        found = Observation(
            direction, half.count, fpdu, self.crc, header, payload, dropped=half.failed
        )
        if header is not None:
            if not failures:
                failures += self._receive(direction, fpdu.ulpdu)
            if failures:
                self._follow(direction, header, payload)
            found = self._with_content(found, header)
        problems = [
            *self._sequence_problems(found),
            *(Problem(f.detail, f.source, f.error) for f in failures),
            *reserved_problems(fpdu, header),
            *unused_field_problems(found),
        ]
        half.failed = half.failed or bool(failures)
        half.terminated = half.terminated or found.opcode == Opcode.TERMINATE
        return replace(found, problems=tuple(problems))

    def _receive(self, direction: Direction, ulpdu: bytes) -> list[StreamError]:
        """What the receiver says; Read Requests and Read Responses are known to both ends."""
        sink, other = self._halves[direction].sink, self._halves[direction.opposite].sink
        if not sink.sends.receives:
            sink.sends.receives.append(AnyReceive())
        requests, reads = len(sink.read_requests.waiting), len(sink.tagged.reads)
        atomics = len(sink.atomic_responses.outstanding)
        try:
            sink.segment(ulpdu)
        except StreamError as failure:
            return [failure]
        if len(sink.read_requests.waiting) > requests:
            _expect_answer(other, sink.read_requests.waiting[-1])
        if len(sink.tagged.reads) < reads:
            _answered(other, InboundRead)
        if len(sink.atomic_responses.outstanding) < atomics:
            _answered(other, InboundAtomic)
        return []

    def _follow(self, direction: Direction, header: Header, payload: bytes) -> None:
        """Take a segment in error for what its sender means: what comes next continues it."""
        sink, other = self._halves[direction].sink, self._halves[direction.opposite].sink
        opcode = opcode_of(header)
        if isinstance(header, TaggedHeader):
            if opcode == Opcode.RDMA_READ_RESPONSE and sink.tagged.reads:
                read = sink.tagged.reads[0]
                end = header.tagged_offset + len(payload)
                read.received = (end - read.request.sink_tagged_offset) % TAGGED_OFFSET_SPAN
                if header.last:
                    sink.tagged.reads.popleft()
                    _answered(other, InboundRead)
            return
        after = (header.msn + header.last) % MSN_SPAN
        if header.qn == rdmap.QN_SEND:
            sink.sends.receives.clear()
            sink.sends.msn = after
            if not header.last:
                sink.sends.receives.append(AnyReceive(header.mo + len(payload), opcode))
        elif header.qn == rdmap.QN_READ_REQUEST:
            sink.read_requests.msn = after
        elif header.qn == rdmap.QN_ATOMIC_RESPONSE:
            sink.atomic_responses.msn = after
            if header.last and sink.atomic_responses.outstanding:
                sink.atomic_responses.outstanding.popleft()
                _answered(other, InboundAtomic)

    def _sequence_problems(self, found: Observation) -> Iterator[Problem]:
        half = self._halves[found.direction]
        other = self._halves[found.direction.opposite]
        if half.terminated:
            yield Problem("an FPDU after a Terminate", "RFC 5040, 5.4")
        if found.number > 1:
            return
        if found.direction is Direction.TO_INITIATOR:
            if not other.count:
                yield Problem(
                    "an FPDU of the responder before the first of the initiator",
                    "RFC 5044, 7.1.2 (4)",
                )
        elif self._ready_to_receive is not None:
            if not found.ready_to_receive and found.opcode != Opcode.TERMINATE:
                yield Problem(
                    "the first FPDU is not an RTR frame of a kind that both ends offer",
                    "RFC 6581, 9.2",
                )

    def _with_content(self, found: Observation, header: Header) -> Observation:
        """With the headers that its payload is, if it is one."""
        octets = found.fpdu.ulpdu[: len(found.fpdu.ulpdu) - len(found.payload)]
        self._halves[found.direction].headers[octets] = found.number
        if found.opcode == Opcode.RDMA_READ_REQUEST:
            request = found.payload[: rdmap.READ_REQUEST_OCTETS]
            if len(request) == rdmap.READ_REQUEST_OCTETS:
                found = replace(found, read_request=ReadRequest.decode(request))
        elif found.opcode in EXTENSION_OPCODES:
            found = with_extension(found)
        elif found.opcode == Opcode.TERMINATE:
            try:
                terminate = read_terminate(found.payload)
            except ValueError:
                return found
            about = self._halves[found.direction.opposite].headers.get(terminate.ddp_header)
            found = replace(found, terminate=terminate, about=about)
        return replace(found, ready_to_receive=self._is_ready_to_receive(found, header))

    def _is_ready_to_receive(self, found: Observation, header: Header) -> bool:
        """Whether this is the RTR frame: the initiator's first FPDU, of no octets."""
        kinds = self._ready_to_receive
        if found.direction is not Direction.TO_RESPONDER or found.number > 1 or not kinds:
            return False
        if found.opcode not in kinds or not header.last:
            return False
        if found.opcode == Opcode.RDMA_READ_REQUEST:
            return found.read_request is not None and found.read_request.size == 0
        return not found.payload


def _half(markers: bool, ird: int) -> _Half:
    limit = _NO_LIMIT if ird >= DEPTH_NOT_NEGOTIATED else ird
    sink = DataSink(AnyMemory(), Accessor(0, None), ird=limit, extensions=Extensions())
    return _Half(sink, markers)


def _expect_answer(sink: DataSink, inbound: InboundRead | InboundAtomic) -> None:
    """``sink`` is the end whose request was accepted by the other one."""
    if isinstance(inbound, InboundAtomic):
        # Which operation it is does not matter for its answer.
        work = Work(Operation.FETCH_ADD, None, atomic=inbound.request)
        outstanding = OutstandingAtomic(inbound.request, work)
        sink.atomic_responses.outstanding.append(outstanding)
        return
    work = Work(Operation.RDMA_READ, None, request=inbound.request)
    sink.tagged.reads.append(OutstandingRead(inbound.request, work))


def _answered(sink: DataSink, kind: type[InboundRead] | type[InboundAtomic]) -> None:
    """The oldest request of a kind at ``sink`` is answered, though it may not be its turn."""
    waiting = sink.read_requests.waiting
    waiting.remove(next(inbound for inbound in waiting if isinstance(inbound, kind)))


def _inbound_depths(request: StartupFrame, reply: StartupFrame) -> tuple[int, int]:
    """IRD of the responder, and of the initiator, who raises it to the responder's ORD.

    RFC 6581, 9.1.
    """
    asked, answered = request.enhanced, reply.enhanced
    if asked is None or answered is None:
        return DEPTH_NOT_NEGOTIATED, DEPTH_NOT_NEGOTIATED
    return answered.ird, max(asked.ird, answered.ord)


def _ready_to_receive_opcodes(request: StartupFrame, reply: StartupFrame) -> set[int] | None:
    """Messages that both ends offer as RTR frame; ``None`` without peer-to-peer mode."""
    asked, answered = request.enhanced, reply.enhanced
    if asked is None or answered is None or not (asked.peer_to_peer and answered.peer_to_peer):
        return None
    offers = (
        (Opcode.SEND, asked.rtr_send and answered.rtr_send),
        (Opcode.RDMA_WRITE, asked.rtr_write and answered.rtr_write),
        (Opcode.RDMA_READ_REQUEST, asked.rtr_read and answered.rtr_read),
    )
    return {opcode for opcode, offered in offers if offered}
