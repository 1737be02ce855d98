"""Untagged Buffers at the Data Sink: Sends, Read Requests and Terminates (RFC 5040, 5)."""

from collections import deque
from dataclasses import dataclass

from stagecoach.sim.model import checks, ddp, effects, rdmap
from stagecoach.sim.model.atomics import AtomicRequest
from stagecoach.sim.model.checks import Check
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.effects import Recorder
from stagecoach.sim.model.memory import Accessor, MemoryRegion, MemoryTable, Rights
from stagecoach.sim.model.rdmap import ReadRequest, Terminate
from stagecoach.sim.model.terminate import read_terminate
from stagecoach.sim.model.words import message_name
from stagecoach.sim.model.work import Completion, Operation, Receive

# MSNs are 32 bits wide and wrap (RFC 5041, 4.3).
MSN_SPAN = 2**32


def check_msn(header: UntaggedHeader, expected: int) -> None:
    """The MSN is the next of its queue."""
    if header.msn != expected:
        raise checks.MSN.failed(f"MSN {header.msn} on QN {header.qn}; {expected} is next")


def check_mo(header: UntaggedHeader, expected: int, room: int) -> None:
    """The segment continues its message, in a buffer of ``room`` octets."""
    if header.mo > room:
        raise checks.MO.failed(f"MO {header.mo} on QN {header.qn}; there is room for {room} bytes")
    if header.mo != expected:
        raise checks.MO_NEXT.failed(
            f"MO {header.mo} on QN {header.qn}; {expected} is next, and no other is taken"
        )


def check_length(header: UntaggedHeader, found: int, room: int) -> None:
    """The message so far fits its buffer."""
    if found > room:
        name = message_name(rdmap.decode_control(header.rsvd_ulp).opcode)
        raise checks.MESSAGE_LENGTH.failed(f"{name} of {found} bytes; there is room for {room}")


def check_whole(header: UntaggedHeader, found: int, needed: int, check: Check) -> None:
    """A message of fixed length comes in one segment, and has all its octets."""
    if not header.last:
        raise checks.ONE_SEGMENT.failed(f"{found} bytes with L 0; {needed} are taken with L 1 only")
    if found < needed:
        raise check.failed(f"{found} bytes; {needed} are required")


class SendQueue:
    """Queue 0: each Send takes the oldest posted receive, also an empty one (RFC 5040, 5.3)."""

    def __init__(self, memory: MemoryTable, accessor: Accessor, record: Recorder) -> None:
        self.receives: deque[Receive] = deque()
        self.msn = ddp.FIRST_MSN
        self._memory = memory
        self._accessor = accessor
        self._record = record

    def segment(self, header: UntaggedHeader, payload: bytes) -> Completion | None:
        """Check, place, and at the end of the Send deliver.

        The Invalidate STag of the last segment counts; it is checked with that segment.
        """
        receive = self._check(header, len(payload))
        opcode = rdmap.decode_control(header.rsvd_ulp).opcode
        region: MemoryRegion | None = None
        if header.last and opcode in rdmap.INVALIDATE_OPCODES:
            region = self._memory.check_invalidate(header.rsvd_ulp_word, self._accessor)
        if payload:
            self._record(effects.UntaggedPlacement(receive.work_id, receive.filled, payload))
        receive.opcode = opcode
        receive.place(payload)
        if not header.last:
            return None
        if region is not None:
            self._record(effects.Invalidation(region.stag))
            region.valid = False
        self.next_message()
        return Completion(
            Operation.RECEIVE,
            receive.work_id,
            length=receive.filled,
            payload=receive.content(),
            solicited=opcode in rdmap.SOLICITED_OPCODES,
            invalidated_stag=region.stag if region is not None else None,
        )

    def next_message(self) -> None:
        """The oldest receive is used up."""
        self.receives.popleft()
        self.msn = (self.msn + 1) % MSN_SPAN

    def _check(self, header: UntaggedHeader, length: int) -> Receive:
        receive = self.check_position(header)
        check_length(header, receive.filled + length, receive.room)
        self.check_opcode(header, receive)
        return receive

    def check_position(self, header: UntaggedHeader) -> Receive:
        """The oldest receive, if the segment is the next one for it."""
        check_msn(header, self.msn)
        if not self.receives:
            raise checks.RECEIVE_BUFFER.failed(f"no receive for the message with MSN {header.msn}")
        receive = self.receives[0]
        check_mo(header, receive.filled, receive.room)
        return receive

    @staticmethod
    def check_opcode(header: UntaggedHeader, receive: Receive) -> None:
        """The message has the opcode with which it began."""
        opcode = rdmap.decode_control(header.rsvd_ulp).opcode
        if receive.opcode not in (None, opcode):
            raise checks.SEND_OPCODE.failed(
                f"a segment with opcode {opcode:#x} in a Send with opcode {receive.opcode:#x}"
            )


@dataclass
class InboundRead:
    """A Read Request of the peer; ``segment`` is its ULPDU, ``sent`` how much was answered."""

    request: ReadRequest
    segment: bytes
    sent: int = 0


@dataclass
class InboundAtomic:
    """An Atomic Request of the peer; ``segment`` is its ULPDU."""

    request: AtomicRequest
    segment: bytes


class ReadRequestQueue:
    """Queue 1: as many buffers as the IRD; one is free again when its answer was sent.

    Atomic Requests take their place in it, too (RFC 7306, 5.2).
    """

    def __init__(self, memory: MemoryTable, accessor: Accessor, record: Recorder, ird: int) -> None:
        self.waiting: deque[InboundRead | InboundAtomic] = deque()
        self.msn = ddp.FIRST_MSN
        self._memory = memory
        self._accessor = accessor
        self._record = record
        self._ird = ird

    def segment(self, header: UntaggedHeader, payload: bytes, segment: bytes) -> None:
        """Check the request and keep it."""
        needed = rdmap.READ_REQUEST_OCTETS
        self.check_position(header, needed)
        check_length(header, len(payload), needed)
        check_whole(header, len(payload), needed, checks.READ_REQUEST_WHOLE)
        request = ReadRequest.decode(payload)
        self.check_source(request)
        self.accept(InboundRead(request, segment))
        self._record(effects.ReadAccepted(request))

    def check_position(self, header: UntaggedHeader, room: int) -> None:
        """The request is the next one, and there is a buffer for it, of ``room`` octets."""
        check_msn(header, self.msn)
        if len(self.waiting) >= self._ird:
            raise checks.READ_REQUEST_BUFFER.failed(
                f"one more request with {len(self.waiting)} waiting; the IRD is {self._ird}"
            )
        check_mo(header, 0, room)

    def accept(self, inbound: InboundRead | InboundAtomic) -> None:
        """Keep a good request until it is answered."""
        self.msn = (self.msn + 1) % MSN_SPAN
        self.waiting.append(inbound)

    def check_source(self, request: ReadRequest) -> MemoryRegion | None:
        """The region to read; of a request for no octets nothing is checked (RFC 5040, 5.2.1)."""
        if not request.size:
            return None
        return self._memory.check(
            request.source_stag,
            request.source_tagged_offset,
            request.size,
            right=Rights.REMOTE_READ,
            accessor=self._accessor,
            checks=checks.SOURCE,
        )


def receive_terminate(header: UntaggedHeader, payload: bytes) -> Terminate:
    """Queue 2, which has one buffer (RFC 5040, 5.4)."""
    check_msn(header, ddp.FIRST_MSN)
    check_mo(header, 0, rdmap.TERMINATE_OCTETS)
    check_whole(header, len(payload), rdmap.TERMINATE_CONTROL_OCTETS, checks.TERMINATE_WHOLE)
    try:
        return read_terminate(payload)
    except ValueError as problem:
        raise checks.TERMINATE_WHOLE.failed(str(problem)) from None
