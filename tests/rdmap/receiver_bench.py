"""The neighbours of the RDMAP receiver, and what they must see, in plain Python."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from gateware.config import RnicConfig
from gateware.interfaces import (
    ULPDU_HEADER_OCTETS,
    DeliveryKind,
    Layouts,
    QpCommandKind,
    SegmentKind,
    StagStatus,
)
from hw.interface.causes import Cause
from hw.interface.queue_entries import RECEIVE_ENTRY_OCTETS, Rights
from sim.model import ddp, rdmap
from sim.model.errors import StreamError
from tests.support.streams import StreamMonitor, StreamSink, StreamSource, pack, unpack

CONFIG = RnicConfig(qps=4, cqs=4, read_queue_depth=4)
LAYOUTS = Layouts(CONFIG)
STORE_WORDS = 1 << CONFIG.store_address_bits
FIRST_PAYLOAD_OCTET = {True: 16, False: 20}
"""Offset of the payload in an FPDU, by T."""

# The stand-in for the STag table answers by the low bits of the STag.
STATUS_BITS = 7
ADDRESS_MASK = 0x1234_5678_9ABC_DEF0


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
class Qp:
    """What the model knows of a QP, and the queues beside the receiver."""

    running: bool = False
    pd: int = 0
    ird: int = 0
    started: bool = False
    stopped: bool = False
    send_msn: int = 1
    send_mo: int = 0
    request_msn: int = 1
    response_octets: int = 0
    entries: deque[list[Element]] = field(default_factory=deque)
    index: int = 0
    inbound: int = 0
    reads: deque[dict[str, int]] = field(default_factory=deque)


class _Failure(Exception):
    def __init__(self, cause: Cause, index: int = 0) -> None:
        self.cause, self.index = cause, index


class Model:
    """Turns segments into the events that the receiver must cause, in their order."""

    def __init__(self) -> None:
        self.qps = [Qp() for _ in range(CONFIG.qps)]
        self.placements = 0
        self.events: list[tuple[Any, ...]] = []
        self.causes: set[Cause] = set()

    def segment(self, segment: dict[str, Any], ulpdu: bytes) -> None:
        qp = self.qps[segment["qp"]]
        kind = SegmentKind(segment["kind"])
        if not qp.running or qp.stopped:
            if kind is SegmentKind.FPDU:
                self._place(segment, [])
            return
        try:
            if kind is not SegmentKind.FPDU:
                raise _Failure(
                    {
                        SegmentKind.CRC_ERROR: Cause.CRC_ERROR,
                        SegmentKind.CLOSED: Cause.LLP_CLOSED,
                        SegmentKind.MARKER_ERROR: Cause.MARKER_MISMATCH,
                    }[kind]
                )
            if not qp.started:
                qp.started = True
                self.events.append(("first", segment["qp"]))
            self._checked(qp, segment, ulpdu)
        except _Failure as failure:
            qp.stopped = True
            self.causes.add(failure.cause)
            is_fpdu = kind is SegmentKind.FPDU
            self.events.append(
                (
                    "error",
                    {
                        "qp": segment["qp"],
                        "cause": int(failure.cause),
                        "index": failure.index,
                        "ulpdu_length": len(ulpdu) if is_fpdu else 0,
                        "header": segment["header"] & ((1 << 144) - 1) if is_fpdu else 0,
                    },
                )
            )
            if is_fpdu:
                self._place(segment, [])

    def _checked(self, qp: Qp, segment: dict[str, Any], ulpdu: bytes) -> None:
        try:
            header, payload = ddp.decode(ulpdu)
        except StreamError:
            raise _Failure(Cause.ULPDU_TOO_SHORT) from None
        tagged = isinstance(header, ddp.TaggedHeader)
        if header.version != 1:
            raise _Failure(Cause.TAGGED_DDP_VERSION if tagged else Cause.UNTAGGED_DDP_VERSION)
        control = rdmap.decode_control(header.rsvd_ulp)
        if control.version != 1:
            raise _Failure(Cause.RDMAP_VERSION)
        opcode = control.opcode
        if tagged:
            if opcode == rdmap.Opcode.RDMA_WRITE:
                return self._write(qp, segment, header, payload)
            if opcode == rdmap.Opcode.RDMA_READ_RESPONSE:
                return self._read_response(qp, segment, header, payload)
            raise _Failure(Cause.UNEXPECTED_OPCODE)
        queues = {1: 1, 3: 0, 7: 2}
        if opcode not in queues:
            raise _Failure(Cause.UNEXPECTED_OPCODE)
        if header.qn > 2:
            raise _Failure(Cause.UNTAGGED_QN)
        if header.qn != queues[opcode]:
            raise _Failure(Cause.UNEXPECTED_OPCODE)
        if opcode == rdmap.Opcode.TERMINATE:
            raise _Failure(Cause.TERMINATE_RECEIVED)
        if opcode == rdmap.Opcode.SEND:
            return self._send(qp, segment, header, payload)
        return self._read_request(qp, segment, header, payload)

    def _ask(self, segment: dict[str, Any], stag: int, to: int, octets: int, rights: Rights) -> Any:
        request = {
            "stag": stag,
            "tagged_offset": to,
            "octets": octets,
            "rights": int(rights),
            "pd": self.qps[segment["qp"]].pd,
            "qp": segment["qp"],
        }
        self.events.append(("stag", request))
        return stag_status(stag)

    def _place(
        self, segment: dict[str, Any], pieces: list[tuple[int, int]], first: int = 0
    ) -> None:
        """Pieces are (TO, octets); `first` is the place of the payload in the FPDU."""
        position = segment["store_address"] * 8 + first
        if not pieces:
            self.events.append(("release", segment["store_end"]))
        for number, (to, octets) in enumerate(pieces):
            position %= STORE_WORDS * 8
            self.placements += 1
            self.events.append(
                (
                    "place",
                    {
                        "qp": segment["qp"],
                        "address": to ^ ADDRESS_MASK,
                        "octets": octets,
                        "store_address": position // 8,
                        "store_octet": position % 8,
                        "release": int(number == len(pieces) - 1),
                        "store_end": segment["store_end"],
                    },
                )
            )
            position += octets

    def _deliver(self, segment: dict[str, Any], kind: DeliveryKind, index: int, n: int) -> None:
        self.events.append(
            (
                "deliver",
                {
                    "kind": kind.value,
                    "qp": segment["qp"],
                    "index": index,
                    "length": n,
                    "flags": 0,
                    "after": self.placements % 2**16,
                },
            )
        )

    def _tagged(self, segment: dict[str, Any], header: Any, n: int, r: Rights, p: Cause) -> None:
        status = self._ask(segment, header.stag, header.tagged_offset, n, r)
        if status is not StagStatus.OK:
            raise _Failure(
                {
                    StagStatus.INVALID: Cause.TAGGED_STAG_INVALID,
                    StagStatus.NOT_ASSOCIATED: Cause.TAGGED_STAG_NOT_ASSOCIATED,
                    StagStatus.NOT_PERMITTED: p,
                    StagStatus.WRAP: Cause.TAGGED_TO_WRAP,
                    StagStatus.BOUNDS: Cause.TAGGED_BOUNDS,
                }[status]
            )

    def _write(self, qp: Qp, segment: dict[str, Any], header: Any, payload: bytes) -> None:
        if not payload:
            return self._place(segment, [])
        n = len(payload)
        self._tagged(segment, header, n, Rights.REMOTE_WRITE, Cause.WRITE_NOT_PERMITTED)
        self._place(segment, [(header.tagged_offset, n)], FIRST_PAYLOAD_OCTET[True])

    def _read_response(self, qp: Qp, segment: dict[str, Any], header: Any, payload: bytes) -> None:
        if not qp.reads:
            raise _Failure(Cause.UNSOLICITED_READ_RESPONSE)
        read = qp.reads[0]
        n = len(payload)
        if n and header.stag != read["sink_stag"]:
            raise _Failure(Cause.READ_RESPONSE_STAG)
        expected = (read["sink_tagged_offset"] + qp.response_octets) % 2**64
        total = qp.response_octets + n
        if n and header.tagged_offset != expected:
            raise _Failure(Cause.READ_RESPONSE_RANGE)
        if total > read["length"] or header.last != (total == read["length"]):
            raise _Failure(Cause.READ_RESPONSE_RANGE)
        if n:
            self._tagged(segment, header, n, Rights.LOCAL_WRITE, Cause.TAGGED_STAG_INVALID)
        pieces = [(header.tagged_offset, n)] if n else []
        self._place(segment, pieces, FIRST_PAYLOAD_OCTET[True])
        qp.response_octets = total
        if header.last:
            self._deliver(segment, DeliveryKind.READ, 0, read["length"])
            self.events.append(("pop_read", segment["qp"]))
            qp.reads.popleft()
            qp.response_octets = 0

    def _read_request(self, qp: Qp, segment: dict[str, Any], header: Any, payload: bytes) -> None:
        if header.msn != qp.request_msn:
            raise _Failure(Cause.UNTAGGED_MSN)
        if qp.inbound >= qp.ird:
            raise _Failure(Cause.TOO_MANY_READ_REQUESTS)
        if header.mo:
            raise _Failure(Cause.UNTAGGED_MO)
        if len(payload) > rdmap.READ_REQUEST_OCTETS:
            raise _Failure(Cause.READ_REQUEST_TOO_LONG)
        if len(payload) < rdmap.READ_REQUEST_OCTETS or not header.last:
            raise _Failure(Cause.READ_REQUEST_TOO_SHORT)
        r = rdmap.ReadRequest.decode(payload)
        if r.size:
            status = self._ask(
                segment, r.source_stag, r.source_tagged_offset, r.size, Rights.REMOTE_READ
            )
            if status is not StagStatus.OK:
                raise _Failure(
                    {
                        StagStatus.INVALID: Cause.READ_STAG_INVALID,
                        StagStatus.NOT_ASSOCIATED: Cause.READ_STAG_NOT_ASSOCIATED,
                        StagStatus.NOT_PERMITTED: Cause.READ_NOT_PERMITTED,
                        StagStatus.WRAP: Cause.READ_TO_WRAP,
                        StagStatus.BOUNDS: Cause.READ_BOUNDS,
                    }[status]
                )
        qp.request_msn = (qp.request_msn + 1) % 2**32
        qp.inbound += 1
        item = {
            "sink_stag": r.sink_stag,
            "sink_tagged_offset": r.sink_tagged_offset,
            "length": r.size,
            "source_stag": r.source_stag,
            "source_tagged_offset": r.source_tagged_offset,
        }
        self.events.append(("push", segment["qp"], item))
        self._place(segment, [])

    def _send(self, qp: Qp, segment: dict[str, Any], header: Any, payload: bytes) -> None:
        if header.msn != qp.send_msn:
            raise _Failure(Cause.UNTAGGED_MSN)
        if not qp.entries:
            raise _Failure(Cause.UNTAGGED_NO_BUFFER)
        if header.mo != qp.send_mo:
            raise _Failure(Cause.UNTAGGED_MO)
        end = qp.send_mo + len(payload)
        elements = qp.entries[0]
        if end > sum(e.length for e in elements):
            raise _Failure(Cause.UNTAGGED_TOO_LONG)
        pieces = []
        start = 0
        for e in elements:
            low, high = max(start, qp.send_mo), min(start + e.length, end)
            if low < high:
                to = (e.tagged_offset + low - start) % 2**64
                pieces.append((e.stag, to, high - low))
            start += e.length
        for stag, to, octets in pieces:
            if self._ask(segment, stag, to, octets, Rights.LOCAL_WRITE) is not StagStatus.OK:
                raise _Failure(Cause.LOCAL_RECEIVE_PROTECTION, qp.index)
        self._place(segment, [(to, n) for _, to, n in pieces], FIRST_PAYLOAD_OCTET[False])
        qp.send_mo = end
        if header.last:
            self._deliver(segment, DeliveryKind.RECEIVE, qp.index, end)
            self.events.append(("pop_entry", segment["qp"]))
            qp.entries.popleft()
            qp.index = (qp.index + 1) % 2**16
            qp.send_msn = (qp.send_msn + 1) % 2**32
            qp.send_mo = 0


@dataclass
class _Ring:
    """The prefetched receive ring of a QP: `fetched` entries of those posted are on chip."""

    entries: deque[list[int]] = field(default_factory=deque)
    fetched: int = 0
    index: int = 0


class Bench:
    """The receiver between stand-ins; `log` has what it did in the order in which it did it."""

    def __init__(self, dut: Any, rng: Any, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.model = Model()
        self.log: list[tuple[Any, ...]] = []
        self.taken = self.ended = self.sent = 0
        self.fetch = True
        self.rings = [_Ring() for _ in range(CONFIG.qps)]
        self.inbound = [0] * CONFIG.qps
        self.reads: list[deque[dict[str, int]]] = [deque() for _ in range(CONFIG.qps)]
        self._store = 0
        dut.running.value = 0
        self._commands = StreamSource(dut, "qp_command", LAYOUTS.qp_command)
        self._segments = StreamSource(dut, "segment", LAYOUTS.segment, rng=rng, pattern=pattern)
        for name, layout in (
            ("placement", LAYOUTS.placement),
            ("delivery", LAYOUTS.delivery),
            ("error", LAYOUTS.qp_error),
        ):
            StreamSink(dut, name, layout, rng=rng, pattern=pattern)
            StreamMonitor(dut, name, layout)
        StreamMonitor(dut, "stag__request", LAYOUTS.stag_request)
        self._quick = pattern == "always"
        dut.stag__request__ready.value = 0
        dut.stag__response_valid.value = 0
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._stag_table())
        cocotb.start_soon(self._queues())

    # Commands and state that changes only while no segment is at work

    async def connect(self, number: int, ird: int = CONFIG.read_queue_depth) -> None:
        """Make the QP anew, with a random PD."""
        qp = self.model.qps[number]
        entries, index = qp.entries, qp.index
        pd = self.rng.getrandbits(16)
        self.model.qps[number] = Qp(True, pd, ird, entries=entries, index=index)
        self.inbound[number] = 0
        self.reads[number].clear()
        await self._command(number, QpCommandKind.CREATE, pd=pd)
        await self._command(number, QpCommandKind.CONNECT, ird=ird)
        self.set_running(number, True)
        await ClockCycles(self.dut.clk, 4)

    async def _command(self, number: int, kind: QpCommandKind, **fields: int) -> None:
        noise = {"pd": self.rng.getrandbits(16), "ird": self.rng.randrange(4)} | fields
        await self._commands.send({"kind": kind.value, "qp": number} | noise)

    def set_running(self, number: int, running: bool) -> None:
        self.model.qps[number].running = running
        bits = (qp.running << n for n, qp in enumerate(self.model.qps))
        self.dut.running.value = sum(bits)

    def post(self, number: int, elements: list[Element]) -> None:
        self.model.qps[number].entries.append(elements)
        self.rings[number].entries.append(entry_words(elements))

    def expect_read(self, number: int, stag: int, to: int, length: int) -> None:
        read = {"sink_stag": stag, "sink_tagged_offset": to, "length": length}
        self.model.qps[number].reads.append(read)
        self.reads[number].append(read)

    def answer_reads(self, number: int) -> None:
        """The transmitter has answered every Read Request of the QP."""
        self.model.qps[number].inbound = self.inbound[number] = 0

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
            "store_end": (self._store + words) % STORE_WORDS,
        }
        self._store = segment["store_end"]
        self.model.segment(segment, ulpdu)
        self._segments.put(segment)
        self.sent += 1

    async def settle(self) -> None:
        """Wait until every segment was processed; compare what happened with the model."""
        while self.ended < self.sent:
            await RisingEdge(self.dut.clk)
        await ClockCycles(self.dut.clk, 2)
        assert self.taken == self.ended == self.sent
        for number, (got, expected) in enumerate(zip(self.log, self.model.events, strict=False)):
            assert got == expected, f"event {number}: {got}, expected {expected}"
        assert len(self.log) == len(self.model.events), (self.log, self.model.events)
        self.log.clear()
        self.model.events.clear()

    # Stand-ins

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            self.taken += int(dut.begin.value)
            self.ended += int(dut.end.value)
            if dut.first_segment__valid.value:
                self.log.append(("first", int(dut.first_segment__qp.value)))
            if dut.stag__request__valid.value and dut.stag__request__ready.value:
                request = unpack(LAYOUTS.stag_request, int(dut.stag__request__payload.value))
                self.log.append(("stag", request))
            assert dut.read_request_arrived__valid.value == dut.inbound_reads__push.value
            if dut.inbound_reads__push.value:
                number = int(dut.inbound_reads__push_qp.value)
                assert int(dut.read_request_arrived__qp.value) == number
                self.inbound[number] += 1
                item = unpack(LAYOUTS.inbound_read, int(dut.inbound_reads__item.value))
                self.log.append(("push", number, item))
            if dut.error__valid.value and dut.error__ready.value:
                self.log.append(("error", unpack(LAYOUTS.qp_error, int(dut.error__payload.value))))
            if dut.placement__valid.value and dut.placement__ready.value:
                item = unpack(LAYOUTS.placement, int(dut.placement__payload.value))
                if item["octets"]:
                    self.log.append(("place", item))
                else:
                    assert item["release"]
                    self.log.append(("release", item["store_end"]))
            if dut.delivery__valid.value and dut.delivery__ready.value:
                item = unpack(LAYOUTS.delivery, int(dut.delivery__payload.value))
                self.log.append(("deliver", item))
            if dut.receive_entries__pop.value:
                self.log.append(("pop_entry", int(dut.receive_entries__pop_qp.value)))
            assert dut.read_space__valid.value == dut.outstanding_reads__pop.value
            if dut.read_space__valid.value:
                assert dut.read_space__qp.value == dut.outstanding_reads__pop_qp.value
                self.log.append(("pop_read", int(dut.read_space__qp.value)))

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

    async def _queues(self) -> None:
        """Answers are seen two cycles after the question, pops and pushes after three."""
        dut, rng = self.dut, self.rng
        before: dict[str, int] = {}
        while True:
            await RisingEdge(dut.clk)
            if dut.rst.value:
                continue
            for name, value in before.items():
                getattr(dut, name).value = value
            ring = self.rings[int(dut.receive_entries__select.value)]
            address = int(dut.receive_entries__word_address.value)
            reads = self.reads[int(dut.outstanding_reads__select.value)]
            before = {
                "receive_entries__level": ring.fetched,
                "receive_entries__posted": len(ring.entries),
                "receive_entries__index": ring.index,
                "receive_entries__word": (
                    ring.entries[0][address] if ring.fetched else rng.getrandbits(64)
                ),
                "inbound_reads__level": self.inbound[int(dut.inbound_reads__select.value)],
                "outstanding_reads__level": len(reads),
                "outstanding_reads__head": (
                    pack(LAYOUTS.outstanding_read, reads[0]) if reads else rng.getrandbits(128)
                ),
            }
            if dut.receive_entries__pop.value:
                ring = self.rings[int(dut.receive_entries__pop_qp.value)]
                assert ring.fetched, "popped an entry that is not on chip"
                ring.entries.popleft()
                ring.fetched -= 1
                ring.index = (ring.index + 1) % 2**16
            if dut.outstanding_reads__pop.value:
                self.reads[int(dut.outstanding_reads__pop_qp.value)].popleft()
            for ring in self.rings:
                wanted = min(len(ring.entries), CONFIG.receive_queue_prefetch)
                if self.fetch and ring.fetched < wanted and (self._quick or rng.random() < 0.05):
                    ring.fetched += 1
