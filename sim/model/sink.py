"""The Data Sink of the reference endpoint: what a DDP Segment is, and who takes it."""

from stagecoach.sim.model import checks, ddp, effects, rdmap
from stagecoach.sim.model.atomic_requests import AtomicRequests
from stagecoach.sim.model.atomic_responses import AtomicResponses
from stagecoach.sim.model.ddp import Header, TaggedHeader, UntaggedHeader
from stagecoach.sim.model.effects import Recorder
from stagecoach.sim.model.extensions import EXTENSION_OPCODES, EXTENSION_QUEUES, Extensions
from stagecoach.sim.model.immediate import receive_immediate
from stagecoach.sim.model.memory import Accessor, MemoryTable
from stagecoach.sim.model.rdmap import Opcode, Terminate
from stagecoach.sim.model.tagged import TaggedBuffers
from stagecoach.sim.model.untagged import ReadRequestQueue, SendQueue, receive_terminate
from stagecoach.sim.model.work import Completion

# Queues of the untagged model that exist without RFC 7306.
_KNOWN_QUEUES = frozenset({rdmap.QN_SEND, rdmap.QN_READ_REQUEST, rdmap.QN_TERMINATE})
_KNOWN_OPCODES = rdmap.SEND_OPCODES | {
    Opcode.RDMA_WRITE,
    Opcode.RDMA_READ_REQUEST,
    Opcode.RDMA_READ_RESPONSE,
    Opcode.TERMINATE,
}


def check_header(
    segment: bytes, extensions: Extensions | None = None
) -> tuple[Opcode, Header, bytes]:
    """Opcode, DDP header and payload of a segment that passes ``checks.HEADER_ORDER``."""
    opcodes, queues = _KNOWN_OPCODES, _KNOWN_QUEUES
    if extensions is not None:
        opcodes, queues = opcodes | EXTENSION_OPCODES, queues | EXTENSION_QUEUES
    header, payload = ddp.decode(segment)
    tagged = isinstance(header, TaggedHeader)
    if header.version != ddp.DDP_VERSION:
        check = checks.TAGGED_VERSION if tagged else checks.UNTAGGED_VERSION
        raise check.failed(f"DV is {header.version}; {ddp.DDP_VERSION} is supported")
    control = rdmap.decode_control(header.rsvd_ulp)
    if control.version != rdmap.RDMAP_VERSION:
        raise checks.RDMAP_VERSION.failed(
            f"RV is {control.version}; {rdmap.RDMAP_VERSION} is supported"
        )
    if control.opcode not in opcodes:
        raise checks.OPCODE.failed(
            f"opcode {control.opcode:#x}; 0 to {max(opcodes):x} are supported"
        )
    opcode = Opcode(control.opcode)
    if tagged != (opcode in rdmap.TAGGED_OPCODES):
        raise checks.BUFFER_MODEL.failed(f"{opcode.name} with T {int(tagged)}")
    if isinstance(header, UntaggedHeader):
        if header.qn not in queues:
            raise checks.QUEUE.failed(f"QN {header.qn}; 0 to {max(queues)} are known")
        if header.qn != rdmap.QUEUE_OF[opcode]:
            raise checks.QUEUE_OF_OPCODE.failed(
                f"{opcode.name} on QN {header.qn}; it uses {rdmap.QUEUE_OF[opcode]}"
            )
    return opcode, header, payload


def is_terminate(segment: bytes) -> bool:
    """Whether a segment is a Terminate, though perhaps one in error.

    Such a one is not answered with another (RFC 5040, 7.1 does not list it).
    """
    if not segment or len(segment) < ddp.header_octets(segment[0]):
        return False
    control = rdmap.decode_control(segment[1])
    return (
        segment[0] & ddp.MASK_VERSION == ddp.DDP_VERSION
        and control.version == rdmap.RDMAP_VERSION
        and control.opcode == Opcode.TERMINATE
    )


class DataSink:
    """Takes whole DDP Segments, whose CRC was good, in the order of the stream.

    All checks of a segment, in the order of ``checks``, come before its first octet is placed; a
    failed one raises :class:`StreamError`, after which nothing more may be given. Without
    ``extensions`` the messages of RFC 7306 are unknown.
    """

    def __init__(
        self,
        memory: MemoryTable,
        accessor: Accessor,
        *,
        ird: int,
        extensions: Extensions | None = None,
        record: Recorder = effects.ignore,
    ) -> None:
        self.extensions = extensions
        self.sends = SendQueue(memory, accessor, record)
        self.read_requests = ReadRequestQueue(memory, accessor, record, ird)
        self.atomic_requests = AtomicRequests(
            self.read_requests, memory, accessor, record, extensions or Extensions()
        )
        self.atomic_responses = AtomicResponses(self._next_place)
        self.tagged = TaggedBuffers(memory, accessor, record, self._next_place)
        # Of receives; those of RDMA Reads and Atomic Operations are left in their work.
        self.completions: list[Completion] = []
        self.terminate: Terminate | None = None

    def _next_place(self) -> int | None:
        """Of the oldest RDMA Read or atomic that is outstanding, if there is one."""
        places = [read.place for read in list(self.tagged.reads)[:1]]
        places += [atomic.place for atomic in list(self.atomic_responses.outstanding)[:1]]
        return min(places, default=None)

    def segment(self, segment: bytes) -> None:
        """All checks of one DDP Segment, then its placement and delivery."""
        opcode, header, payload = check_header(segment, self.extensions)
        if isinstance(header, TaggedHeader):
            if opcode is Opcode.RDMA_WRITE:
                self.tagged.write(header, payload)
            else:
                self.tagged.read_response(header, payload)
        elif opcode in rdmap.SEND_OPCODES:
            completion = self.sends.segment(header, payload)
            if completion is not None:
                self.completions.append(completion)
        elif opcode in rdmap.IMMEDIATE_OPCODES:
            self.completions.append(receive_immediate(self.sends, header, payload))
        elif opcode is Opcode.RDMA_READ_REQUEST:
            self.read_requests.segment(header, payload, segment)
        elif opcode is Opcode.ATOMIC_REQUEST:
            self.atomic_requests.segment(header, payload, segment)
        elif opcode is Opcode.ATOMIC_RESPONSE:
            self.atomic_responses.segment(header, payload)
        else:
            self.terminate = receive_terminate(header, payload)
