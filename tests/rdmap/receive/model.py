"""What the RDMAP receiver must do: the effects of the reference model, in terms of its neighbours.

The reference decides what a segment is worth and what becomes of it; here its lookups become
requests to the STag table, its placements descriptors for the placer, its failures causes.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import DeliveryKind, SegmentKind, StagStatus
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.queue_entries import EVENT_HEADER_OCTETS, CompletionFlags, Rights
from stagecoach.sim.model import checks, ddp, effects, memory, rdmap
from stagecoach.sim.model.atomic_responses import OutstandingAtomic
from stagecoach.sim.model.atomics import ATOMIC_OCTETS, AtomicRequest
from stagecoach.sim.model.checks import AccessChecks, Check
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.memory import Accessor
from stagecoach.sim.model.rdmap import Opcode, ReadRequest
from stagecoach.sim.model.sink import DataSink, check_header
from stagecoach.sim.model.untagged import SendQueue
from stagecoach.sim.model.work import Completion, Operation, OutstandingRead, Work

CONFIG = RnicConfig(qps=4, cqs=4, read_queue_depth=4)
STORE_WORDS = 1 << CONFIG.store_address_bits
STORE_NUMBERS = 1 << CONFIG.store_number_bits
LENGTH_OCTETS = 2
"""Octets of an FPDU before its ULPDU."""

TOLD_BITS = 8 * 46
"""Of the captured header, what an error tells."""
EVENT_BITS = 8 * EVENT_HEADER_OCTETS
"""Of these, what an event tells; all that counts of a Terminate, and without a ULPDU."""
TERMINATE_HEADER = 8 * ddp.UNTAGGED_HEADER_OCTETS
"""Where in the captured header of a Terminate that of RDMAP begins."""


def terminated_msn(header: int) -> int:
    """Low half of the MSN in an untagged DDP header that a Terminate carries: its octets 36, 37."""
    low = ddp.UNTAGGED_HEADER_OCTETS + 18
    return int.from_bytes((header >> 8 * low & 0xFFFF).to_bytes(2, "little"), "big")


# The stand-in for the STag table answers by the low bits of the STag.
STATUS_BITS = 7
ADDRESS_MASK = 0x1234_5678_9ABC_DEF5


def stag_status(stag: int) -> StagStatus:
    """What the stand-in for the STag table says of an STag."""
    low = stag & STATUS_BITS
    return StagStatus(low) if low <= StagStatus.BOUNDS.value else StagStatus.OK


def stag_with(rng: Any, status: StagStatus = StagStatus.OK) -> int:
    """A random STag of which the stand-in says `status`."""
    return rng.getrandbits(29) << 3 | status.value


@dataclass
class Element:
    """An element of a receive entry."""

    tagged_offset: int
    length: int
    stag: int


@dataclass
class Entry:
    """A receive entry, as the reference wants an Untagged Buffer: all but the octets."""

    elements: list[Element]
    filled: int = 0
    opcode: int | None = None

    work_id = None

    @property
    def room(self) -> int:
        """Octets that a Send may have: its completion gives them in 32 bits."""
        return min(sum(element.length for element in self.elements), 2**32 - 1)

    def place(self, octets: bytes) -> None:
        self.filled += len(octets)

    def content(self) -> bytes:
        return b""

    def pieces(self, offset: int, octets: int) -> Iterator[tuple[int, int, int]]:
        """STag, TO and length of each range that holds some of `octets` octets from `offset`."""
        start = 0
        for e in self.elements:
            low, high = max(start, offset), min(start + e.length, offset + octets)
            if low < high:
                yield e.stag, (e.tagged_offset + low - start) % 2**64, high - low
            start += e.length


@dataclass(frozen=True)
class AtomicSink:
    """Where the original value of an atomic goes, and the number of its send entry."""

    stag: int
    tagged_offset: int
    index: int


class LocalProtection(Exception):
    """An element of a receive entry failed its STag check; the reference has no such thing."""


class SinkProtection(Exception):
    """The buffer for the original value of an atomic failed its STag check; likewise."""

    def __init__(self, sink: AtomicSink) -> None:
        super().__init__()
        self.sink = sink


class _Region:
    valid = True

    def __init__(self, stag: int) -> None:
        self.stag = stag

    @staticmethod
    def address_of(tagged_offset: int) -> int:
        return tagged_offset ^ ADDRESS_MASK

    def write(self, tagged_offset: int, octets: bytes) -> None:
        pass


class _StagTable:
    """In the place of the reference's memory table: records the requests, answers by the STag."""

    def __init__(self, qp: int, pd: int, events: list[tuple[Any, ...]]) -> None:
        self._qp, self._pd = qp, pd
        self._events = events

    def ask(self, stag: int, rights: Rights, to: int = 0, octets: int = 0) -> StagStatus:
        """With no rights the request is about the STag itself, and its range means nothing."""
        request = {
            "stag": stag,
            "tagged_offset": to,
            "octets": octets,
            "rights": int(rights),
            "exclusive": int(not rights),
            "pd": self._pd,
            "qp": self._qp,
        }
        self._events.append(("stag", request))
        return stag_status(stag)

    def check(
        self,
        stag: int,
        tagged_offset: int,
        length: int,
        *,
        right: memory.Rights,
        accessor: Accessor,
        checks: AccessChecks,
    ) -> _Region:
        status = self.ask(stag, _RIGHTS[right], tagged_offset, length)
        for failed, check in zip(_STATUSES, checks.order, strict=True):
            if status is failed:
                raise check.failed(status.name)
        return _Region(stag)

    def check_invalidate(self, stag: int, accessor: Accessor) -> _Region:
        failures = {
            StagStatus.INVALID: checks.INVALIDATE_VALID,
            StagStatus.NOT_ASSOCIATED: checks.INVALIDATE_ASSOCIATED,
            StagStatus.NOT_PERMITTED: checks.INVALIDATE_UNSHARED,
        }
        status = self.ask(stag, Rights(0))
        if status in failures:
            raise failures[status].failed(status.name)
        return _Region(stag)


_RIGHTS = {
    memory.Rights.LOCAL_WRITE: Rights.LOCAL_WRITE,
    memory.Rights.REMOTE_READ: Rights.REMOTE_READ,
    memory.Rights.REMOTE_WRITE: Rights.REMOTE_WRITE,
    memory.Rights.REMOTE_READ | memory.Rights.REMOTE_WRITE: (
        Rights.REMOTE_READ | Rights.REMOTE_WRITE
    ),
}
_STATUSES = (
    StagStatus.INVALID,
    StagStatus.NOT_ASSOCIATED,
    StagStatus.NOT_PERMITTED,
    StagStatus.WRAP,
    StagStatus.BOUNDS,
)
"""In the order of `AccessChecks.order`."""


class _SendQueue(SendQueue):
    """Also looks up the elements of the entry, between the other checks and the Invalidate STag."""

    table: _StagTable

    def _check(self, header: ddp.UntaggedHeader, length: int) -> Any:
        entry: Any = super()._check(header, length)
        for stag, to, octets in entry.pieces(entry.filled, length):
            if self.table.ask(stag, Rights.LOCAL_WRITE, to, octets) is not StagStatus.OK:
                raise LocalProtection
        return entry


_CAUSES: dict[Check, Cause] = {
    checks.ULPDU_HAS_HEADER: Cause.ULPDU_TOO_SHORT,
    checks.TAGGED_VERSION: Cause.TAGGED_DDP_VERSION,
    checks.UNTAGGED_VERSION: Cause.UNTAGGED_DDP_VERSION,
    checks.RDMAP_VERSION: Cause.RDMAP_VERSION,
    checks.OPCODE: Cause.UNEXPECTED_OPCODE,
    checks.BUFFER_MODEL: Cause.UNEXPECTED_OPCODE,
    checks.QUEUE: Cause.UNTAGGED_QN,
    checks.QUEUE_OF_OPCODE: Cause.UNEXPECTED_OPCODE,
    checks.MSN: Cause.UNTAGGED_MSN,
    checks.RECEIVE_BUFFER: Cause.UNTAGGED_NO_BUFFER,
    checks.READ_REQUEST_BUFFER: Cause.TOO_MANY_READ_REQUESTS,
    checks.MO: Cause.UNTAGGED_MO,
    checks.MO_NEXT: Cause.UNTAGGED_MO,
    checks.ONE_SEGMENT: Cause.READ_REQUEST_TOO_SHORT,
    checks.MESSAGE_LENGTH: Cause.UNTAGGED_TOO_LONG,
    checks.SEND_OPCODE: Cause.UNEXPECTED_OPCODE,
    checks.INVALIDATE_VALID: Cause.INVALIDATE_REFUSED,
    checks.INVALIDATE_ASSOCIATED: Cause.INVALIDATE_NOT_ASSOCIATED,
    checks.INVALIDATE_UNSHARED: Cause.INVALIDATE_REFUSED,
    checks.IMMEDIATE_WHOLE: Cause.IMMEDIATE_TOO_SHORT,
    checks.READ_REQUEST_WHOLE: Cause.READ_REQUEST_TOO_SHORT,
    checks.SOURCE.valid: Cause.READ_STAG_INVALID,
    checks.SOURCE.associated: Cause.READ_STAG_NOT_ASSOCIATED,
    checks.SOURCE.rights: Cause.READ_NOT_PERMITTED,
    checks.SOURCE.wrap: Cause.READ_TO_WRAP,
    checks.SOURCE.bounds: Cause.READ_BOUNDS,
    checks.TARGET.valid: Cause.TAGGED_STAG_INVALID,
    checks.TARGET.associated: Cause.TAGGED_STAG_NOT_ASSOCIATED,
    checks.TARGET.rights: Cause.WRITE_NOT_PERMITTED,
    checks.TARGET.wrap: Cause.TAGGED_TO_WRAP,
    checks.TARGET.bounds: Cause.TAGGED_BOUNDS,
    checks.READ_OUTSTANDING: Cause.UNSOLICITED_READ_RESPONSE,
    checks.RESPONSE_STAG: Cause.READ_RESPONSE_STAG,
    checks.RESPONSE_OFFSET: Cause.READ_RESPONSE_RANGE,
    checks.RESPONSE_NEXT: Cause.READ_RESPONSE_RANGE,
    checks.RESPONSE_LENGTH: Cause.READ_RESPONSE_RANGE,
    checks.TERMINATE_WHOLE: Cause.TERMINATE_MALFORMED,
    checks.ATOMIC_REQUEST_WHOLE: Cause.ATOMIC_REQUEST_TOO_SHORT,
    checks.ATOMIC_OPERATION: Cause.ATOMIC_OPERATION_UNSUPPORTED,
    checks.ATOMIC_TARGET.valid: Cause.ATOMIC_STAG_INVALID,
    checks.ATOMIC_TARGET.associated: Cause.ATOMIC_STAG_NOT_ASSOCIATED,
    checks.ATOMIC_TARGET.rights: Cause.ATOMIC_NOT_PERMITTED,
    checks.ATOMIC_TARGET.wrap: Cause.ATOMIC_TO_WRAP,
    checks.ATOMIC_TARGET.bounds: Cause.ATOMIC_BOUNDS,
    checks.ATOMIC_ALIGNMENT: Cause.ATOMIC_MISALIGNED,
    checks.ATOMIC_OUTSTANDING: Cause.UNSOLICITED_ATOMIC_RESPONSE,
    checks.ATOMIC_RESPONSE_WHOLE: Cause.ATOMIC_RESPONSE_TOO_SHORT,
    checks.ATOMIC_IDENTIFIER: Cause.ATOMIC_RESPONSE_IDENTIFIER,
}
_NARROWER = {
    (Opcode.RDMA_READ_REQUEST, Cause.UNTAGGED_TOO_LONG): Cause.READ_REQUEST_TOO_LONG,
    (Opcode.ATOMIC_REQUEST, Cause.UNTAGGED_TOO_LONG): Cause.ATOMIC_REQUEST_TOO_LONG,
    (Opcode.ATOMIC_RESPONSE, Cause.UNTAGGED_TOO_LONG): Cause.ATOMIC_RESPONSE_TOO_LONG,
    **{
        (opcode, Cause.READ_REQUEST_TOO_SHORT): cause
        for opcode, cause in {
            Opcode.IMMEDIATE_DATA: Cause.IMMEDIATE_TOO_SHORT,
            Opcode.IMMEDIATE_DATA_WITH_SE: Cause.IMMEDIATE_TOO_SHORT,
            Opcode.ATOMIC_REQUEST: Cause.ATOMIC_REQUEST_TOO_SHORT,
            Opcode.ATOMIC_RESPONSE: Cause.ATOMIC_RESPONSE_TOO_SHORT,
            Opcode.TERMINATE: Cause.TERMINATE_MALFORMED,
        }.items()
    },
    (Opcode.RDMA_READ_RESPONSE, Cause.WRITE_NOT_PERMITTED): Cause.TAGGED_STAG_INVALID,
}
_BY_FAILURE = {(check.error, check.source): cause for check, cause in _CAUSES.items()}


def _cause_of(failure: StreamError, opcode: Opcode | None) -> Cause:
    cause = _BY_FAILURE[failure.error, failure.source]
    code, _ = CODES[cause]
    # A Terminate is not answered with one: no code is needed.
    assert code in (None, failure.error), f"{cause.name} is told as {code}, not {failure.error}"
    return cause if opcode is None else _NARROWER.get((opcode, cause), cause)


@dataclass
class Qp:
    """What is known of a QP."""

    sink: DataSink
    index: int = 0
    running: bool = False
    ird: int = 0
    started: bool = False
    stopped: bool = False

    @property
    def entries(self) -> deque[Any]:
        """Receive entries that are posted, the oldest first."""
        return self.sink.sends.receives

    @property
    def reads(self) -> deque[OutstandingRead]:
        """RDMA Reads under way, the oldest first."""
        return self.sink.tagged.reads

    @property
    def atomics(self) -> deque[OutstandingAtomic]:
        """Atomics under way, the oldest first."""
        return self.sink.atomic_responses.outstanding

    @property
    def outstanding(self) -> list[OutstandingRead | OutstandingAtomic]:
        """Both, the oldest first."""
        return sorted([*self.reads, *self.atomics], key=lambda each: each.place)


class Model:
    """Turns segments into the events that the receiver must cause, in their order.

    Attributes
    ----------
    qps: `Qp` by number. events: what must happen. causes: those of the failures so far.
    """

    def __init__(self, extensions: Extensions | None = None) -> None:
        self._extensions = extensions or Extensions()
        self.events: list[tuple[Any, ...]] = []
        self.causes: set[Cause] = set()
        self._effects: list[effects.Effect] = []
        self._placements = 0
        self.qps = [Qp(self._sink(number, 0, 0, True)) for number in range(CONFIG.qps)]

    def _sink(self, number: int, pd: int, ird: int, rfc7306: bool) -> DataSink:
        table: Any = _StagTable(number, pd, self.events)
        accessor = Accessor(pd, number)
        extensions = self._extensions if rfc7306 else None
        sink = DataSink(
            table, accessor, ird=ird, extensions=extensions, record=self._effects.append
        )
        sink.sends = _SendQueue(table, accessor, self._effects.append)
        sink.sends.table = table
        return sink

    def connect(self, number: int, pd: int, ird: int, rfc7306: bool = True) -> None:
        """The QP is made anew; what was posted to its receive queue stays."""
        old = self.qps[number]
        self.qps[number] = Qp(self._sink(number, pd, ird, rfc7306), old.index, True, ird)
        for entry in old.entries:
            self.post(number, entry.elements)

    def post(self, number: int, elements: list[Element]) -> None:
        self.qps[number].entries.append(Entry(elements))

    def expect_read(self, number: int, stag: int, to: int, length: int) -> None:
        request = ReadRequest(stag, to, length, 0, 0)
        work = Work(Operation.RDMA_READ, None, request=request)
        self.qps[number].reads.append(OutstandingRead(request, work))

    def expect_atomic(self, number: int, sink: AtomicSink) -> AtomicRequest:
        """The request whose response is to come; `sink` is for its original value."""
        request = AtomicRequest(0, 0, 0, 0, 0, 0)
        work = Work(Operation.FETCH_ADD, sink, atomic=request)
        request = self.qps[number].sink.atomic_responses.identified(request)
        self.qps[number].atomics.append(OutstandingAtomic(request, work))
        return request

    def segment(self, segment: dict[str, Any], ulpdu: bytes) -> None:
        """What becomes of a segment; `segment` is how the MPA receiver hands over `ulpdu`."""
        qp = self.qps[segment["qp"]]
        kind = SegmentKind(segment["kind"])
        is_fpdu = kind is SegmentKind.FPDU
        if not qp.running or qp.stopped:
            if is_fpdu:
                self._place(segment, [])
            return
        cause, index, header = self._outcome(qp, segment, ulpdu)
        if cause is Cause.NONE:
            return
        qp.stopped = True
        self.causes.add(cause)
        if not ulpdu:
            header &= (1 << EVENT_BITS) - 1  # no octet of it is a header's
        error = {
            "qp": segment["qp"],
            "cause": int(cause),
            "index": index,
            "ulpdu_length": len(ulpdu) if is_fpdu else 0,
            "header": header if is_fpdu else 0,
        }
        self.events.append(("error", error))
        if is_fpdu:
            self._place(segment, [])

    def _outcome(self, qp: Qp, segment: dict[str, Any], ulpdu: bytes) -> tuple[Cause, int, int]:
        """The cause of a failure or NONE, the number of the entry at fault, the header to tell."""
        header = segment["header"] & (1 << TOLD_BITS) - 1
        kind = SegmentKind(segment["kind"])
        if kind is not SegmentKind.FPDU:
            return _KINDS[kind], 0, 0
        if not qp.started:
            qp.started = True
            self.events.append(("first", segment["qp"]))
        opcode = None
        try:
            opcode, *_ = check_header(ulpdu, qp.sink.extensions)
            self._good(qp, segment, ulpdu, opcode)
        except LocalProtection:
            return Cause.LOCAL_RECEIVE_PROTECTION, qp.index, header
        except SinkProtection as failure:
            return Cause.LOCAL_SEND_PROTECTION, failure.sink.index, header
        except StreamError as failure:
            return _cause_of(failure, opcode), 0, header
        if opcode is Opcode.TERMINATE:
            return (
                Cause.TERMINATE_RECEIVED,
                terminated_msn(segment["header"]),
                segment["header"] >> TERMINATE_HEADER & (1 << EVENT_BITS) - 1,
            )
        return Cause.NONE, 0, 0

    def _good(self, qp: Qp, segment: dict[str, Any], ulpdu: bytes, opcode: Opcode) -> None:
        self._effects.clear()
        sink = qp.sink
        entry = qp.entries[0] if qp.entries else None
        read = qp.reads[0] if qp.reads else None
        atomic = qp.atomics[0] if qp.atomics else None
        sink.segment(ulpdu)
        if sink.terminate is not None:
            return
        pieces: list[tuple[int, int]] = []
        request_accepted = False
        for effect in self._effects:
            match effect:
                case effects.Invalidation(stag):
                    self.events.append(("invalidate", stag))
                case effects.ReadAccepted(request):
                    self.events.append(("push", segment["qp"], _item(request)))
                    request_accepted = True
                case effects.AtomicAccepted(request):
                    self.events.append(("push", segment["qp"], _atomic_item(request)))
                    request_accepted = True
                case effects.TaggedPlacement(_, to, octets):
                    pieces = [(to, len(octets))]
                case effects.UntaggedPlacement(_, offset, octets):
                    assert entry is not None
                    pieces = [(to, n) for _, to, n in entry.pieces(offset, len(octets))]
        if atomic is not None and atomic.work.completion is not None:
            self._complete_atomic(qp, segment, atomic.work)
            return
        self._place(segment, pieces, LENGTH_OCTETS + ddp.header_octets(ulpdu[0]))
        if request_accepted:
            self._deliver(segment, DeliveryKind.REQUEST, Completion(Operation.RDMA_READ, None), 0)
        if opcode in rdmap.SEND_OPCODES and not sink.completions:
            self.events.append(("keep_entry", segment["qp"]))
        for completion in sink.completions:
            self._deliver(segment, DeliveryKind.RECEIVE, completion, qp.index)
            self.events.append(("pop_entry", segment["qp"]))
            qp.index = (qp.index + 1) % 2**16
        sink.completions.clear()
        if read is not None and read.work.completion is not None:
            self._deliver(segment, DeliveryKind.READ, read.work.completion, 0)
            self.events.append(("pop_read", segment["qp"]))

    def _complete_atomic(self, qp: Qp, segment: dict[str, Any], work: Work) -> None:
        """The original value, the last octets of its FPDU before the CRC, goes to its sink."""
        sink: Any = work.work_id
        table = qp.sink.sends.table  # type: ignore[attr-defined]
        status = table.ask(sink.stag, Rights.LOCAL_WRITE, sink.tagged_offset, ATOMIC_OCTETS)
        if status is not StagStatus.OK:
            raise SinkProtection(sink)
        first = LENGTH_OCTETS + segment["ulpdu_length"] - ATOMIC_OCTETS
        self._place(segment, [(sink.tagged_offset, ATOMIC_OCTETS)], first, is_number=True)
        assert work.completion is not None
        completion = replace(work.completion, length=ATOMIC_OCTETS)
        self._deliver(segment, DeliveryKind.READ, completion, 0)
        self.events.append(("pop_read", segment["qp"]))

    def _place(
        self,
        segment: dict[str, Any],
        pieces: list[tuple[int, int]],
        first: int = 0,
        is_number: bool = False,
    ) -> None:
        """Pieces are (TO, octets); `first` is the place of the payload in the FPDU.

        A number comes most significant octet first, and is turned round for the host.
        """
        position = segment["store_address"] * 8 + first
        if not pieces:
            self.events.append(("release", segment["stored"]["number"]))
        for number, (to, octets) in enumerate(pieces):
            position %= STORE_WORDS * 8
            self._placements += 1
            placement = {
                "qp": segment["qp"],
                "address": to ^ ADDRESS_MASK,
                "octets": octets,
                "store_address": position // 8,
                "store_octet": position % 8,
                "reversed": int(is_number),
                "release": int(number == len(pieces) - 1),
                "stored": segment["stored"],
            }
            self.events.append(("place", placement))
            position += octets

    def _deliver(
        self, segment: dict[str, Any], kind: DeliveryKind, completion: Completion, index: int
    ) -> None:
        stag, immediate = completion.invalidated_stag, completion.immediate
        flags = CompletionFlags.SOLICITED if completion.solicited else CompletionFlags(0)
        flags |= CompletionFlags(0) if stag is None else CompletionFlags.INVALIDATED
        length, detail = completion.length, stag or 0
        if immediate is not None:
            flags |= CompletionFlags.IMMEDIATE
            length, detail = len(immediate), int.from_bytes(immediate, "little")
        delivery = {
            "kind": kind.value,
            "qp": segment["qp"],
            "index": index,
            "length": length,
            "flags": int(flags),
            "detail": detail,
            "after": self._placements % 2**16,
        }
        self.events.append(("deliver", delivery))


_KINDS = {
    SegmentKind.CRC_ERROR: Cause.CRC_ERROR,
    SegmentKind.CLOSED: Cause.LLP_CLOSED,
    SegmentKind.CLOSED_INSIDE: Cause.LLP_CLOSED_INSIDE_FPDU,
    SegmentKind.MARKER_ERROR: Cause.MARKER_MISMATCH,
}


def _item(request: ReadRequest) -> dict[str, Any]:
    return {
        "atomic": 0,
        "of": {
            "source_stag": request.source_stag,
            "source_tagged_offset": request.source_tagged_offset,
            "sink_stag": request.sink_stag,
            "sink_tagged_offset": request.sink_tagged_offset,
            "length": request.size,
        },
    }


def _atomic_item(request: AtomicRequest) -> dict[str, Any]:
    return {
        "atomic": 1,
        "of": {
            "stag": request.stag,
            "tagged_offset": request.tagged_offset,
            "identifier": request.identifier,
            "operands": {
                "operation": request.operation,
                "data": request.data,
                "mask": request.mask,
                "compare": request.compare,
                "compare_mask": request.compare_mask,
            },
        },
    }


assert rdmap.READ_REQUEST_OCTETS * 8 + TERMINATE_HEADER == TOLD_BITS
