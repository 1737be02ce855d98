"""The neighbours of the RDMAP receiver; `receiver_model` says what they must see."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.layouts import (
    ULPDU_HEADER_OCTETS,
    DeliveryKind,
    Layouts,
    QpCommandKind,
    SegmentKind,
)
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import RECEIVE_ENTRY_OCTETS, CompletionFlags
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.atomics import AtomicRequest
from stagecoach.sim.model.extensions import Extensions
from tests.rdmap.receive.model import (
    ADDRESS_MASK,
    CONFIG,
    EVENT_BITS,
    STORE_NUMBERS,
    STORE_WORDS,
    AtomicSink,
    Element,
    Model,
    stag_status,
)
from tests.rdmap.requests import unpack_request
from tests.support.runner import parameter

LAYOUTS = Layouts(CONFIG)
PREFETCH = 4

AHEAD = ("push", "pop_entry", "keep_entry", "pop_read")
"""Events of a queue of a QP; each kind is in order, and they may come ahead of all others."""


def is_shared(number: int) -> bool:
    """Whether the oldest entry of a QP may be taken by others: before it is kept, it is read."""
    return number % 2 == 1


def entry_words(elements: list[Element]) -> list[int]:
    """A receive entry as it stands in host memory."""
    octets = b"".join(
        e.tagged_offset.to_bytes(8, "little")
        + e.length.to_bytes(4, "little")
        + e.stag.to_bytes(4, "little")
        for e in elements
    )
    octets = octets.ljust(RECEIVE_ENTRY_OCTETS, b"\0")
    return [int.from_bytes(octets[n : n + 8], "little") for n in range(0, len(octets), 8)]


@dataclass
class _Ring:
    """The prefetched receive ring of a QP: `fetched` entries of those posted are on chip."""

    entries: deque[list[int]] = field(default_factory=deque)
    fetched: int = 0
    index: int = 0


def _compare(got: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    for number, (one, wanted) in enumerate(zip(got, expected, strict=False)):
        assert one == wanted, f"event {number}: {one}, expected {wanted}"
    assert len(got) == len(expected), (got, expected)


def as_told(kind: str, item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """An event without what means nothing in it."""
    item = dict(item)
    if kind == "stag" and item["exclusive"]:
        # It is about the STag itself.
        item |= {"tagged_offset": 0, "octets": 0}
    elif kind == "error":
        if not item["ulpdu_length"] or item["cause"] == Cause.TERMINATE_RECEIVED:
            item["header"] &= (1 << EVENT_BITS) - 1
    elif kind == "deliver":
        if not item["flags"] & (CompletionFlags.INVALIDATED | CompletionFlags.IMMEDIATE):
            item["detail"] = 0
        if item["kind"] == DeliveryKind.REQUEST.value:
            item["length"] = 0
    return kind, item


class _Side:
    """Neighbours of the receiver; `log` has what it did in the order in which it did it."""

    def __init__(self, dut: Any, rng: Any, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.log: list[tuple[Any, ...]] = []
        self.ended = 0
        self.undelivered = [0] * CONFIG.qps
        self._quick = pattern == "always"


class Before(_Side):
    """Those who bring commands and segments, and the queues of the QPs.

    The segment that stops a QP may push or pop, too: nobody looks at that.
    """

    def __init__(self, dut: Any, rng: Any, pattern: str, strict: bool = False) -> None:
        super().__init__(dut, rng, pattern)
        self.model = Model(Extensions(strict_rfc7306=strict))
        self.taken = self.sent = 0
        self.fetch = True
        self.rings = [_Ring() for _ in range(CONFIG.qps)]
        self.inbound = [0] * CONFIG.qps
        self.reads: list[deque[dict[str, int]]] = [deque() for _ in range(CONFIG.qps)]
        self._store = 0
        self._words: set[int] = set()  # of a receive entry, which the segment at work has read
        dut.receive_entries__failed.value = 0
        dut.running.value = 0
        dut.strict.value = int(strict)
        self._commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        self._segments = StreamSource(dut, "segment", LAYOUTS.segment, rng=rng, pattern=pattern)
        cocotb.start_soon(self._watch_queues())
        cocotb.start_soon(self._queues())

    # Commands and state that changes only while no segment is at work

    async def connect(
        self, number: int, ird: int = CONFIG.read_queue_depth, rfc7306: bool = True
    ) -> None:
        """Make the QP anew, with a random PD; `rfc7306`: it takes the messages of that."""
        pd = self.rng.getrandbits(16)
        self.model.connect(number, pd, ird, rfc7306)
        self.inbound[number] = self.undelivered[number] = 0
        self.reads[number].clear()
        entries = self.model.qps[number].entries
        self.rings[number] = _Ring(
            deque(entry_words(entry.elements) for entry in entries),
            index=self.model.qps[number].index,
        )
        await self._command(number, QpCommandKind.CREATE, pd=pd)
        await self._command(number, QpCommandKind.CONNECT, ird=ird, rfc7306=int(rfc7306))
        self.set_running(number, True)
        await ClockCycles(self.dut.clk, 4)

    async def _command(self, number: int, kind: QpCommandKind, **fields: int) -> None:
        noise = {
            "pd": self.rng.getrandbits(16),
            "ird": self.rng.randrange(4),
            "rfc7306": self.rng.getrandbits(1),
        }
        await self._commands.send({"kind": kind.value, "qp": number} | noise | fields)

    def set_running(self, number: int, running: bool) -> None:
        self.model.qps[number].running = running
        bits = (qp.running << n for n, qp in enumerate(self.model.qps))
        self.dut.running.value = sum(bits)

    def post(self, number: int, elements: list[Element]) -> None:
        self.model.post(number, elements)
        self.rings[number].entries.append(entry_words(elements))

    def take_back(self, number: int) -> None:
        """No receive entry of the QP is posted any more."""
        self.model.qps[number].entries.clear()
        self.rings[number].entries.clear()
        self.rings[number].fetched = 0

    def expect_read(self, number: int, stag: int, to: int, length: int) -> None:
        self.model.expect_read(number, stag, to, length)
        self.reads[number].append(
            {"atomic": 0, "sink_stag": stag, "sink_tagged_offset": to, "length": length}
        )

    def expect_atomic(self, number: int, sink: AtomicSink) -> AtomicRequest:
        self.reads[number].append(
            {
                "atomic": 1,
                "sink_stag": sink.stag,
                "sink_tagged_offset": sink.tagged_offset,
                "length": sink.index,
            }
        )
        return self.model.expect_atomic(number, sink)

    def answer_reads(self, number: int) -> None:
        """The transmitter has answered every Read Request of the QP."""
        self.model.qps[number].sink.read_requests.waiting.clear()
        self.inbound[number] = 0

    # Segments

    def send(self, number: int, ulpdu: bytes, kind: SegmentKind = SegmentKind.FPDU) -> None:
        """Queue a segment, and let the model process it."""
        octets = ulpdu[:ULPDU_HEADER_OCTETS]
        octets += self.rng.randbytes(ULPDU_HEADER_OCTETS - len(octets))
        words = (2 + len(ulpdu) + 3) // 4 * 4 + 4 + 7 >> 3
        segment = {
            "qp": number,
            "kind": kind.value,
            "ulpdu_length": len(ulpdu),
            "header": int.from_bytes(octets, "little"),
            "store_address": self._store,
            "stored": {
                "end": (self._store + words) % STORE_WORDS,
                "number": self.sent % STORE_NUMBERS,
            },
        }
        self._store = segment["stored"]["end"]
        self.model.segment(segment, ulpdu)
        self._segments.put(segment)
        self.sent += 1

    async def settle(self) -> list[tuple[Any, ...]]:
        """Wait until every segment was processed; compare what happened with the model, tell it."""
        while self.ended < self.sent:
            await RisingEdge(self.dut.clk)
        await ClockCycles(self.dut.clk, 2)
        assert self.taken == self.ended == self.sent
        got, expected = self.log, self.model.events
        _compare(*([each for each in all if each[0] not in AHEAD] for all in (got, expected)))
        for kind in AHEAD:
            for number, qp in enumerate(self.model.qps):
                mine, wanted = (
                    [each for each in all if each[:2] == (kind, number)] for all in (got, expected)
                )
                if qp.stopped or not qp.running:
                    mine = mine[: len(wanted)]
                _compare(mine, wanted)
        self.log = []
        self.model.events.clear()
        return got

    # Stand-ins

    async def _watch_queues(self) -> None:
        dut = self.dut
        popped: int | None = None  # the QP of a request that is popped
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            self.taken += int(dut.begin.value)
            if dut.inbound_requests__push.value:
                number = int(dut.inbound_requests__push_qp.value)
                self.inbound[number] += 1
                self.undelivered[number] += 1
                item = unpack_request(LAYOUTS, int(dut.inbound_requests__item.value))
                self.log.append(("push", number, item))
            if dut.receive_entries__pop.value:
                self.log.append(("pop_entry", int(dut.receive_entries__select.value)))
            if dut.receive_entries__keep.value:
                number = int(dut.receive_entries__select.value)
                self.log.append(("keep_entry", number))
                assert not is_shared(number) or len(self._words) == ENTRY_WORDS, "not read"
            if dut.begin.value:  # of the next segment, in the cycle of a keep at the earliest
                self._words.clear()
            popped_before, popped = popped, None
            if dut.outstanding_requests__pop.value:
                popped = int(dut.outstanding_requests__pop_qp.value)
                self.log.append(("pop_read", popped))
            assert dut.read_space__valid.value == (popped_before is not None)
            if dut.read_space__valid.value:
                assert dut.read_space__qp.value == popped_before

    async def _queues(self) -> None:
        """Answers are seen two cycles after the question, pops and pushes after three.

        What stands in a FIFO is seen a cycle later than that. What is asked about entries of a QP
        that was not the one that was arriving has any answer.
        """
        dut, rng = self.dut, self.rng
        before: dict[str, int] = {}
        coming = coming_next = 0
        heads = deque([0, 0])
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            for name, value in before.items():
                getattr(dut, name).value = value
            asked = int(dut.receive_entries__select.value)
            ring = self.rings[asked]
            address = int(dut.receive_entries__word_address.value)
            if ring.fetched and coming == asked:
                self._words.add(address)
            reads = self.reads[int(dut.outstanding_requests__select.value)]
            dut.outstanding_requests__head.value = heads.popleft()
            heads.append(
                pack(LAYOUTS.outstanding_request, reads[0]) if reads else rng.getrandbits(129)
            )
            before = {
                "receive_entries__level": ring.fetched,
                "receive_entries__posted": len(ring.entries),
                "receive_entries__index": ring.index,
                "receive_entries__shared": int(is_shared(asked)),
                "receive_entries__word": (
                    ring.entries[0][address] if ring.fetched else rng.getrandbits(64)
                ),
                "inbound_requests__level": self.inbound[int(dut.inbound_requests__select.value)],
                "outstanding_requests__level": len(reads),
            }
            if coming != asked:
                for name in ("level", "posted", "index", "word"):
                    answer = f"receive_entries__{name}"
                    before[answer] = rng.getrandbits(len(getattr(dut, answer)))
            coming = coming_next
            if not dut.receive_entries__stays.value:
                coming_next = int(dut.receive_entries__arriving.value)
            if dut.receive_entries__pop.value:
                ring = self.rings[int(dut.receive_entries__select.value)]
                assert ring.fetched, "popped an entry that is not on chip"
                ring.entries.popleft()
                ring.fetched -= 1
                ring.index = (ring.index + 1) % 2**16
            if dut.outstanding_requests__pop.value:
                self.reads[int(dut.outstanding_requests__pop_qp.value)].popleft()
            for ring in self.rings:
                wanted = min(len(ring.entries), PREFETCH)
                if self.fetch and ring.fetched < wanted and (self._quick or rng.random() < 0.05):
                    ring.fetched += 1


class After(_Side):
    """The STag table, and those who hear of what was looked up there."""

    def __init__(self, dut: Any, rng: Any, pattern: str) -> None:
        super().__init__(dut, rng, pattern)
        for name, layout in (
            ("placement", LAYOUTS.placement),
            ("delivery", LAYOUTS.delivery),
            ("error", LAYOUTS.qp_error),
            ("invalidate", LAYOUTS.stag),
        ):
            StreamSink(dut, name, layout, rng=rng, pattern=pattern)
            StreamMonitor(dut, name, layout)
        StreamMonitor(dut, "stag__request", LAYOUTS.stag_request)
        dut.stag__request__ready.value = 0
        dut.stag__response_valid.value = 0
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._stag_table())

    async def _watch(self) -> None:
        dut = self.dut
        held_none = True
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            held_none |= not dut.placing.value
            self.ended += int(dut.end.value)
            if dut.first_segment__valid.value:
                self.log.append(("first", int(dut.first_segment__qp.value)))
            if dut.stag__request__valid.value and dut.stag__request__ready.value:
                request = unpack(LAYOUTS.stag_request, int(dut.stag__request__payload.value))
                self.log.append(as_told("stag", request))
            if dut.invalidate__valid.value and dut.invalidate__ready.value:
                item = unpack(LAYOUTS.stag, int(dut.invalidate__payload.value))
                self.log.append(("invalidate", item["stag"]))
            if dut.error__valid.value and dut.error__ready.value:
                error = unpack(LAYOUTS.qp_error, int(dut.error__payload.value))
                self.log.append(as_told("error", error))
            if dut.placement__valid.value and dut.placement__ready.value:
                item = unpack(LAYOUTS.placement, int(dut.placement__payload.value))
                if item["octets"]:
                    # Between two segments no host address is held.
                    assert dut.placing.value and held_none
                    self.log.append(("place", item))
                else:
                    assert item["release"]
                    self.log.append(("release", item["stored"]["number"]))
                if item["release"]:
                    held_none = False
            if dut.delivery__valid.value and dut.delivery__ready.value:
                item = unpack(LAYOUTS.delivery, int(dut.delivery__payload.value))
                if item["kind"] == DeliveryKind.REQUEST.value:
                    self.undelivered[item["qp"]] -= 1
                    assert self.undelivered[item["qp"]] >= 0, "delivered before its push"
                self.log.append(as_told("deliver", item))

    async def _stag_table(self) -> None:
        dut, rng = self.dut, self.rng
        while True:
            dut.stag__request__ready.value = 1
            await RisingEdge(dut.clk)
            if not (dut.stag__request__valid.value and dut.stag__request__ready.value):
                continue
            dut.stag__request__ready.value = 0
            request = unpack(LAYOUTS.stag_request, int(dut.stag__request__payload.value))
            await ClockCycles(dut.clk, 4 if self._quick else rng.randrange(1, 12))
            dut.stag__response_valid.value = 1
            dut.stag__response.value = pack(
                LAYOUTS.stag_response,
                {
                    "status": stag_status(request["stag"]).value,
                    "address": request["tagged_offset"] ^ ADDRESS_MASK,
                },
            )
            await RisingEdge(dut.clk)
            dut.stag__response_valid.value = 0
            dut.stag__response.value = rng.getrandbits(len(dut.stag__response))


class Bench(Before, After):
    """The receiver between stand-ins for all of its neighbours."""


async def start(dut: Any, strict: bool = False) -> Bench:
    """A bench with the handshakes of parameter PATTERN, after reset."""
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern, strict)
    await start_clock_and_reset(dut)
    return bench
