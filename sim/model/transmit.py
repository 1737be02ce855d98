"""The sending side of the reference endpoint: which message goes next, and its FPDUs."""

from collections import deque

from stagecoach.sim.model import ddp, effects, mpa, rdmap
from stagecoach.sim.model.atomic_requests import AtomicAnswer
from stagecoach.sim.model.atomic_responses import OutstandingAtomic
from stagecoach.sim.model.effects import Recorder
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.message import Answer, Message, ReadResponse
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate
from stagecoach.sim.model.sink import DataSink
from stagecoach.sim.model.untagged import MSN_SPAN, InboundAtomic
from stagecoach.sim.model.work import Buffer, Operation, OutstandingRead, Work


class AnswerCut(StreamError):
    """The answer to a request could not be made, or not go on; ``terminate`` tells the peer."""

    def __init__(self, failure: StreamError, terminate: Terminate) -> None:
        super().__init__(failure.error, failure.detail, failure.source)
        self.terminate = terminate


class Transmitter:
    """Makes ULPDUs, one message after the other: answers to the peer's requests, then own work.

    ``sink`` has the requests to answer, and is told which answers to await. ``mulpdu`` may change
    between any two of them. The segments of two messages never mix.
    """

    def __init__(
        self,
        framer: mpa.Framer,
        sink: DataSink,
        *,
        mulpdu: int,
        ord: int,
        record: Recorder,
    ) -> None:
        self.mulpdu = mulpdu
        self.ord = ord
        self.unsent: deque[Work] = deque()
        self.msn = {
            rdmap.QN_SEND: ddp.FIRST_MSN,
            rdmap.QN_READ_REQUEST: ddp.FIRST_MSN,
            rdmap.QN_TERMINATE: ddp.FIRST_MSN,
            rdmap.QN_ATOMIC_RESPONSE: ddp.FIRST_MSN,
        }
        self._framer = framer
        self._sink = sink
        # Requests of the peer, in the order in which they are answered.
        self._requests = sink.read_requests.waiting
        self._record = record
        self._message: Message | None = None
        self._terminate: Terminate | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing waits but work which ORD holds back."""
        return self._message is None and self._terminate is None

    def terminate(self, terminate: Terminate) -> None:
        """Send this and then nothing more; answers to requests still go before it.

        RFC 5040, 7.1 wants it at the earliest opportunity: a device may leave them out.
        """
        self._terminate = terminate
        self.unsent.clear()
        if not isinstance(self._message, Answer):
            self._message = None

    def stop(self) -> None:
        """Send nothing more, not even what was begun."""
        self.unsent.clear()
        self._requests.clear()
        self._message = None
        self._terminate = None

    def ready_to_receive(self, *, by_read: bool) -> None:
        """The RTR frame of RFC 6581, 9.2: an empty RDMA Write, or an empty RDMA Read.

        Nobody checks its STags and TOs (RFC 5041, 5.2). It goes before everything else.
        """
        if by_read:
            work = Work(Operation.RDMA_READ, None, request=ReadRequest(1, 0, 0, 1, 0))
        else:
            work = Work(Operation.RDMA_WRITE, None, opcode=Opcode.RDMA_WRITE, stag=1)
        self.unsent.appendleft(work)

    def next_fpdu(self) -> tuple[bytes, Work | None] | None:
        """An FPDU, and the work of which it was the last; ``None`` if there is nothing to send.

        Raises :class:`AnswerCut`.
        """
        if self._message is None:
            self._message = self._next_message()
        message = self._message
        if message is None:
            return None
        before = message.sent
        try:
            ulpdu = message.segment(self.mulpdu)
        except StreamError as failure:
            assert isinstance(message, Answer)
            self._message = None
            self._requests.clear()
            if self._terminate is not None:
                # What failed first is what the peer learns.
                return self.next_fpdu()
            raise AnswerCut(failure, message.terminate(failure.error)) from failure
        self._sent(message, before, ulpdu)
        return self._framer.frame(ulpdu), message.work if message.done else None

    def _sent(self, message: Message, before: int, ulpdu: bytes) -> None:
        if isinstance(message, ReadResponse):
            payload = ulpdu[ddp.TAGGED_HEADER_OCTETS :]
            self._record(effects.Response(message.inbound.request, before, payload, message.done))
        if message.done:
            self._message = None
            if isinstance(message, Answer):
                self._requests.popleft()

    def _next_message(self) -> Message | None:
        if self._requests:
            return self._answer()
        if self._terminate is not None:
            terminate, self._terminate = self._terminate, None
            return self._untagged(Opcode.TERMINATE, rdmap.QN_TERMINATE, terminate.encode())
        if not self.unsent:
            return None
        work = self.unsent[0]
        reads, atomics = self._sink.tagged.reads, self._sink.atomic_responses
        outstanding = len(reads) + len(atomics.outstanding)
        if (work.request is not None or work.atomic is not None) and outstanding >= self.ord:
            return None
        self.unsent.popleft()
        if work.request is not None:
            reads.append(OutstandingRead(work.request, work))
            octets = work.request.encode()
            return self._untagged(Opcode.RDMA_READ_REQUEST, rdmap.QN_READ_REQUEST, octets)
        if work.atomic is not None:
            request = atomics.identified(work.atomic)
            atomics.outstanding.append(OutstandingAtomic(request, work))
            octets = request.encode()
            return self._untagged(Opcode.ATOMIC_REQUEST, rdmap.QN_READ_REQUEST, octets)
        if work.operation is Operation.RDMA_WRITE:
            header = ddp.TaggedHeader(work.stag, work.tagged_offset)
            return Message(work.opcode, header, work.payload, work)
        return self._untagged(work.opcode, rdmap.QN_SEND, work.payload, work.stag, work)

    def _answer(self) -> Answer:
        inbound = self._requests[0]
        if isinstance(inbound, InboundAtomic):
            msn = self._next_msn(rdmap.QN_ATOMIC_RESPONSE)
            return AtomicAnswer(inbound, self._sink.atomic_requests, msn)
        return ReadResponse(inbound, self._sink.read_requests)

    def _untagged(
        self, opcode: Opcode, qn: int, payload: Buffer, word: int = 0, work: Work | None = None
    ) -> Message:
        header = ddp.UntaggedHeader(qn, self._next_msn(qn), rsvd_ulp_word=word)
        return Message(opcode, header, payload, work)

    def _next_msn(self, qn: int) -> int:
        msn = self.msn[qn]
        self.msn[qn] = (msn + 1) % MSN_SPAN
        return msn
