"""The transmit processor, and connections of the reference that are held against it."""

from collections import Counter, deque
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.gateware.tcp.layouts import (
    DEADLINES,
    FATE,
    LIMITS,
    TRANSMIT_SETTINGS,
    Due,
    NoticeKind,
    SendKind,
    TransmitOperation,
    ack_event,
    due_layout,
    fpdu_layout,
    notice_layout,
    send_job,
    sender_event,
    settled_layout,
    transmit_command,
    transmit_job,
)
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.tcp.segment import Flags, Segment
from tests.support.runner import parameter
from tests.tcp.receive_reference import LOCAL, REMOTE, SPACE
from tests.tcp.transmit_reference import Reference, Setup, expected_job

QUIET = 60
"""Cycles without anything after which nothing more comes."""

LARGEST = 256


class Bench:
    """The block, references by connection, and what they wait for.

    An event is told to both; `settle` waits until the block rests, and compares all that it said.
    """

    def __init__(self, dut: Any, rng: Random, pattern: str, begin: int = 0) -> None:
        self.dut, self.rng = dut, rng
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        self.bits = bits = (self.connections - 1).bit_length()
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        inputs = {
            "ack": ack_event(bits),
            "note": settled_layout(bits),
            "due": due_layout(bits),
            "fpdu": fpdu_layout(bits),
            "command": transmit_command(bits),
            "failed": None,
        }
        outputs = {
            "send": send_job(bits),
            "job": transmit_job(bits),
            "fate": FATE,
            "said": sender_event(bits),
            "notice": notice_layout(bits),
        }
        self.sources = {
            name: StreamSource(dut, name, layout, **options) for name, layout in inputs.items()
        }
        self.sinks = {
            name: StreamSink(dut, name, layout, **options) for name, layout in outputs.items()
        }
        for name, layout in outputs.items():
            StreamMonitor(dut, name, layout, keep=False)
        self.now = begin
        dut.time.value = begin % SPACE
        self.references: dict[int, Reference] = {}
        self.setups: dict[int, Setup] = {}
        self.rings: dict[int, tuple[int, int]] = {}
        self.deadlines: dict[int, Any] = {}
        self.limits: dict[int, Any] = {}
        self.history: deque[Any] = deque(maxlen=20)  # shown if something is wrong
        self.events = self.pulses = 0
        self.cycle = self.active = 0
        self.fpdus: deque[tuple[int, int, int, int]] = deque()  # connection, octets, sum, whole
        self.stored: deque[tuple[int, int, int]] = deque()  # those that are sent out of the store
        self.expected_jobs: dict[int, deque[dict[str, int]]] = {}
        self.sent_up_to: dict[int, int] = {}
        self.said: dict[int, list[tuple[str, int]]] = {}
        self.noticed: dict[int, list[tuple[str, int]]] = {}
        self.reported: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        self.order: list[int] = []  # of segments, by their connections
        self.needed = False  # the last segment goes also if it says nothing new

    async def start(self, **settings: int) -> None:
        dut = self.dut
        known = {
            "rto_minimum": 1000,
            "rto_maximum": 60_000_000,
            "r2": 100_000_000,
            "delayed_ack": 40_000,
        }
        dut.settings.value = pack(TRANSMIT_SETTINGS, known | settings)
        await start_clock_and_reset(dut)
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        """Copies of what the block writes; when it did something last."""
        dut = self.dut
        pairs = [
            (getattr(dut, f"{name}__valid"), getattr(dut, f"{name}__ready"))
            for name in (*self.sinks,)
        ]
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            if dut.limits_write.value:
                written = unpack(LIMITS, int(dut.limits.value))
                self.limits[int(dut.limits_connection.value)] = written
            if dut.deadlines_write.value:
                written = unpack(DEADLINES, int(dut.deadlines.value))
                self.deadlines[int(dut.deadlines_connection.value)] = written
                self.pulses += 1
                self.active = self.cycle
            elif any(valid.value for valid, _ in pairs):
                self.active = self.cycle

    def advance(self, microseconds: int) -> None:
        self.now += microseconds
        self.dut.time.value = self.now % SPACE

    def _put(self, name: str, connection: int, **fields: Any) -> None:
        self.sources[name].put({"connection": connection, **fields})
        self.events += 1
        self.history.append((self.now, name, connection, fields))

    # Events that are told to the block alone.

    def put_fpdu(self, connection: int, octets: int) -> None:
        self._put("fpdu", connection, octets=octets)

    def put_ack(self, connection: int, number: int, window: int) -> None:
        some = {"acknowledges": 1, "empty": 1}
        self._put("ack", connection, acknowledgment=number, window=window, **some)

    def put_due(self, connection: int) -> None:
        self._put("due", connection, resend=1, acknowledge=1)

    def put_note(self, connection: int, number: int, edge: int) -> None:
        self._note(connection, {"number": number, "edge": edge, "due": Due.NONE.value})

    # Events, told to the block and to the reference.

    def begin(self, connection: int, setup: Setup, *, size: int = 0) -> Reference:
        known = Reference(self.now, setup)
        self.references[connection], self.setups[connection] = known, setup
        self.sent_up_to[connection] = setup.number
        self.rings[connection] = (self.rng.getrandbits(20) << 20 | connection << 3, size)
        self.said[connection], self.noticed[connection] = [], []
        self.reported[connection] = 0
        ring, _ = self.rings[connection]
        self._put(
            "command",
            connection,
            operation=TransmitOperation.BEGIN.value,
            number=setup.number,
            window=setup.window,
            window_from=setup.following,
            edge=(setup.following + known.edge) % SPACE,
            announced=(setup.following + known.edge) % SPACE,
            cwnd=known.sender.congestion.cwnd,
            rto=known.rto,
            ring=ring,
            size=size,
            shift=setup.shift,
            emss=setup.smss,
        )
        self._job(connection, fpdu=0, octets=0, begin=1, number=setup.number)
        return known

    def _job(self, connection: int, **fields: int) -> None:
        ring, size = self.rings[connection]
        queue = self.expected_jobs.setdefault(connection, deque())
        queue.append({"ring": ring, "size": size, **fields})

    def command(self, connection: int, operation: TransmitOperation, **fields: int) -> None:
        self._put("command", connection, operation=operation.value, **fields)

    def attach(self, connection: int) -> None:
        self.command(connection, TransmitOperation.ATTACH)
        known = self.references[connection]
        if known.ended:
            return
        known.attached = True
        known.base = known.granted = known.sender.end
        self.said[connection].append(("EMSS", known.sender.smss))
        self._grant(connection)

    def detach(self, connection: int) -> None:
        self.command(connection, TransmitOperation.DETACH)
        self.references[connection].attached = False

    def _grant(self, connection: int) -> None:
        known = self.references[connection]
        _, size = self.rings[connection]
        known.grant(1 << 17 + size)
        self.said[connection] += [("TX_WINDOW", value) for value in known.grants]
        known.grants.clear()

    def _after(self, connection: int, was: str) -> None:
        """Of every event: what the LLP and the driver are told."""
        known = self.references[connection]
        reports = len(known.reports)
        if reports > self.reported[connection]:
            self.reported[connection] = reports
            number = known.number(known.sender.max)
            self.noticed[connection].append(("SUSPECT", number))
        if known.ended and not was:
            number = known.number(known.sender.max)
            self.noticed[connection].append((known.ended, number))
            self.said[connection].append(("CLOSED", 0))
        self._grant(connection)

    def send(
        self, connection: int, octets: int, *, whole: bool = True, close: bool = False
    ) -> None:
        """An FPDU, or octets of the driver."""
        known = self.references[connection]
        was = known.ended
        dead = bool(was) or known.sender.closing
        number = known.number(known.sender.end)
        if whole:
            total = self.rng.getrandbits(16)
            self._put("fpdu", connection, octets=octets, sum=total, close=close)
            if octets:
                self.fpdus.append((connection, octets, total, int(not dead)))
                kept = {} if dead else {"number": number}
                self._job(connection, fpdu=1, octets=0 if dead else octets, begin=0, **kept)
        else:
            self.command(connection, TransmitOperation.SEND, octets=octets)
            if not was:
                self._job(connection, fpdu=0, octets=octets, begin=0, number=number)
        if dead:
            return
        if octets:
            if close:
                known.sender.queue(bytes(octets), whole=whole)
            else:
                known.send(self.now, octets, whole=whole)
        if close:
            known.close(self.now)
        self._after(connection, was)

    def close(self, connection: int) -> None:
        self.command(connection, TransmitOperation.FINISH)
        known = self.references[connection]
        if not known.ended:
            known.close(self.now)
            self._after(connection, "")

    def abort(self, connection: int) -> None:
        self.command(connection, TransmitOperation.ABORT)
        known = self.references[connection]
        if not known.ended:
            known.abort(self.now)
            self._after(connection, "")

    def resize(self, connection: int, emss: int) -> None:
        self.command(connection, TransmitOperation.RESIZE, emss=emss)
        known = self.references[connection]
        if not known.ended:
            known.sender.resize(self.now, emss)
            if known.attached:
                self.said[connection].append(("EMSS", emss))
            self._after(connection, "")

    def fail(self, connection: int) -> None:
        """Memory did, at one of the rings."""
        known = self.references[connection]
        if self.rng.random() < 0.5:
            self.sources["failed"].put(connection)
            self.events += 1
        else:
            note = {"connection": connection, "number": self.rng.getrandbits(32)}
            self.sources["note"].put({"failed": 1, "note": note})
            self.events += 1
        if not known.ended:
            known.record.send_reset(self.now)
            known.record.stop_timers()
            known.ended = "MEMORY"
            self._after(connection, "")

    def acknowledge(
        self,
        connection: int,
        position: int,
        *,
        window: int | None = None,
        older: int = 0,
        empty: bool = True,
        lost: bool = False,
        challenge: bool = False,
    ) -> None:
        """A segment with an ACK that counts; the window field is as the last one if not said."""
        known = self.references[connection]
        sender = known.sender
        field = sender.window >> sender.shift if window is None else window
        segment = Segment(
            REMOTE[1],
            LOCAL[1],
            (known.receiver.next_sequence - older) % SPACE,
            known.number(position),
            Flags.ACK,
            field,
            b"" if empty else b"x",
        )
        self._put(
            "ack",
            connection,
            acknowledges=1,
            acknowledgment=segment.acknowledgment,
            sequence=segment.sequence,
            window=field,
            empty=empty,
            lost=lost,
            challenge=challenge,
        )
        if not known.ended:
            known.acknowledge(self.now, segment, lost=lost, challenge=challenge)
            self._after(connection, "")

    def challenge(self, connection: int) -> None:
        """A segment that is answered by an ACK, and does not count."""
        some = self.rng.getrandbits(32)
        self._put(
            "ack", connection, challenge=1, acknowledgment=some, sequence=some, window=some >> 16
        )
        known = self.references[connection]
        if not known.ended:
            known.challenge(self.now)
            self._after(connection, "")

    def reset(self, connection: int) -> None:
        self._put("ack", connection, reset=1)
        known = self.references[connection]
        if not known.ended:
            known.reset()
            self._after(connection, "")

    def expire(self, connection: int) -> None:
        """The timers say that a deadline may have come."""
        self.put_due(connection)
        known = self.references[connection]
        if not known.ended:
            known.expire(self.now)
            self._after(connection, "")

    def receive(self, connection: int, kind: str) -> None:
        known = self.references[connection]
        was = known.ended
        self._note(connection, known.receive(self.now, kind))
        self._after(connection, was)

    def read(self, connection: int, octets: int) -> None:
        note = self.references[connection].read(self.now, octets)
        if note:
            self._note(connection, note)

    def _note(self, connection: int, note: dict[str, int]) -> None:
        self.sources["note"].put({"failed": 0, "note": {"connection": connection, **note}})
        self.history.append((self.now, "note", connection, note))
        self.events += 1

    # What comes of them.

    async def rest(self) -> None:
        """Wait until the block has done all that it was told."""
        for source in self.sources.values():
            await source.wait_idle()
        self.active = self.cycle  # it took the last one of them
        while self.pulses < self.events or self.cycle - self.active < QUIET:
            await RisingEdge(self.dut.clk)

    async def settle(self) -> dict[int, list[dict[str, int]]]:
        """Wait until the block rests, and compare; the segments that it sent, by connection."""
        await self.rest()
        try:
            return self._check()
        except AssertionError:
            print(*self.history, sep="\n")
            raise

    def _check(self) -> dict[int, list[dict[str, int]]]:
        self._check_ring()
        sent = self._check_segments()
        said: dict[int, list[tuple[str, int]]] = {each: [] for each in self.references}
        for event in self.sinks["said"].take_all():
            kind = LlpEventKind(event["kind"])
            value = 0 if kind is LlpEventKind.CLOSED else event["value"]
            said[event["connection"]].append((kind.name, value))
        noticed: dict[int, list[tuple[str, int]]] = {each: [] for each in self.references}
        for notice in self.sinks["notice"].take_all():
            kind = NoticeKind(notice["kind"])
            noticed[notice["connection"]].append((kind.name, notice["number"]))
            self.seen[kind.name] += 1
        for connection, known in self.references.items():
            assert said[connection] == self.said[connection], connection
            assert noticed[connection] == self.noticed[connection], connection
            self.said[connection].clear()
            self.noticed[connection].clear()
            found = self.deadlines[connection]
            wanted = {"resend": None, "acknowledge": None} if known.ended else known.deadlines
            for name, at in wanted.items():
                shown = found[name]["at"] if found[name]["armed"] else None
                assert shown == at, (connection, name, shown, at)
            limits = self.limits[connection]
            if known.ended:
                assert limits["ended"]
            else:
                assert limits == known.limits, connection
        return sent

    def _check_ring(self) -> None:
        """Jobs of the ring, and fates."""
        for job in self.sinks["job"].take_all():
            expected = self.expected_jobs[job["connection"]].popleft()
            assert {name: job[name] for name in expected} == expected
        assert not any(self.expected_jobs.values())
        for fate in self.sinks["fate"].take_all():
            connection, octets, total, kept = self.fpdus.popleft()
            assert fate["octets"] == octets
            assert kept or not fate["sends"]
            self.seen["stored" if fate["sends"] else "waited"] += 1
            if fate["sends"]:
                self.stored.append((connection, octets, total))
        assert not self.fpdus

    def _check_segments(self) -> dict[int, list[dict[str, int]]]:
        sent: dict[int, list[dict[str, int]]] = {each: [] for each in self.references}
        self.order.clear()
        for job in self.sinks["send"].take_all():
            self.order.append(job["connection"])
            kind = SendKind(job["kind"])
            assert (kind is SendKind.NOTHING) == (job["octets"] == 0)
            connection = job["connection"]
            if kind is SendKind.STORE:
                assert (connection, job["octets"], job["sum"]) == self.stored.popleft()
            assert job["needed"] or (job["blocks"] and job["flags"] == int(Flags.ACK))
            self.needed = bool(job["needed"])
            length = job["octets"] + bool(job["flags"] & Flags.FIN)
            was = self.sent_up_to[connection]
            assert job["again"] == (length != 0 and job["sequence"] != was)
            if length and (job["sequence"] + length - was) % SPACE < SPACE >> 1:
                self.sent_up_to[connection] = (job["sequence"] + length) % SPACE
            names = ("sequence", "octets", "flags", "blocks")
            sent[connection].append({name: job[name] for name in names})
        assert not self.stored
        for connection, known in self.references.items():
            expected = [expected_job(segment) for segment in known.output]
            known.output.clear()
            assert sent[connection] == expected, connection
            self.seen["segments"] += len(expected)
        return sent
