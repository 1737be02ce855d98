"""Stand-ins for the neighbours of the transmitter, and a scoreboard that knows every FPDU."""

from collections import deque
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind, QpCommandKind, StagStatus
from stagecoach.gateware.rdmap.atomic.operations import (
    AtomicStatus,
    request_layout,
    response_layout,
)
from stagecoach.hw.interface.queue_entries import (
    ANSWERED_OPERATIONS,
    IMMEDIATE_OPERATIONS,
    SEND_ENTRY,
    SEND_ENTRY_OCTETS,
    SEND_UNIT_OCTETS,
    Rights,
    SendFlags,
    SendOpcode,
    offset_of,
    send_units,
)
from stagecoach.sim.cosim.streams import StreamMonitor, StreamSink, StreamSource, pack, unpack
from stagecoach.sim.model import ddp, mpa, rdmap
from stagecoach.sim.model.atomics import WORD, AtomicRequest, AtomicResponse
from tests.rdmap.requests import pack_request, request_bits
from tests.rdmap.transmit.transcript import NO_RECORDER, Recorder

UNIT_WORDS = SEND_UNIT_OCTETS // 8


@dataclass(frozen=True)
class Element:
    tagged_offset: int
    length: int
    stag: int


@dataclass
class Entry:
    """A send entry; `count` and `length` can be wrong on purpose."""

    opcode: int
    elements: list[Element]
    remote_stag: int = 0
    remote_tagged_offset: int = 0
    flags: int = 0
    length: int | None = None
    count: int | None = None
    index: int = 0
    immediate_data: bytes = bytes(8)
    operation: int = 0xA5  # AOpCode
    operands: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        if self.length is None:
            self.length = sum(element.length for element in self.elements)
            if self.opcode in IMMEDIATE_OPERATIONS:
                self.length = 8
        if self.count is None:
            self.count = len(self.elements)

    @property
    def units(self) -> int:
        """Of the send ring."""
        assert self.count is not None
        return send_units(self.opcode, self.count)

    def words(self) -> list[int]:
        octets = bytearray(SEND_ENTRY_OCTETS)

        def store(name: str, value: int, size: int, extra: int = 0) -> None:
            start = offset_of(SEND_ENTRY, name) + extra
            octets[start : start + size] = value.to_bytes(size, "little")

        store("opcode", self.opcode, 1)
        store("flags", self.flags, 1)
        store("element_count", self.count, 1)
        store("atomic_operation", self.operation, 1)
        store("length", self.length, 4)
        store("remote_stag", self.remote_stag, 4)
        store("remote_tagged_offset", self.remote_tagged_offset, 8)
        store("immediate_data", int.from_bytes(self.immediate_data, "little"), 8)
        for number, element in enumerate(self.elements):
            store("elements", element.tagged_offset, 8, 16 * number)
            store("elements", element.length, 4, 16 * number + 8)
            store("elements", element.stag, 4, 16 * number + 12)
        for number, operand in enumerate(self.operands):
            store("add_or_swap_data", operand, 8, 8 * number)
        return [int.from_bytes(octets[i : i + 8], "little") for i in range(0, len(octets), 8)]


@dataclass(frozen=True)
class Region:
    """What the STag table knows of one STag."""

    pd: int
    rights: int
    base: int
    length: int
    address: int

    def check(self, request: dict[str, int]) -> tuple[StagStatus, int]:
        first = request["tagged_offset"]
        end = first + request["octets"]
        if request["pd"] != self.pd:
            return StagStatus.NOT_ASSOCIATED, 0
        if request["rights"] & ~self.rights:
            return StagStatus.NOT_PERMITTED, 0
        if end > 2**64:
            return StagStatus.WRAP, 0
        if first < self.base or end > self.base + self.length:
            return StagStatus.BOUNDS, 0
        return StagStatus.OK, (self.address + first - self.base) % 2**64


@dataclass
class Qp:
    """One QP as the test knows it."""

    pd: int = 0
    ord: int = 0
    crc: int = 0
    markers: int = 0
    emss: int = 1460
    mulpdus: list[int] = field(default_factory=list)  # that may be in force
    may_send: bool = True
    running: bool = False
    failed: bool = False
    entries: deque[Entry] = field(default_factory=deque)
    inbound: deque[dict[str, Any]] = field(default_factory=deque)
    # Popped, without a job so far: an item leaves its queue before its last job is given away.
    popped_entries: deque[Entry] = field(default_factory=deque)
    popped_inbound: deque[dict[str, Any]] = field(default_factory=deque)
    outstanding: deque[dict[str, int]] = field(default_factory=deque)
    next_index: int = 0
    in_flight: int = 0
    position: int = 0
    window: int = 0
    send_msn: int = 1
    read_msn: int = 1
    atomic_identifier: int = 1
    atomic_response_msn: int = 1
    atomic: tuple[int, AtomicStatus] | None = None  # what the unit found; its answer is due
    message: Any = None
    request: dict[str, Any] | None = None  # that the message answers
    done: int = 0
    segments: list[tuple[bytes, int]] = field(default_factory=list)
    emss_changed: bool = False
    pushed: deque[dict[str, int]] = field(default_factory=deque)  # whose job is to come
    started: list[str] = field(default_factory=list)  # kinds of the messages, in order
    missing: int = 0  # units at the end of the entries that are not on chip
    cut: bool = False  # and were never posted

    def send_units(self) -> tuple[int, int]:
        """Units of the entries on chip, and posted."""
        units = sum(entry.units for entry in self.entries)
        there = units - min(units, self.missing)
        return min(there, 4), there if self.cut else units

    def send_word(self, address: int) -> int:
        """A word of the oldest units."""
        words = [
            word
            for entry in islice(self.entries, 2)
            for word in entry.words()[: entry.units * UNIT_WORDS]
        ]
        return words[address] if address < len(words) else 0

    def oldest_entry(self) -> Entry:
        """The send entry of the next message that has its first job."""
        return self.popped_entries.popleft() if self.popped_entries else self.entries[0]

    def oldest_inbound(self) -> dict[str, Any]:
        """The same of an inbound request."""
        return self.popped_inbound.popleft() if self.popped_inbound else self.inbound[0]


class Bench:
    """Everything around a transmitter `dut`; create it before the reset, then `start` it."""

    def __init__(
        self,
        dut: Any,
        config: RnicConfig,
        rng: Any,
        pattern: str,
        stag_latency: int | None = None,
    ) -> None:
        self.dut, self.config, self.rng = dut, config, rng
        self.stag_latency = stag_latency
        layouts = Layouts(config)
        self.layouts = layouts
        self.qps = [Qp() for _ in range(config.qps)]
        self.regions: dict[int, Region] = {}
        self.commands = StreamSource(dut, "qp_command", layouts.qp_command, rng=rng)
        self.events = StreamSource(dut, "llp_event", layouts.llp_event, rng=rng, pattern=pattern)
        self.work = StreamSource(dut, "work", layouts.qp_number)
        self.job_sink = StreamSink(dut, "job", layouts.ulpdu_job, rng=rng, pattern=pattern)
        self.piece_sink = StreamSink(dut, "piece", layouts.gather_piece, rng=rng, pattern=pattern)
        self.inline_sink = StreamSink(dut, "inline", 64, rng=rng, pattern=pattern)
        self.terminations = StreamSource(dut, "termination", layouts.termination, rng=rng)
        self.error_sink = StreamSink(dut, "error", layouts.qp_error, rng=rng, pattern=pattern)
        self.atomic_sink = StreamSink(
            dut, "atomic_request", request_layout(config), rng=rng, pattern=pattern
        )
        self.atomic_source = StreamSource(dut, "atomic_response", response_layout(config))
        self.atomic_status = AtomicStatus.DONE  # how the unit ends what it gets
        self.atomics = 0  # that it got
        self.hold_atomics = False  # it answers none
        streams = ("job", "piece", "inline", "error", "stag__request", "stag_change")
        for name in (*streams, "atomic_request"):
            StreamMonitor(dut, name, keep=False)
        self.queued: deque[int] = deque()
        self.kick_cycles = 0  # until a QP that the transmitter kicks is queued
        self._kicks: deque[tuple[int, int]] = deque()
        self.expected_pieces: deque[dict[str, int]] = deque()
        self.expected_words: deque[bytes] = deque()
        self.record: Recorder = NO_RECORDER
        self.terminates: list[tuple[int, bytes]] = []  # QP and ULPDU, empty if only the close
        self.changes: deque[dict[str, Any]] = deque()  # made, without their job so far
        self.refuse = False  # the STag table changes nothing
        self.jobs = 0
        self.visits = 0
        self.visits_begun: deque[int] = deque()  # of those that have not ended, the cycles
        self.visit_cycles: list[int] = []
        self.job_cycles: list[int] = []  # in which jobs were given away
        self.sends_done = 0
        self.busy_atomics: set[int] = set()
        # Jobs that the LLP has not taken: QP and whether they are of a Read Response.
        self.leaving: deque[tuple[int, bool]] = deque()
        self.hold_jobs = False  # it takes none
        self._retire: list[tuple[int, int]] = []
        self.auto_retire = True
        self.cycle = 0
        self._effects: list[tuple[int, Any]] = []
        self.stag_request = None
        dut.running.value = 0
        dut.may_send.value = 0
        dut.retired__valid.value = 0
        dut.stag__response_valid.value = 0
        dut.stag__request__ready.value = 0
        dut.stag_change__ready.value = 0
        dut.strict.value = 0
        dut.job_finished__valid.value = 0

    def start(self) -> None:
        cocotb.start_soon(self._neighbours())
        cocotb.start_soon(self._scoreboard())
        cocotb.start_soon(self._piece_scoreboard())
        cocotb.start_soon(self._inline_scoreboard())
        cocotb.start_soon(self._change_stags())
        cocotb.start_soon(self._atomic_unit())

    # What a test does

    async def command(self, kind: QpCommandKind, qp: int, **fields: int) -> None:
        await self.commands.send({"kind": kind.value, "qp": qp, **fields})

    async def connect(
        self, number: int, *, pd: int, ord: int, emss: int, crc: int = 1, markers: int = 0
    ) -> Qp:
        """CREATE and CONNECT the QP; it forgets everything."""
        await self.command(QpCommandKind.CREATE, number, pd=pd)
        self.qps[number] = qp = Qp(pd=pd, ord=ord, emss=emss, crc=crc, markers=markers)
        qp.mulpdus = [mpa.mulpdu(emss, bool(markers))]
        await self.command(
            QpCommandKind.CONNECT,
            number,
            ord=ord,
            emss=emss,
            crc=crc,
            transmit_markers=markers,
        )
        qp.running = True
        self.drive_states()
        self.record("connect", qp=number, ord=ord, emss=emss, crc=crc, markers=markers)
        return qp

    def drive_states(self) -> None:
        self.dut.running.value = sum(qp.running << i for i, qp in enumerate(self.qps))
        self.dut.may_send.value = sum(qp.may_send << i for i, qp in enumerate(self.qps))

    def grant(self, number: int, window: int) -> None:
        self.qps[number].window = window
        self._event(number, LlpEventKind.TX_WINDOW, window % 2**32)

    def set_emss(self, number: int, emss: int) -> None:
        qp = self.qps[number]
        qp.emss_changed = True
        self.record("emss", qp=number, emss=emss)
        qp.mulpdus.append(mpa.mulpdu(emss, bool(qp.markers)))
        self._event(number, LlpEventKind.EMSS, emss)

    def _event(self, number: int, kind: LlpEventKind, value: int) -> None:
        self.events.put({"connection": number, "kind": kind.value, "value": value})

    def post(self, number: int, entry: Entry) -> None:
        qp = self.qps[number]
        entry.index = qp.next_index
        qp.next_index = (qp.next_index + entry.units) % 2**16
        qp.entries.append(entry)
        self.record("post", qp=number, memory=self._memory(entry), **asdict(entry))
        self.kick(number)

    def push_inbound(self, number: int, **fields: int) -> None:
        assert len(self.qps[number].inbound) < self.config.read_queue_depth
        self.qps[number].inbound.append({"atomic": 0, "of": fields})
        region = self.regions[fields["source_stag"]]
        address = region.address + fields["source_tagged_offset"] - region.base
        memory = [(address % 2**64, fields["length"])]
        self.record("inbound", qp=number, atomic=0, memory=memory, **fields)
        self.kick(number)

    def push_atomic(self, number: int, **fields: Any) -> None:
        """An inbound atomic; see `layouts.inbound_atomic`."""
        assert len(self.qps[number].inbound) < self.config.read_queue_depth
        self.qps[number].inbound.append({"atomic": 1, "of": fields})
        self.record("inbound", qp=number, atomic=1, **fields)
        self.kick(number)

    def pop_outstanding(self, number: int) -> None:
        self.qps[number].outstanding.popleft()
        self.record("answered", qp=number)
        self.kick(number)

    def _memory(self, entry: Entry) -> list[tuple[int, int]]:
        """Host address and octets of each element that is read."""
        found = []
        for element in entry.elements:
            region = self.regions.get(element.stag)
            if region is not None:
                address = (region.address + element.tagged_offset - region.base) % 2**64
                found.append((address, element.length))
        return found

    def kick(self, number: int) -> None:
        if number not in self.queued:
            self.queued.append(number)

    def idle(self) -> bool:
        return (
            not self.queued
            and not self._kicks
            and not self.work.pending
            and not self.visits_begun
            and not self.events.pending
            and not len(self.piece_sink)
            and not len(self.job_sink)
            and not self.expected_pieces
            and not self.expected_words
        )

    async def settle(self, cycles: int = 200) -> None:
        """Wait until nothing happened for some cycles; then all that was begun has its job.

        Only what a QP failed with has none, and what was at work when it stopped.
        """
        quiet = 0
        while quiet < cycles:
            await RisingEdge(self.dut.clk)
            quiet = quiet + 1 if self.idle() and not self._retire else 0
        for number, qp in enumerate(self.qps):
            for name in ("pushed", "popped_entries", "popped_inbound"):
                assert not qp.running or len(getattr(qp, name)) <= qp.failed, (number, name)

    # The neighbours, one loop for all

    async def _neighbours(self) -> None:
        dut, rng = self.dut, self.rng
        edge = RisingEdge(dut.clk)
        send = inbound = outstanding = coming = 0
        send_was_coming = False
        address = 0
        stag_wait = -1
        response = (0, 0)
        while True:
            await edge
            self.cycle += 1
            # Inputs as they were in the cycle that ends here.
            if dut.kick__valid.value:
                self._kicks.append((self.cycle + self.kick_cycles, int(dut.kick__qp.value)))
            while self._kicks and self._kicks[0][0] <= self.cycle:
                self.kick(self._kicks.popleft()[1])
            if dut.answered__valid.value:
                self.kick(int(dut.answered__qp.value))
            if dut.responses_left__valid.value:
                self.kick(int(dut.responses_left__qp.value))
            self._let_jobs_leave()
            self._watch_atomics()
            if dut.job_begin.value:
                assert self.visits_begun, "a job outside of a visit"
                self.job_cycles.append(self.cycle)
            if dut.end.value:
                assert self.visits_begun, "a visit ends twice"
                self.visit_cycles.append(self.cycle - self.visits_begun.popleft() + 1)
            if dut.error__valid.value:
                error = unpack(self.layouts.qp_error, int(dut.error__payload.value))
                self.qps[error["qp"]].failed = True
            if dut.begin.value:
                self.visits_begun.append(self.cycle)
                assert len(self.visits_begun) <= 2, "three visits overlap"
                self.visits += 1
            if dut.send_entries__pop.value:
                number = int(dut.send_entries__select.value)
                self._later(self._pop_entry, number, int(dut.send_entries__pop_both.value))
            if dut.inbound_requests__pop.value:
                self._later(self._pop_inbound, int(dut.inbound_requests__pop_qp.value), cycles=2)
            if dut.outstanding_requests__push.value:
                item = int(dut.outstanding_requests__item.value)
                qp = int(dut.outstanding_requests__push_qp.value)
                self._later(self._push, qp, item, cycles=2)
            due = [effect for cycle, effect in self._effects if cycle <= self.cycle]
            self._effects = [each for each in self._effects if each[0] > self.cycle]
            for effect in due:
                effect()

            # The queues: two cycles from select to answer.
            qp = self.qps[send]
            level, posted = qp.send_units()
            dut.send_entries__level.value = level
            dut.send_entries__posted.value = posted
            if qp.entries:
                dut.send_entries__index.value = qp.entries[0].index
                dut.send_entries__word.value = (
                    qp.send_word(address) if address < level * UNIT_WORDS else rng.getrandbits(64)
                )
            else:
                dut.send_entries__index.value = rng.getrandbits(16)
                dut.send_entries__word.value = rng.getrandbits(64)
            if not send_was_coming:  # any answer
                for name in ("level", "posted", "index", "word"):
                    answer = getattr(dut, f"send_entries__{name}")
                    answer.value = rng.getrandbits(len(answer))
            qp = self.qps[inbound]
            dut.inbound_requests__level.value = len(qp.inbound)
            dut.inbound_requests__head.value = (
                pack_request(self.layouts, qp.inbound[0])
                if qp.inbound
                else rng.getrandbits(request_bits(self.layouts))
            )
            dut.outstanding_requests__level.value = len(self.qps[outstanding].outstanding)
            send = int(dut.send_entries__select.value)
            send_was_coming = send == coming
            coming = int(dut.send_entries__coming.value)
            address = int(dut.send_entries__word_address.value)
            inbound = int(dut.inbound_requests__select.value)
            outstanding = int(dut.outstanding_requests__select.value)

            # The STag table.
            dut.stag__response_valid.value = 0
            dut.stag__response.value = rng.getrandbits(67)
            if dut.stag__request__valid.value and dut.stag__request__ready.value:
                assert stag_wait < 0, "a second request before the response"
                bits = int(dut.stag__request__payload.value)
                response = self._look_up(bits)
                stag_wait = self.stag_latency or rng.randint(1, 8)
            if stag_wait >= 0:
                stag_wait -= 1
                if stag_wait == 0:
                    dut.stag__response_valid.value = 1
                    dut.stag__response.value = pack(
                        self.layouts.stag_response,
                        {"status": response[0].value, "address": response[1]},
                    )
                    stag_wait = -1
            dut.stag__request__ready.value = int(
                self.stag_latency is not None or rng.random() < 0.7
            )

            # The completer.
            dut.retired__valid.value = 0
            dut.retired__qp.value = rng.randrange(self.config.qps)
            if self._retire and self._retire[0][0] <= self.cycle:
                number = self._retire.pop(0)[1]
                self.qps[number].in_flight -= 1
                dut.retired__valid.value = 1
                dut.retired__qp.value = number
                self.kick(number)

            # The scheduler.
            if not self.work.pending and self.queued:
                self.work.put({"qp": self.queued.popleft()})

    def _later(self, call: Any, *arguments: Any, cycles: int = 1) -> None:
        """Calls it `cycles` later: its effect is seen in the cycle after that."""
        self._effects.append((self.cycle + cycles, lambda: call(*arguments)))

    def _pop_entry(self, number: int, both: int) -> None:
        qp = self.qps[number]
        assert qp.send_units()[0] > both, "a unit that is not on chip is popped"
        entry = qp.entries.popleft()
        assert both == entry.units - 1
        if entry is not qp.message:
            qp.popped_entries.append(entry)

    def _pop_inbound(self, number: int) -> None:
        qp = self.qps[number]
        request = qp.inbound.popleft()
        if request is not qp.request:
            qp.popped_inbound.append(request)

    def _push(self, number: int, item: int) -> None:
        qp = self.qps[number]
        qp.pushed.append(unpack(self.layouts.outstanding_request, item))
        assert len(qp.outstanding) < qp.ord, "more RDMA Reads than ORD"
        qp.outstanding.append(item)

    def _look_up(self, bits: int) -> tuple[StagStatus, int]:
        request = unpack(self.layouts.stag_request, bits)
        region = self.regions.get(request["stag"])
        self.stag_request = request
        return region.check(request) if region else (StagStatus.INVALID, 0)

    # The scoreboard

    async def _scoreboard(self) -> None:
        """Compares every job with the model; jobs come before what pops their entries."""
        while True:
            job = await self.job_sink.get()
            self.jobs += 1
            self.record("job", **job)
            opcode = job["header"] >> 8 & 0xF
            self.leaving.append((job["qp"], not job["empty"] and opcode == 2))
            self._check_job(job)

    async def _piece_scoreboard(self) -> None:
        while True:
            piece = await self.piece_sink.get()
            self.record("piece", **piece)
            assert self.expected_pieces, f"a piece without a job: {piece}"
            assert piece == self.expected_pieces.popleft()

    async def _inline_scoreboard(self) -> None:
        while True:
            word = await self.inline_sink.get()
            self.record("word", octets=word.to_bytes(8, "little"))
            assert self.expected_words, f"an inline word without a job: {word:016x}"
            octets = self.expected_words.popleft()
            # After the end of the header a word is meaningless.
            assert word.to_bytes(8, "little")[: len(octets)] == octets

    def _expect_inline(self, octets: bytes) -> None:
        """Expects the piece and its words."""
        self.expected_pieces.append({"address": 0, "octets": len(octets), "last": 1, "inline": 1})
        self.expected_words.extend(octets[i : i + 8] for i in range(0, len(octets), 8))

    async def _change_stags(self) -> None:
        """The STag table, for changes."""
        dut, rng = self.dut, self.rng
        while True:
            await RisingEdge(dut.clk)
            if not dut.stag_change__valid.value:
                continue
            await ClockCycles(dut.clk, rng.randrange(1, 12))
            dut.stag_change__ready.value = 1
            dut.stag_refused.value = int(self.refuse)
            await RisingEdge(dut.clk)
            dut.stag_change__ready.value = 0
            dut.stag_refused.value = rng.getrandbits(1)
            if not self.refuse:
                bits = int(dut.stag_change__payload.value)
                self.changes.append(unpack(self.layouts.stag_change, bits))
            await RisingEdge(dut.clk)

    async def _atomic_unit(self) -> None:
        """Answers whatever it gets some time later, of different QPs in any order."""
        while True:
            request = await self.atomic_sink.get()
            number = request["qp"]
            self.record("atomic", qp=number, operands=request["operands"])
            qp = self.qps[number]
            expected, region = self._target(qp)
            assert request["operands"] == expected["operands"]
            address = region.address + expected["tagged_offset"] - region.base
            assert request["address"] == address % 2**64 and address % 8 == 0
            assert qp.atomic is None, "a second atomic of the QP"
            self.atomics += 1
            cocotb.start_soon(self._answer_atomic(number))

    async def _answer_atomic(self, number: int) -> None:
        await ClockCycles(self.dut.clk, self.rng.choice([1, 5, 60]))
        while self.hold_atomics:
            await RisingEdge(self.dut.clk)
        original, status = self.rng.getrandbits(64), self.atomic_status
        self.qps[number].atomic = (original, status)
        self.record("original", qp=number, value=original)
        self.busy_atomics.discard(number)
        self.atomic_source.put({"qp": number, "original": original, "status": status.value})

    def _target(self, qp: Qp) -> tuple[dict[str, Any], Region]:
        """The atomic at the head of the inbound queue, and the region that it is about."""
        assert qp.inbound and qp.inbound[0]["atomic"], "no atomic is the oldest request"
        atomic = qp.inbound[0]["of"]
        return atomic, self.regions[atomic["stag"]]

    def _let_jobs_leave(self) -> None:
        """The LLP takes the oldest job, some time after it was given away."""
        dut = self.dut
        slow = self.hold_jobs or (len(self.leaving) < 12 and self.rng.random() < 0.95)
        taken = bool(self.leaving) and not slow
        dut.job_finished__valid.value = int(taken)
        number = self.leaving.popleft()[0] if taken else self.rng.randrange(self.config.qps)
        dut.job_finished__qp.value = number

    def _watch_atomics(self) -> None:
        """An atomic is under way from the request for its target on."""
        dut = self.dut
        if dut.atomic_begun__valid.value:
            number = int(dut.atomic_begun__qp.value)
            assert dut.stag__request__valid.value
            assert number not in self.busy_atomics
            assert (number, True) not in self.leaving, "a Read before it has not found its octets"
            self.busy_atomics.add(number)
        if dut.atomic_refused__valid.value:
            self.busy_atomics.remove(int(dut.atomic_refused__qp.value))
        if dut.atomic_request__valid.value:
            request = unpack(request_layout(self.config), int(dut.atomic_request__payload.value))
            assert request["qp"] in self.busy_atomics

    def _check_atomic_response(self, job: dict[str, Any], qp: Qp) -> None:
        assert qp.message is None, "in the middle of a message"
        assert qp.atomic is not None, "an answer before there is one"
        request = qp.popped_inbound.popleft()
        assert request["atomic"]
        atomic = request["of"]
        original, status = qp.atomic
        assert status is AtomicStatus.DONE
        qp.atomic = None
        qp.started.append("response")
        header = ddp.UntaggedHeader(3, qp.atomic_response_msn, rsvd_ulp=0x4B).encode()
        qp.atomic_response_msn += 1
        assert job["header"].to_bytes(18, "little") == header
        assert (job["tagged"], job["ulpdu_length"], job["report"]) == (0, 30, 0)
        self._expect_inline(AtomicResponse(atomic["identifier"], original).encode())
        self._advance(job, qp)

    def _advance(self, job: dict[str, Any], qp: Qp) -> None:
        """The FPDU stands where the one before ended, inside the window."""
        assert (job["crc"], job["markers"]) == (qp.crc, qp.markers)
        assert job["until_marker"] == -qp.position // 4 % 128
        qp.position += mpa.fpdu_length(
            job["ulpdu_length"], markers=bool(qp.markers), position=qp.position
        )
        assert qp.position <= qp.window, "past the window"

    def _expect_request(self, qp: Qp, entry: Entry) -> tuple[int, bytes]:
        """Length and DDP header of a Read or Atomic Request; its RDMAP header is on its way."""
        is_atomic = entry.opcode == SendOpcode.ATOMIC
        element = entry.elements[0] if entry.elements else Element(0, 0, 0)
        if is_atomic:
            header = atomic_request(entry, qp.atomic_identifier).encode()
            qp.atomic_identifier += 1
        else:
            header = rdmap.ReadRequest(
                element.stag,
                element.tagged_offset,
                entry.length or 0,
                entry.remote_stag,
                entry.remote_tagged_offset,
            ).encode()
        self._expect_inline(header)
        assert qp.pushed.popleft() == {
            "atomic": int(is_atomic),
            "sink_stag": element.stag,
            "sink_tagged_offset": element.tagged_offset,
            "length": entry.index if is_atomic else entry.length,
        }
        expected = ddp.UntaggedHeader(1, qp.read_msn, rsvd_ulp=0x40 | entry.opcode)
        qp.read_msn += 1
        return len(header), expected.encode()

    def _check_local(self, job: dict[str, Any]) -> None:
        """A job without an FPDU and without a close tells that the STag table has changed."""
        number = job["qp"]
        qp = self.qps[number]
        assert qp.message is None, "in the middle of a message"
        entry = qp.oldest_entry()
        if entry.flags & SendFlags.FENCE:
            assert qp.in_flight == 0, "a fenced entry begins before all others completed"
        registers = entry.opcode == SendOpcode.FAST_REGISTER
        assert registers or entry.opcode == SendOpcode.LOCAL_INVALIDATE
        change = self.changes.popleft()
        assert change["register"] == registers
        found = change["entry"]
        assert (found["stag"], found["pd"], found["qp"]) == (entry.remote_stag, qp.pd, number)
        if registers:
            (element,) = entry.elements
            assert found["base"] == entry.remote_tagged_offset
            assert (found["address"], found["length"], found["rights"]) == (
                element.tagged_offset,
                element.length,
                element.stag,
            )
        assert job["report"] and job["sent"] == self._sent(number, entry)
        self._count_send(number)

    def _sent(self, number: int, entry: Entry) -> dict[str, Any]:
        return {
            "qp": number,
            "index": entry.index,
            "opcode": entry.opcode,
            "signaled": entry.flags & 1,
            "length": entry.length,
        }

    def _count_send(self, number: int) -> None:
        qp = self.qps[number]
        qp.in_flight += 1
        self.sends_done += 1
        assert qp.in_flight <= self.config.pending_sends, "too many sends in flight"
        if self.auto_retire:
            self._retire.append((self.cycle + self.rng.randrange(300), number))

    def expect_terminate(self, number: int, ulpdu: bytes) -> None:
        """The next request to close comes with this Terminate, or alone if it is empty."""
        self.terminates.append((number, ulpdu))

    def _check_close(self, job: dict[str, Any]) -> None:
        number, ulpdu = self.terminates.pop(0)
        qp = self.qps[number]
        assert (job["qp"], job["empty"], job["report"]) == (number, int(not ulpdu), 0)
        if not ulpdu:
            return
        assert job["tagged"] == 0
        assert job["ulpdu_length"] == len(ulpdu)
        assert job["header"].to_bytes(18, "little") == ulpdu[:18]
        assert (job["crc"], job["markers"]) == (qp.crc, qp.markers)
        assert job["until_marker"] == -qp.position // 4 % 128
        self._expect_inline(ulpdu[18:])

    def _check_job(self, job: dict[str, Any]) -> None:
        if job["close"]:
            self._check_close(job)
            return
        if job["empty"]:
            self._check_local(job)
            return
        number = job["qp"]
        qp = self.qps[number]
        size = 14 if job["tagged"] else 18
        header = job["header"].to_bytes(18, "little")[:size]
        opcode = header[1] & 0xF
        if opcode == ATOMIC_RESPONSE:
            self._check_atomic_response(job, qp)
            return
        if qp.message is None:
            if opcode == 2:
                qp.request = qp.oldest_inbound()
                qp.message = dict(qp.request["of"])
            else:
                qp.message = qp.oldest_entry()
            qp.done = 0
            qp.segments = []
            qp.emss_changed = len(qp.mulpdus) > 1
            qp.started.append("response" if opcode == 2 else "send")
        message = qp.message
        responding = isinstance(message, dict)
        length = message["length"] if responding else message.length
        if not responding:
            assert opcode == message.opcode
            if message.flags & SendFlags.FENCE and qp.done == 0:
                assert qp.in_flight == 0, "a fenced entry begins before all others completed"
        if opcode in ANSWERED_OPERATIONS:
            (chunk, expected), last = self._expect_request(qp, message), True
        elif opcode in IMMEDIATE_OPERATIONS:
            # One FPDU whatever the EMSS is.
            chunk, last = length, True
            expected = ddp.UntaggedHeader(0, qp.send_msn, rsvd_ulp=0x40 | opcode).encode()
            self._expect_inline(message.immediate_data)
        else:
            tagged = opcode in (0, 2)
            fixed = 14 if tagged else 18
            chunk = job["ulpdu_length"] - fixed
            allowed = [min(length - qp.done, mulpdu - fixed) for mulpdu in qp.mulpdus]
            assert chunk in allowed, (chunk, allowed, length, qp.done)
            # Older values cannot come back.
            del qp.mulpdus[: allowed.index(chunk)]
            last = qp.done + chunk == length
            if responding:
                expected = ddp.TaggedHeader(
                    message["sink_stag"],
                    (message["sink_tagged_offset"] + qp.done) % 2**64,
                    last,
                    0x42,
                ).encode()
                elements = [
                    Element(message["source_tagged_offset"], length, message["source_stag"])
                ]
            elif tagged:
                expected = ddp.TaggedHeader(
                    message.remote_stag,
                    (message.remote_tagged_offset + qp.done) % 2**64,
                    last,
                    0x40,
                ).encode()
                elements = message.elements
            else:
                invalidates = opcode in (4, 6)
                rsvd_ulp = (0x40 | opcode) << 32 | (message.remote_stag if invalidates else 0)
                expected = ddp.UntaggedHeader(0, qp.send_msn, qp.done, last, 0x40 | opcode).encode()
                expected = expected[:2] + rsvd_ulp.to_bytes(5, "big")[1:] + expected[6:]
                elements = message.elements
            self._expect_pieces(elements, qp.done, chunk)
        assert size == len(expected)
        assert header == expected, (header.hex(), expected.hex())
        assert job["ulpdu_length"] == size + chunk
        self._advance(job, qp)
        qp.done += chunk
        qp.segments.append((header, job["ulpdu_length"]))
        assert job["report"] == int(last and not responding)
        if not last:
            return
        if not responding:
            assert job["sent"] == self._sent(number, message)
            self._count_send(number)
            if opcode not in (*ANSWERED_OPERATIONS, *IMMEDIATE_OPERATIONS):
                self._check_segments(qp, message)
            qp.send_msn += opcode in (*SENDS, *IMMEDIATE_OPERATIONS)
        qp.message = None

    def _check_segments(self, qp: Qp, message: Entry) -> None:
        """A message under one EMSS is segmented as the model does it (RFC 5041, 5.2)."""
        if qp.emss_changed or len(qp.mulpdus) > 1:
            return
        payload = bytes(message.length)
        if message.opcode in SENDS[1:]:
            return
        if message.opcode == SendOpcode.SEND:
            segments = ddp.segment_untagged(
                payload, qn=0, msn=qp.send_msn, mulpdu=qp.mulpdus[0], rsvd_ulp=0x43
            )
        else:
            segments = ddp.segment_tagged(
                payload,
                stag=message.remote_stag,
                tagged_offset=message.remote_tagged_offset,
                mulpdu=qp.mulpdus[0],
                rsvd_ulp=0x40,
            )
        assert [(s[: len(h)], len(s)) for s, (h, _) in zip(segments, qp.segments, strict=True)] == (
            qp.segments
        )

    def _expect_pieces(self, elements: list[Element], start: int, octets: int) -> None:
        end = start + octets
        position = 0
        pieces = []
        for element in elements:
            first, stop = max(start, position), min(end, position + element.length)
            if first < stop:
                region = self.regions[element.stag]
                tagged_offset = element.tagged_offset + first - position
                address = (region.address + tagged_offset - region.base) % 2**64
                pieces.append({"address": address, "octets": stop - first, "last": 0, "inline": 0})
            position += element.length
        if pieces:
            pieces[-1]["last"] = 1
        self.expected_pieces.extend(pieces)

    def add_region(self, pd: int, rights: int, length: int) -> tuple[int, int]:
        """Register memory; returns STag and the TO of its first octet."""
        rng = self.rng
        stag = rng.getrandbits(32)
        base = rng.choice([0, rng.getrandbits(48), 2**64 - length])
        self.regions[stag] = Region(pd, rights, base, length, rng.getrandbits(56))
        return stag, base


ATOMIC_RESPONSE = 0xB


def atomic_request(entry: Entry, identifier: int) -> AtomicRequest:
    """What is sent for the entry; fields that its operation does not have are RFC 7306's."""
    data, mask, compare, compare_mask = entry.operands
    return AtomicRequest(
        entry.operation,
        identifier,
        entry.remote_stag,
        entry.remote_tagged_offset,
        data,
        WORD if entry.operation == 1 else mask,
        compare if entry.operation == 2 else 0,
        compare_mask if entry.operation == 2 else WORD,
    )


SENDS = (
    SendOpcode.SEND,
    SendOpcode.SEND_WITH_INVALIDATE,
    SendOpcode.SEND_WITH_SE,
    SendOpcode.SEND_WITH_SE_AND_INVALIDATE,
)

LOCAL = Rights.LOCAL_READ | Rights.LOCAL_WRITE
