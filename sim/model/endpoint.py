"""One end of an RDMAP Stream in software: octets in, FPDUs out (RFC 5040, 5041, 5044)."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from sim.model import ddp, errors, mpa, rdmap
from sim.model.ddp import Header, TaggedHeader, UntaggedHeader
from sim.model.errors import ErrorCode, StreamError
from sim.model.memory import STAG_MAX, AccessErrors, MemoryRegion, MemoryTable, Rights
from sim.model.rdmap import Opcode, ReadRequest, Terminate

Buffer = bytes | bytearray | memoryview

_WRITE_FAILURES = AccessErrors(
    invalid=errors.DDP_INVALID_STAG,
    not_associated=errors.DDP_STAG_NOT_ASSOCIATED,
    # RFC 5041, 7.2 has no code for missing rights of a tagged buffer.
    rights=errors.DDP_INVALID_STAG,
    bounds=errors.DDP_BASE_OR_BOUNDS,
    wrap=errors.DDP_TO_WRAP,
)
_READ_FAILURES = AccessErrors(
    invalid=errors.RDMAP_INVALID_STAG,
    not_associated=errors.RDMAP_STAG_NOT_ASSOCIATED,
    rights=errors.RDMAP_ACCESS_RIGHTS,
    bounds=errors.RDMAP_BASE_OR_BOUNDS,
    wrap=errors.RDMAP_TO_WRAP,
)
# Queues of the untagged model that exist without RFC 7306.
_KNOWN_QUEUES = (rdmap.QN_SEND, rdmap.QN_READ_REQUEST, rdmap.QN_TERMINATE)
# MSNs are 32 bits wide and wrap (RFC 5041, 4.3).
_MSN_SPAN = 2**32


class Operation(Enum):
    """What a work request, and so its completion, was about."""

    SEND = auto()
    RDMA_WRITE = auto()
    RDMA_READ = auto()
    RECEIVE = auto()


class Status(Enum):
    """How a work request ended."""

    SUCCESS = auto()
    FLUSHED = auto()


@dataclass(frozen=True)
class Completion:
    """The end of a work request. ``payload`` is what a Send brought."""

    operation: Operation
    work_id: object
    status: Status = Status.SUCCESS
    length: int = 0
    payload: bytes = b""
    solicited: bool = False
    invalidated_stag: int | None = None


@dataclass
class _Work:
    """A work request of the send queue; ``completion`` is set when it may be reported."""

    operation: Operation
    work_id: object
    payload: Buffer = b""
    opcode: Opcode = Opcode.SEND
    stag: int = 0
    tagged_offset: int = 0
    request: ReadRequest | None = None
    completion: Completion | None = None


@dataclass
class _Receive:
    buffer: memoryview
    work_id: object
    filled: int = 0
    opcode: int | None = None


@dataclass
class _OutstandingRead:
    request: ReadRequest
    work: _Work
    received: int = 0


class Endpoint:
    """A full RDMAP Stream end.

    ``receive`` takes octets of the peer in any chunks, ``take_output`` gives the FPDUs to send,
    ``poll`` the completions. The first failed check is kept in ``error``: from then on input is
    dropped, one Terminate is output and everything outstanding is completed as flushed. Requests
    of the peer that arrived before the failure are still answered.

    Parameters: ``mulpdu`` limits what is sent; ``markers_out``/``markers_in``/``crc`` are what
    the startup settled; ``ird`` limits Read Requests waiting for their answer (which happens in
    ``take_output``), ``ord`` those sent; a ``responder`` sends nothing before the first FPDU of
    the peer (RFC 5044, 7.1.2); endpoints of one device share a ``memory``.

    Left open by the RFCs, chosen here: an MSN other than the next one is reported before a
    missing buffer (1/2/03 before 1/2/02); a Read Request whose L bit is zero is incomplete
    (0/2/FF); an opcode that changes within a Send is unexpected (0/2/06).
    """

    def __init__(
        self,
        *,
        mulpdu: int = 1454,
        markers_out: bool = False,
        markers_in: bool = False,
        crc: bool = True,
        ird: int = 16,
        ord: int = 16,
        pd: int = 0,
        responder: bool = False,
        memory: MemoryTable | None = None,
        seed: int | None = None,
    ) -> None:
        self.mulpdu = mulpdu
        self.ird = ird
        self.ord = ord
        self.pd = pd
        self.memory = memory if memory is not None else MemoryTable()
        self.error: ErrorCode | None = None
        self.error_detail = ""
        self.terminate_received: Terminate | None = None
        self.closed = False
        self._framer = mpa.Framer(markers_out, crc)
        self._deframer = mpa.Deframer(markers_in, crc)
        self._random = random.Random(seed)
        self._may_send = not responder
        self._output: list[bytes] = []
        self._completions: list[Completion] = []
        # Work requests in posting order until reported; those not yet sent are also in _unsent.
        self._work: deque[_Work] = deque()
        self._unsent: deque[_Work] = deque()
        self._receives: deque[_Receive] = deque()
        self._reads: deque[_OutstandingRead] = deque()
        self._inbound_reads: deque[ReadRequest] = deque()
        self._send_msn = {
            rdmap.QN_SEND: ddp.FIRST_MSN,
            rdmap.QN_READ_REQUEST: ddp.FIRST_MSN,
        }
        self._receive_msn = dict(self._send_msn)

    # Memory

    def register(
        self,
        buffer: bytearray | memoryview,
        *,
        stag: int | None = None,
        base: int = 0,
        rights: Rights = Rights.ALL,
        pd: int | None = None,
        this_stream_only: bool = False,
    ) -> MemoryRegion:
        """Register a buffer; without ``stag`` a random unused one is drawn."""
        while stag is None:
            drawn = self._random.randint(1, STAG_MAX)
            stag = drawn if self.memory.get(drawn) is None else None
        region = MemoryRegion(
            stag=stag,
            buffer=memoryview(buffer).cast("B"),
            base=base,
            rights=rights,
            pd=self.pd if pd is None else pd,
            stream=self if this_stream_only else None,
        )
        self.memory.add(region)
        return region

    # Work requests

    def post_receive(self, buffer: bytearray | memoryview | int, work_id: object = None) -> None:
        """Post an Untagged Buffer for one Send; an integer asks for a new buffer of that size."""
        octets = bytearray(buffer) if isinstance(buffer, int) else buffer
        if self._stopped:
            self._completions.append(Completion(Operation.RECEIVE, work_id, Status.FLUSHED))
            return
        self._receives.append(_Receive(memoryview(octets).cast("B"), work_id))

    def post_send(
        self,
        payload: Buffer,
        work_id: object = None,
        *,
        invalidate_stag: int | None = None,
        solicited: bool = False,
    ) -> None:
        """Post a Send of one of the four kinds (RFC 5040, 5.3)."""
        if invalidate_stag is None:
            opcode = Opcode.SEND_WITH_SE if solicited else Opcode.SEND
        elif solicited:
            opcode = Opcode.SEND_WITH_SE_AND_INVALIDATE
        else:
            opcode = Opcode.SEND_WITH_INVALIDATE
        self._post(_Work(Operation.SEND, work_id, payload, opcode, invalidate_stag or 0))

    def rdma_write(
        self,
        payload: Buffer,
        remote_stag: int,
        remote_offset: int,
        work_id: object = None,
    ) -> None:
        """Post an RDMA Write of ``payload`` to the peer's STag and TO."""
        self._post(
            _Work(
                Operation.RDMA_WRITE,
                work_id,
                payload,
                Opcode.RDMA_WRITE,
                remote_stag,
                remote_offset,
            )
        )

    def rdma_read(
        self,
        local_stag: int,
        local_offset: int,
        length: int,
        remote_stag: int,
        remote_offset: int,
        work_id: object = None,
    ) -> None:
        """Post an RDMA Read into local STag and TO; the local range is checked at once."""
        if length:
            self._check_sink(local_stag, local_offset, length)
        request = ReadRequest(local_stag, local_offset, length, remote_stag, remote_offset)
        self._post(_Work(Operation.RDMA_READ, work_id, request=request))

    def poll(self) -> list[Completion]:
        """Completions since the last call; those of the send queue in posting order."""
        completions, self._completions = self._completions, []
        return completions

    @property
    def idle(self) -> bool:
        """True when nothing posted to the send queue is unfinished and no output waits."""
        return not (self._work or self._output or self._inbound_reads)

    # The stream

    def receive(self, octets: Buffer) -> None:
        """Octets of the peer's stream of Full Operation, cut anywhere."""
        ulpdus = self._deframer.feed(octets)
        while not self._stopped:
            segment = b""
            try:
                received = next(ulpdus, None)
                if received is None:
                    return
                segment = received
                self._may_send = True
                self._segment(segment)
            except StreamError as failure:
                self._fail(failure, segment)

    def take_output(self) -> list[bytes]:
        """FPDUs to send now, in order; answers the peer's Read Requests first."""
        self._generate()
        output, self._output = self._output, []
        return output

    def tcp_closed(self) -> None:
        """The LLP connection ended: everything outstanding is flushed."""
        if not self.closed:
            self.closed = True
            if self.error is None and self.terminate_received is None:
                self.error = errors.MPA_TCP_LOST
            self._flush()

    def send_ready_to_receive(self, *, by_read: bool = False) -> None:
        """Send the RTR frame of RFC 6581, 9.2: an empty RDMA Write, or an empty RDMA Read.

        It is the initiator's first FPDU and has no completion.
        """
        if not by_read:
            # STag and TO of an empty Write are checked by nobody (RFC 5041, 5.2).
            self._tagged(Opcode.RDMA_WRITE, b"", 1, 0)
            return
        request = ReadRequest(1, 0, 0, 1, 0)
        self._transmit(_Work(Operation.RDMA_READ, None, request=request))

    def abort(self, error: ErrorCode, detail: str) -> None:
        """End the stream for a reason found outside of it: Terminate and flush."""
        self._fail(StreamError(error, detail), b"")

    # Sending

    @property
    def _stopped(self) -> bool:
        return self.closed or self.error is not None or self.terminate_received is not None

    def _post(self, work: _Work) -> None:
        if self._stopped:
            self._completions.append(Completion(work.operation, work.work_id, Status.FLUSHED))
            return
        self._work.append(work)
        self._unsent.append(work)

    def _generate(self) -> None:
        if self._stopped or not self._may_send:
            return
        self._answer_reads()
        while self._unsent:
            work = self._unsent[0]
            if work.request is not None and len(self._reads) >= self.ord:
                break
            self._unsent.popleft()
            self._transmit(work)
        self._report()

    def _answer_reads(self) -> None:
        while self._inbound_reads:
            request = self._inbound_reads.popleft()
            payload = b""
            if request.size:
                region = self.memory.get(request.source_stag)
                if region is None:
                    # Invalidated between the request and its answer.
                    failure = StreamError(
                        errors.RDMAP_LOCAL_CATASTROPHIC,
                        f"STag {request.source_stag:#010x} vanished before its Read Response",
                    )
                    self._fail(failure, b"")
                    return
                payload = region.read(request.source_tagged_offset, request.size)
            self._tagged(
                Opcode.RDMA_READ_RESPONSE,
                payload,
                request.sink_stag,
                request.sink_tagged_offset,
            )

    def _transmit(self, work: _Work) -> None:
        length = len(memoryview(work.payload).cast("B"))
        done = Completion(work.operation, work.work_id, length=length)
        if work.operation is Operation.RDMA_WRITE:
            self._tagged(work.opcode, work.payload, work.stag, work.tagged_offset)
            work.completion = done
        elif work.operation is Operation.SEND:
            self._untagged(work.opcode, work.payload, rdmap.QN_SEND, work.stag)
            work.completion = done
        elif work.request is not None:
            self._reads.append(_OutstandingRead(work.request, work))
            self._untagged(
                Opcode.RDMA_READ_REQUEST,
                work.request.encode(),
                rdmap.QN_READ_REQUEST,
                0,
            )

    def _tagged(self, opcode: Opcode, payload: Buffer, stag: int, tagged_offset: int) -> None:
        segments = ddp.segment_tagged(
            memoryview(payload).cast("B"),
            stag=stag,
            tagged_offset=tagged_offset,
            mulpdu=self.mulpdu,
            rsvd_ulp=rdmap.control_octet(opcode),
        )
        self._output += map(self._framer.frame, segments)

    def _untagged(self, opcode: Opcode, payload: Buffer, qn: int, word: int) -> None:
        msn = self._send_msn.get(qn, ddp.FIRST_MSN)
        self._send_msn[qn] = (msn + 1) % _MSN_SPAN
        segments = ddp.segment_untagged(
            memoryview(payload).cast("B"),
            qn=qn,
            msn=msn,
            mulpdu=self.mulpdu,
            rsvd_ulp=rdmap.control_octet(opcode),
            rsvd_ulp_word=word,
        )
        self._output += map(self._framer.frame, segments)

    def _report(self) -> None:
        """Report finished work up to the first unfinished one (RFC 5040, 5.5, rule 15)."""
        while self._work and self._work[0].completion is not None:
            completion = self._work.popleft().completion
            assert completion is not None
            self._completions.append(completion)

    # Failing

    def _fail(self, failure: StreamError, segment: bytes) -> None:
        if self._may_send:
            # What arrived in good order before the failure is answered.
            self._answer_reads()
        if self._stopped:
            return
        self.error = failure.error
        self.error_detail = failure.detail
        if self._may_send:
            terminate = _terminate_for(failure.error, segment)
            self._untagged(Opcode.TERMINATE, terminate.encode(), rdmap.QN_TERMINATE, 0)
        else:
            # A responder may not send an FPDU yet, not even a Terminate (RFC 5044, 7.1.2).
            self.closed = True
        self._flush()

    def _flush(self) -> None:
        for work in self._work:
            self._completions.append(
                work.completion or Completion(work.operation, work.work_id, Status.FLUSHED)
            )
        for receive in self._receives:
            self._completions.append(Completion(Operation.RECEIVE, receive.work_id, Status.FLUSHED))
        for queue in (
            self._work,
            self._unsent,
            self._receives,
            self._reads,
            self._inbound_reads,
        ):
            queue.clear()

    # Receiving

    def _segment(self, segment: bytes) -> None:
        """All checks of one DDP Segment, then its placement and delivery."""
        header, payload = ddp.decode(segment)
        tagged = isinstance(header, TaggedHeader)
        if header.version != ddp.DDP_VERSION:
            code = (
                errors.DDP_TAGGED_INVALID_VERSION if tagged else errors.DDP_UNTAGGED_INVALID_VERSION
            )
            raise StreamError(code, f"DV is {header.version}; {ddp.DDP_VERSION} is supported")
        control = rdmap.decode_control(header.rsvd_ulp)
        if control.version != rdmap.RDMAP_VERSION:
            raise StreamError(
                errors.RDMAP_INVALID_VERSION,
                f"RV is {control.version}; {rdmap.RDMAP_VERSION} is supported",
            )
        handler = self._handler(control.opcode, header)
        handler(header, payload)

    def _handler(self, number: int, header: Header) -> Callable[..., None]:
        handlers: dict[int, Callable[..., None]] = {
            Opcode.RDMA_WRITE: self._write,
            Opcode.RDMA_READ_REQUEST: self._read_request,
            Opcode.RDMA_READ_RESPONSE: self._read_response,
            Opcode.TERMINATE: self._terminate,
        }
        handlers.update(dict.fromkeys(rdmap.SEND_OPCODES, self._send))
        if number not in handlers:
            raise StreamError(errors.RDMAP_UNEXPECTED_OPCODE, f"opcode {number:#x} not supported")
        opcode = Opcode(number)
        if isinstance(header, TaggedHeader) != (opcode in rdmap.TAGGED_OPCODES):
            raise StreamError(errors.RDMAP_UNEXPECTED_OPCODE, f"T bit does not fit {opcode.name}")
        if isinstance(header, UntaggedHeader):
            if header.qn not in _KNOWN_QUEUES:
                raise StreamError(errors.DDP_INVALID_QN, f"QN {header.qn}; 0 to 2 are known")
            if header.qn != rdmap.QUEUE_OF[opcode]:
                raise StreamError(
                    errors.RDMAP_UNEXPECTED_OPCODE, f"{opcode.name} on QN {header.qn}"
                )
        return handlers[number]

    def _write(self, header: TaggedHeader, payload: bytes) -> None:
        if not payload:
            # Neither STag nor TO of an empty segment is checked (RFC 5041, 5.2).
            return
        region = self.memory.check(
            header.stag,
            header.tagged_offset,
            len(payload),
            right=Rights.REMOTE_WRITE,
            pd=self.pd,
            stream=self,
            failures=_WRITE_FAILURES,
        )
        region.write(header.tagged_offset, payload)

    def _check_sink(self, stag: int, tagged_offset: int, length: int) -> MemoryRegion:
        return self.memory.check(
            stag,
            tagged_offset,
            length,
            right=Rights.LOCAL_WRITE,
            pd=self.pd,
            stream=self,
            failures=_WRITE_FAILURES,
        )

    def _check_msn(self, header: UntaggedHeader) -> None:
        expected = self._receive_msn[header.qn]
        if header.msn != expected:
            raise StreamError(
                errors.DDP_INVALID_MSN,
                f"MSN {header.msn} on QN {header.qn}; {expected} is next",
            )

    def _advance_msn(self, qn: int) -> None:
        self._receive_msn[qn] = (self._receive_msn[qn] + 1) % _MSN_SPAN

    def _read_request(self, header: UntaggedHeader, payload: bytes) -> None:
        self._check_msn(header)
        if len(self._inbound_reads) >= self.ird:
            raise StreamError(
                errors.DDP_NO_BUFFER,
                f"more Read Requests than the IRD of {self.ird} allows",
            )
        if header.mo != 0:
            raise StreamError(errors.DDP_INVALID_MO, f"MO {header.mo} of a Read Request; 0 needed")
        if len(payload) > rdmap.READ_REQUEST_OCTETS:
            raise StreamError(
                errors.DDP_MESSAGE_TOO_LONG,
                f"Read Request header of {len(payload)} octets",
            )
        if len(payload) < rdmap.READ_REQUEST_OCTETS or not header.last:
            raise StreamError(
                errors.RDMAP_OPERATION_UNSPECIFIED,
                f"incomplete Read Request: {len(payload)} octets, L is {int(header.last)}",
            )
        request = ReadRequest.decode(payload)
        if request.size:
            self.memory.check(
                request.source_stag,
                request.source_tagged_offset,
                request.size,
                right=Rights.REMOTE_READ,
                pd=self.pd,
                stream=self,
                failures=_READ_FAILURES,
            )
        self._advance_msn(header.qn)
        self._inbound_reads.append(request)

    def _read_response(self, header: TaggedHeader, payload: bytes) -> None:
        if not self._reads:
            raise StreamError(errors.RDMAP_UNEXPECTED_OPCODE, "Read Response, no read outstanding")
        read = self._reads[0]
        request = read.request
        expected = request.sink_tagged_offset + read.received
        if payload:
            if header.stag != request.sink_stag:
                raise StreamError(
                    errors.DDP_INVALID_STAG,
                    f"Read Response for STag {header.stag:#010x}; {request.sink_stag:#010x} asked",
                )
            if header.tagged_offset != expected:
                raise StreamError(
                    errors.DDP_BASE_OR_BOUNDS,
                    f"Read Response at TO {header.tagged_offset:#x}; {expected:#x} is next",
                )
        total = read.received + len(payload)
        if total > request.size or (header.last and total != request.size):
            raise StreamError(
                errors.DDP_BASE_OR_BOUNDS,
                f"Read Response of {total} octets; {request.size} asked",
            )
        if payload:
            region = self._check_sink(header.stag, header.tagged_offset, len(payload))
            region.write(header.tagged_offset, payload)
        read.received = total
        if header.last:
            self._reads.popleft()
            read.work.completion = Completion(
                Operation.RDMA_READ, read.work.work_id, length=request.size
            )
            self._report()

    def _send(self, header: UntaggedHeader, payload: bytes) -> None:
        self._check_msn(header)
        if not self._receives:
            raise StreamError(errors.DDP_NO_BUFFER, f"no buffer for the Send with MSN {header.msn}")
        receive = self._receives[0]
        if header.mo != receive.filled:
            raise StreamError(
                errors.DDP_INVALID_MO,
                f"MO {header.mo}; {receive.filled} is next in this Send",
            )
        end = receive.filled + len(payload)
        if end > len(receive.buffer):
            raise StreamError(
                errors.DDP_MESSAGE_TOO_LONG,
                f"Send of {end} octets or more; the buffer has {len(receive.buffer)}",
            )
        opcode = rdmap.decode_control(header.rsvd_ulp).opcode
        if receive.opcode not in (None, opcode):
            raise StreamError(errors.RDMAP_UNEXPECTED_OPCODE, "opcode changed within a Send")
        region = None
        if header.last and opcode in rdmap.INVALIDATE_OPCODES:
            region = self._check_invalidate(header.rsvd_ulp_word)
        receive.opcode = opcode
        receive.buffer[receive.filled : end] = payload
        receive.filled = end
        if not header.last:
            return
        if region is not None:
            region.valid = False
        self._receives.popleft()
        self._advance_msn(header.qn)
        self._completions.append(
            Completion(
                Operation.RECEIVE,
                receive.work_id,
                length=end,
                payload=bytes(receive.buffer[:end]),
                solicited=opcode in rdmap.SOLICITED_OPCODES,
                invalidated_stag=region.stag if region is not None else None,
            )
        )

    def _check_invalidate(self, stag: int) -> MemoryRegion:
        region = self.memory.get(stag)
        if region is None:
            raise StreamError(
                errors.RDMAP_OPERATION_CANNOT_INVALIDATE,
                f"STag {stag:#010x} is not registered",
            )
        if region.pd != self.pd or region.stream not in (None, self):
            raise StreamError(
                errors.RDMAP_PROTECTION_CANNOT_INVALIDATE,
                f"STag {stag:#010x} belongs to another PD or stream",
            )
        return region

    def _terminate(self, header: UntaggedHeader, payload: bytes) -> None:
        try:
            self.terminate_received = Terminate.decode(payload)
        except ValueError as failure:
            # A malformed Terminate is not answered, the connection just ends.
            self.error_detail = str(failure)
            self.closed = True
        self._flush()


def _terminate_for(error: ErrorCode, segment: bytes) -> Terminate:
    """Terminate with the header copies of RFC 5040, Figure 10."""
    header_copied = segment and (error.layer, error.etype) in (
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    )
    if not header_copied:
        return Terminate(error)
    octets = ddp.header_octets(segment[0])
    rdmap_header = b""
    opcode = rdmap.decode_control(segment[1]).opcode
    if (error.layer, error.etype) == (0, 1) and opcode == Opcode.RDMA_READ_REQUEST:
        rdmap_header = segment[octets : octets + rdmap.READ_REQUEST_OCTETS]
    return Terminate(error, len(segment), segment[:octets], rdmap_header)
