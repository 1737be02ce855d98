"""One end of an RDMAP Stream in software: octets in, FPDUs out (RFC 5040, 5041, 5044)."""

import random
from collections import deque

from sim.model import ddp, errors, mpa, rdmap
from sim.model.errors import ErrorCode, StreamError
from sim.model.memory import STAG_MAX, MemoryRegion, MemoryTable, Rights
from sim.model.rdmap import Opcode, ReadRequest, Terminate
from sim.model.sink import MSN_SPAN, DataSink
from sim.model.work import Buffer, Completion, Operation, OutstandingRead, Receive, Status, Work

__all__ = ["Completion", "Endpoint", "Operation", "Status"]


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
        self.ord = ord
        self.pd = pd
        self.memory = memory if memory is not None else MemoryTable()
        self.error: ErrorCode | None = None
        self.error_detail = ""
        self.terminate_received: Terminate | None = None
        self.closed = False
        self._sink = DataSink(self.memory, pd=pd, stream=self, ird=ird)
        self._framer = mpa.Framer(markers_out, crc)
        self._deframer = mpa.Deframer(markers_in, crc)
        self._random = random.Random(seed)
        self._may_send = not responder
        self._output: list[bytes] = []
        self._completions: list[Completion] = []
        # Work requests in posting order until reported; those not yet sent are also in _unsent.
        self._work: deque[Work] = deque()
        self._unsent: deque[Work] = deque()
        self._send_msn = {
            rdmap.QN_SEND: ddp.FIRST_MSN,
            rdmap.QN_READ_REQUEST: ddp.FIRST_MSN,
        }

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
        self._sink.receives.append(Receive(memoryview(octets).cast("B"), work_id))

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
        self._post(Work(Operation.SEND, work_id, payload, opcode, invalidate_stag or 0))

    def rdma_write(
        self,
        payload: Buffer,
        remote_stag: int,
        remote_offset: int,
        work_id: object = None,
    ) -> None:
        """Post an RDMA Write of ``payload`` to the peer's STag and TO."""
        self._post(
            Work(
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
            self._sink.check_sink(local_stag, local_offset, length)
        request = ReadRequest(local_stag, local_offset, length, remote_stag, remote_offset)
        self._post(Work(Operation.RDMA_READ, work_id, request=request))

    def poll(self) -> list[Completion]:
        """Completions since the last call; those of the send queue in posting order."""
        completions, self._completions = self._completions, []
        return completions

    @property
    def idle(self) -> bool:
        """True when nothing posted to the send queue is unfinished and no output waits."""
        return not (self._work or self._output or self._sink.inbound_reads)

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
                self._sink.segment(segment)
                self._delivered()
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
        self._transmit(Work(Operation.RDMA_READ, None, request=request))

    def abort(self, error: ErrorCode, detail: str) -> None:
        """End the stream for a reason found outside of it: Terminate and flush."""
        self._fail(StreamError(error, detail), b"")

    # Sending

    @property
    def _stopped(self) -> bool:
        return self.closed or self.error is not None or self.terminate_received is not None

    def _post(self, work: Work) -> None:
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
            if work.request is not None and len(self._sink.reads) >= self.ord:
                break
            self._unsent.popleft()
            self._transmit(work)
        self._report()

    def _answer_reads(self) -> None:
        while self._sink.inbound_reads:
            request = self._sink.inbound_reads.popleft()
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

    def _transmit(self, work: Work) -> None:
        length = len(memoryview(work.payload).cast("B"))
        done = Completion(work.operation, work.work_id, length=length)
        if work.operation is Operation.RDMA_WRITE:
            self._tagged(work.opcode, work.payload, work.stag, work.tagged_offset)
            work.completion = done
        elif work.operation is Operation.SEND:
            self._untagged(work.opcode, work.payload, rdmap.QN_SEND, work.stag)
            work.completion = done
        elif work.request is not None:
            self._sink.reads.append(OutstandingRead(work.request, work))
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
        self._send_msn[qn] = (msn + 1) % MSN_SPAN
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

    def _delivered(self) -> None:
        """Take over what the last segment brought."""
        self._completions += self._sink.completions
        self._sink.completions.clear()
        self._report()
        self.terminate_received = self._sink.terminate
        if self._sink.malformed_terminate is not None:
            # It is not answered, the connection just ends.
            self.error_detail = self._sink.malformed_terminate
            self.closed = True
        if self._stopped:
            self._flush()

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
        for receive in self._sink.receives:
            self._completions.append(Completion(Operation.RECEIVE, receive.work_id, Status.FLUSHED))
        for queue in (
            self._work,
            self._unsent,
            self._sink.receives,
            self._sink.reads,
            self._sink.inbound_reads,
        ):
            queue.clear()


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
