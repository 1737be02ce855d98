"""One end of an RDMAP Stream in software: octets in, FPDUs out (RFC 5040, 5041, 5044)."""

import random
from collections import deque
from collections.abc import Iterator

from stagecoach.sim.model import ddp, effects, errors, mpa
from stagecoach.sim.model.effects import Recorder
from stagecoach.sim.model.errors import ErrorCode, StreamError
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.memory import STAG_MAX, Accessor, MemoryRegion, MemoryTable, Rights
from stagecoach.sim.model.posting import Posting
from stagecoach.sim.model.rdmap import Terminate
from stagecoach.sim.model.sink import DataSink, is_terminate
from stagecoach.sim.model.terminate import NEVER_SENT, terminate_for
from stagecoach.sim.model.transmit import AnswerCut, Transmitter
from stagecoach.sim.model.work import Buffer, Completion, Operation, Status, Work

__all__ = ["Completion", "Endpoint", "Operation", "Status"]


class Endpoint(Posting):
    """A full RDMAP Stream end.

    ``receive`` takes octets of the peer in any chunks, ``take_output`` gives the FPDUs to send,
    ``poll`` the completions. The first failed check (their order is in ``checks``) is kept in
    ``error``: from then on input is dropped, one Terminate is output and everything outstanding
    is completed as flushed. Requests of the peer that arrived before the failure are still
    answered. An error in a Terminate, and one before a responder may send, is answered with
    nothing but the end of the connection: then ``closed`` is set.

    Parameters: ``mulpdu`` limits what is sent, and may be changed at any time;
    ``markers_out``/``markers_in``/``crc`` are what the startup settled; ``ird`` limits Read and
    Atomic Requests waiting for their answer (which happens in ``take_output``), ``ord`` those
    sent; a ``responder`` sends nothing before the first FPDU of the peer (RFC 5044, 7.1.2);
    without ``extensions`` the messages of RFC 7306 are errors; endpoints of one device share a
    ``memory``; ``record`` is told of every effect, in order.
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
        extensions: Extensions | None = None,
        memory: MemoryTable | None = None,
        seed: int | None = None,
        record: Recorder = effects.ignore,
    ) -> None:
        self.pd = pd
        self.memory = memory if memory is not None else MemoryTable()
        self.error: ErrorCode | None = None
        self.error_detail = ""
        self.terminate_sent: Terminate | None = None
        self.terminate_received: Terminate | None = None
        self.closed = False
        self._record = record
        self._sink = DataSink(
            self.memory, Accessor(pd, self), ird=ird, extensions=extensions, record=record
        )
        self._transmitter = Transmitter(
            mpa.Framer(markers_out, crc),
            self._sink,
            mulpdu=mulpdu,
            ord=ord,
            record=record,
        )
        self._deframer = mpa.Deframer(markers_in, crc)
        self._random = random.Random(seed)
        self._may_send = not responder
        self._completions: list[Completion] = []
        self._work = deque()

    @property
    def mulpdu(self) -> int:
        """Octets of the largest ULPDU sent; ``mpa.mulpdu`` has the formulas."""
        return self._transmitter.mulpdu

    @mulpdu.setter
    def mulpdu(self, octets: int) -> None:
        self._transmitter.mulpdu = octets

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
        shared: bool = False,
        address: int = 0,
    ) -> MemoryRegion:
        """Register a buffer; without ``stag`` a random unused one is drawn.

        ``address`` is that of its first octet.
        """
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
            shared=shared,
            address=address,
        )
        self.memory.add(region)
        return region

    # Completions

    def poll(self) -> list[Completion]:
        """Completions since the last call; those of the send queue in posting order."""
        completions, self._completions = self._completions, []
        return completions

    @property
    def idle(self) -> bool:
        """True when nothing posted to the send queue is unfinished and no output waits."""
        waiting = self._sink.read_requests.waiting
        return not self._work and not waiting and self._transmitter.idle

    # The stream

    def receive(self, octets: Buffer) -> None:
        """Octets of the peer's stream of Full Operation, cut anywhere."""
        for _ in self.process(octets):
            pass

    def process(self, octets: Buffer) -> Iterator[None]:
        """Like ``receive``, but in steps: one FPDU for every item taken."""
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
            yield

    @property
    def pending(self) -> int:
        """Octets received of an FPDU that is not complete."""
        return self._deframer.pending

    @property
    def position(self) -> int:
        """Octets received in FPDUs that MPA found good."""
        return self._deframer.position

    def resume(
        self,
        *,
        position: int,
        send_msn: int,
        read_request_msn: int,
        atomic_response_msn: int = ddp.FIRST_MSN,
    ) -> None:
        """Go on in the middle of a stream of which ``position`` octets were received before."""
        self._may_send = True
        self._deframer.position = position
        self._sink.sends.msn = send_msn
        self._sink.read_requests.msn = read_request_msn
        self._sink.atomic_responses.msn = atomic_response_msn

    def take_output(self, limit: int | None = None) -> list[bytes]:
        """FPDUs to send now, in order, at most ``limit``; answers to the peer come first."""
        output: list[bytes] = []
        while self._may_send and (limit is None or len(output) < limit):
            try:
                made = self._transmitter.next_fpdu()
            except AnswerCut as cut:
                self._fail(cut, b"", cut.terminate)
                continue
            if made is None:
                break
            fpdu, work = made
            output.append(fpdu)
            if work is not None:
                work.completion = Completion(work.operation, work.work_id, length=work.length)
                self._report()
        return output

    def tcp_closed(self) -> None:
        """The LLP connection ended: everything outstanding is flushed."""
        if not self.closed:
            self.closed = True
            if self.error is None and self.terminate_received is None:
                self.error = errors.MPA_TCP_LOST
            self._transmitter.stop()
            self._flush()

    def send_ready_to_receive(self, *, by_read: bool = False) -> None:
        """Send the RTR frame of RFC 6581, 9.2; it has no completion."""
        self._transmitter.ready_to_receive(by_read=by_read)

    def abort(self, error: ErrorCode, detail: str) -> None:
        """End the stream for a reason found outside of it: Terminate and flush."""
        self._fail(StreamError(error, detail), b"")

    @property
    def _stopped(self) -> bool:
        return self.closed or self.error is not None or self.terminate_received is not None

    def _post(self, work: Work) -> None:
        if self._stopped:
            self._complete(Completion(work.operation, work.work_id, Status.FLUSHED))
            return
        self._work.append(work)
        self._transmitter.unsent.append(work)

    def _complete(self, completion: Completion) -> None:
        self._completions.append(completion)
        self._record(effects.Delivery(completion))

    def _report(self) -> None:
        """Report finished work up to the first unfinished one (RFC 5040, 5.5, rule 15)."""
        while self._work and self._work[0].completion is not None:
            work = self._work.popleft()
            assert work.completion is not None
            if not work.silent:
                self._complete(work.completion)

    def _delivered(self) -> None:
        """Take over what the last segment brought."""
        for completion in self._sink.completions:
            self._complete(completion)
        self._sink.completions.clear()
        self._report()
        if self._sink.terminate is not None:
            self.terminate_received = self._sink.terminate
            self._record(effects.TerminateReceived(self._sink.terminate))
            # RFC 5040, 5.4: sending may stop.
            self._transmitter.stop()
            self._flush()

    def _fail(
        self, failure: StreamError, segment: bytes, terminate: Terminate | None = None
    ) -> None:
        if self._stopped:
            return
        self.error = failure.error
        self.error_detail = failure.detail
        may_answer = not is_terminate(segment) and failure.error not in NEVER_SENT
        if self._may_send and may_answer:
            terminate = terminate or terminate_for(failure.error, segment)
            self.terminate_sent = terminate
            self._transmitter.terminate(terminate)
        else:
            # A responder may not send an FPDU yet, not even a Terminate (RFC 5044, 7.1.2); and a
            # Terminate in error is not answered with one.
            self.closed = True
            self._transmitter.stop()
        self._record(
            effects.Failure(failure.error, failure.detail, failure.source, self.terminate_sent)
        )
        self._flush()

    def _flush(self) -> None:
        for work in self._work:
            if work.silent:
                continue
            flushed = Completion(work.operation, work.work_id, Status.FLUSHED)
            self._complete(work.completion or flushed)
        for receive in self._sink.sends.receives:
            self._complete(Completion(Operation.RECEIVE, receive.work_id, Status.FLUSHED))
        self._work.clear()
        self._sink.sends.receives.clear()
        self._sink.tagged.reads.clear()
        self._sink.atomic_responses.outstanding.clear()
