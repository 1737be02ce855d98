"""The Data Sink of the reference endpoint: checks, placement and delivery of DDP Segments."""

from collections import deque
from collections.abc import Callable

from sim.model import ddp, errors, rdmap
from sim.model.ddp import Header, TaggedHeader, UntaggedHeader
from sim.model.errors import StreamError
from sim.model.memory import AccessErrors, MemoryRegion, MemoryTable, Rights
from sim.model.rdmap import Opcode, ReadRequest, Terminate
from sim.model.work import Completion, Operation, OutstandingRead, Receive

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
MSN_SPAN = 2**32


class DataSink:
    """Takes whole DDP Segments, whose CRC was good, in the order of the stream.

    Every check of RFC 5041, 7.1 and RFC 5040, 7.2 comes before the first octet of a segment is
    placed; a failed one raises :class:`StreamError`, after which nothing more may be given.

    Left open by the RFCs, chosen here: an MSN other than the next one is reported before a
    missing buffer (1/2/03 before 1/2/02); a Read Request whose L bit is zero is incomplete
    (0/2/FF); an opcode that changes within a Send is unexpected (0/2/06).
    """

    def __init__(self, memory: MemoryTable, *, pd: int, stream: object, ird: int) -> None:
        self.receives: deque[Receive] = deque()
        self.reads: deque[OutstandingRead] = deque()
        # The peer's Read Requests which are not answered yet.
        self.inbound_reads: deque[ReadRequest] = deque()
        # Of receives; those of Reads are left in their work.
        self.completions: list[Completion] = []
        self.terminate: Terminate | None = None
        self.malformed_terminate: str | None = None
        self.receive_msn = {rdmap.QN_SEND: ddp.FIRST_MSN, rdmap.QN_READ_REQUEST: ddp.FIRST_MSN}
        self._memory = memory
        self._pd = pd
        self._stream = stream
        self._ird = ird

    def segment(self, segment: bytes) -> None:
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
        region = self._memory.check(
            header.stag,
            header.tagged_offset,
            len(payload),
            right=Rights.REMOTE_WRITE,
            pd=self._pd,
            stream=self._stream,
            failures=_WRITE_FAILURES,
        )
        region.write(header.tagged_offset, payload)

    def check_sink(self, stag: int, tagged_offset: int, length: int) -> MemoryRegion:
        return self._memory.check(
            stag,
            tagged_offset,
            length,
            right=Rights.LOCAL_WRITE,
            pd=self._pd,
            stream=self._stream,
            failures=_WRITE_FAILURES,
        )

    def _check_msn(self, header: UntaggedHeader) -> None:
        expected = self.receive_msn[header.qn]
        if header.msn != expected:
            raise StreamError(
                errors.DDP_INVALID_MSN,
                f"MSN {header.msn} on QN {header.qn}; {expected} is next",
            )

    def _advance_msn(self, qn: int) -> None:
        self.receive_msn[qn] = (self.receive_msn[qn] + 1) % MSN_SPAN

    def _read_request(self, header: UntaggedHeader, payload: bytes) -> None:
        self._check_msn(header)
        if len(self.inbound_reads) >= self._ird:
            raise StreamError(
                errors.DDP_NO_BUFFER,
                f"more Read Requests than the IRD of {self._ird} allows",
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
            self._memory.check(
                request.source_stag,
                request.source_tagged_offset,
                request.size,
                right=Rights.REMOTE_READ,
                pd=self._pd,
                stream=self._stream,
                failures=_READ_FAILURES,
            )
        self._advance_msn(header.qn)
        self.inbound_reads.append(request)

    def _read_response(self, header: TaggedHeader, payload: bytes) -> None:
        if not self.reads:
            raise StreamError(errors.RDMAP_UNEXPECTED_OPCODE, "Read Response, no read outstanding")
        read = self.reads[0]
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
            region = self.check_sink(header.stag, header.tagged_offset, len(payload))
            region.write(header.tagged_offset, payload)
        read.received = total
        if header.last:
            self.reads.popleft()
            read.work.completion = Completion(
                Operation.RDMA_READ, read.work.work_id, length=request.size
            )

    def _send(self, header: UntaggedHeader, payload: bytes) -> None:
        self._check_msn(header)
        if not self.receives:
            raise StreamError(errors.DDP_NO_BUFFER, f"no buffer for the Send with MSN {header.msn}")
        receive = self.receives[0]
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
        self.receives.popleft()
        self._advance_msn(header.qn)
        self.completions.append(
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
        region = self._memory.get(stag)
        if region is None:
            raise StreamError(
                errors.RDMAP_OPERATION_CANNOT_INVALIDATE,
                f"STag {stag:#010x} is not registered",
            )
        if region.pd != self._pd or region.stream not in (None, self._stream):
            raise StreamError(
                errors.RDMAP_PROTECTION_CANNOT_INVALIDATE,
                f"STag {stag:#010x} belongs to another PD or stream",
            )
        return region

    def _terminate(self, header: UntaggedHeader, payload: bytes) -> None:
        try:
            self.terminate = Terminate.decode(payload)
        except ValueError as failure:
            self.malformed_terminate = str(failure)
