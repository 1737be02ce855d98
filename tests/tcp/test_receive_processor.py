"""Each segment does what the reference TCP does with it, and its octets go where they belong."""

from collections import Counter, deque
from itertools import pairwise
from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.tcp.layouts import (
    LIMITS,
    Due,
    ReceiveOperation,
    ack_event,
    receive_command,
    receive_job,
    received_segment,
    release_layout,
)
from stagecoach.gateware.tcp.receive_processor import ACK_EVENTS, ReceiveProcessor
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.segment import Flags, Segment
from tests.support.runner import parameter, run_cocotb
from tests.support.verdicts import Verdicts, each_check, shows, simulate
from tests.tcp.receive_reference import EVENT_WORDS, SPACE, Memory, Reference

SMALLEST, LARGEST = 2, 256
PATTERNS = ("always", "random")
MTU = 1500
PERIOD, LATENCY = 10, 10
HEADER = 54


class Bench:
    """The block, connections of the reference beside it, and rings in memory."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections = int(parameter("CONNECTIONS", str(LARGEST)))
        bits = (self.connections - 1).bit_length()
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.segments = StreamSource(dut, "segment", received_segment(bits), **options)
        self.releases = StreamSource(dut, "release", release_layout(bits), **options)
        self.commands = StreamSource(dut, "command", receive_command(bits), **options)
        self.jobs = StreamSink(dut, "job", receive_job(bits), **options)
        self.events = StreamSink(dut, "event", ack_event(bits), **options)
        StreamMonitor(dut, "job", receive_job(bits), keep=False)
        StreamMonitor(dut, "event", ack_event(bits), keep=False)
        dut.limits_write.value = 0
        self.memory = Memory()
        self.references: dict[int, Reference] = {}
        self.rings: dict[int, int] = {}
        self.bases: dict[int, int] = {}  # position of the LLP's position 0
        self.dead: set[int] = set()
        self.ended: set[int] = set()
        self.expected_jobs: deque[tuple[dict[str, Any], bytes]] = deque()
        self.expected_events: deque[dict[str, Any]] = deque()
        self.seen: Counter[str] = Counter()

    # What is put in, and what has to come of it.

    async def begin(self, connection: int, **fields: Any) -> Reference:
        """A connection begins, on a ring of its own."""
        rng = self.rng
        size = fields.pop("size", None)
        size = rng.choice([0, 0, 1, 13]) if size is None else size
        ring = 1 << 17 + size
        following = rng.choice([rng.getrandbits(32), SPACE - 300, SPACE - ring // 2, ring - 100, 0])
        values = {
            "following": following,
            "window": rng.choice([0, 1, MTU, 65_535]),
            "shift": rng.choice([0, 1, 2, 7, 14]),
            "unacknowledged": rng.choice([rng.getrandbits(32), SPACE - 5]),
            **fields,
        }
        known = Reference(rng, ring=ring, mss=MTU - 40, **values)
        self.references[connection] = known
        self.rings[connection] = (rng.getrandbits(15) << 32 | connection << 3) + 0x1000
        self.bases[connection] = 0
        self.dead.discard(connection)
        self.ended.discard(connection)
        await self.write_limits(connection)
        self.commands.put(
            {
                "operation": ReceiveOperation.BEGIN.value,
                "connection": connection,
                "next": values["following"],
                "edge": (values["following"] + values["window"]) % SPACE,
                "ring": self.rings[connection],
                "size": size,
                "shift": values["shift"],
            }
        )
        self.expect(connection, known.note(Due.NONE, begin=True))
        await self.commands.wait_idle()
        return known

    async def write_limits(self, connection: int) -> None:
        dut = self.dut
        await self.segments.wait_idle()
        limits = {**self.references[connection].limits, "ended": connection in self.ended}
        dut.limits_write.value = 1
        dut.limits_connection.value = connection
        dut.limits.value = pack(LIMITS, limits)
        await RisingEdge(dut.clk)
        dut.limits_write.value = 0
        dut.limits_connection.value = self.rng.randrange(self.connections)
        dut.limits.value = self.rng.getrandbits(LIMITS.size)
        await RisingEdge(dut.clk)

    def expect(
        self, connection: int, done: dict[str, Any], frame: dict[str, Any] | None = None
    ) -> None:
        """A job, if there is one, and an event, if there is one."""
        job: dict[str, Any] = {"frame": 0, "raw": 0, "octets": 0, "settle": 0}
        job |= frame or {}
        if done["note"]:
            job |= {"settle": 1, "note": {"connection": connection, **done["note"]}}
        if job["frame"] or job["settle"]:
            self.expected_jobs.append((job, done.get("octets", b"")))
        if done.get("event"):
            self.expected_events.append({"connection": connection, **done["event"]})

    def put(
        self, connection: int, segment: Segment, position: int, *, placed: bool = False
    ) -> None:
        """A segment of a connection; if it is placed, its octets are in the ring before."""
        known, header = self.references[connection], self.rng.choice([54, 66, 94])
        octets = header + len(segment.payload)
        self.segments.put(
            {
                "found": 1,
                "placed": placed,
                "connection": connection,
                "segment": {
                    "octets": octets,
                    "header": header,
                    "payload": len(segment.payload),
                    "sequence": segment.sequence,
                    "acknowledgment": segment.acknowledgment,
                    "flags": int(segment.flags),
                    "window": segment.window,
                },
            }
        )
        if connection in self.ended:
            raw = {"frame": 1, "raw": 1, "octets": octets}
            self.expect(connection, {"note": None}, raw)
            return
        frame = {"frame": int(not placed), "wrapped": 0}
        if connection in self.dead:
            self.expect(connection, {"note": None}, frame)
            return
        done = known.arrives(segment)
        if done["stored"] and not placed:
            first, end = done["stored"]
            place = known.number(first) % known.ring
            wrapped = max(place + end - first - known.ring, 0)
            self.seen["wrapped"] += wrapped > 0
            frame |= {
                "skip": header + first - position,
                "octets": end - first,
                "wrapped": wrapped,
                "address": self.rings[connection] + place,
                "ring": self.rings[connection],
            }
            done["octets"] = segment.payload[first - position : end - position]
        self.expect(connection, done, frame)
        if done["event"] and (done["event"]["reset"] or done["event"]["lost"]):
            self.dead.add(connection)

    def place(self, connection: int, segment: Segment, position: int) -> None:
        """As the driver does it with a segment that came before."""
        known = self.references[connection]
        for number, value in enumerate(segment.payload, position):
            at = known.number(number) % known.ring
            self.memory.write(self.rings[connection] + at, bytes([value]))

    async def release(self, connection: int, count: int) -> None:
        """The next octets are what the peer sent, still; then they are released."""
        known = self.references[connection]
        await self.check()
        for position in range(known.released, known.released + count, 4096):
            part = min(4096, known.released + count - position)
            place = known.number(position) % known.ring
            before_end = min(part, known.ring - place)
            ring = self.rings[connection]
            found = self.memory.read(ring + place, before_end)
            found += self.memory.read(ring, part - before_end)
            assert found == known.octets(position, part)
        relative = self.rng.getrandbits(1)
        value = count if relative else known.released + count - self.bases[connection]
        self.releases.put({"connection": connection, "relative": relative, "value": value})
        self.expect(connection, known.release(count))
        await self.releases.wait_idle()

    async def tell(self, connection: int, operation: ReceiveOperation) -> None:
        """A command with nothing to say; its other fields mean nothing."""
        await self.segments.wait_idle()
        other = {"next": self.rng.getrandbits(32), "ring": self.rng.getrandbits(48)}
        command = {"operation": operation.value, "connection": connection, **other}
        self.commands.put(command)
        known = self.references[connection]
        self.expect(connection, known.note(Due.NONE))
        if operation is ReceiveOperation.ATTACH:
            self.bases[connection] = known.released
        else:
            known.record.discarding = True
        await self.commands.wait_idle()

    def put_raw(self, found: int, raw: int) -> None:
        """A segment of no connection; the other fields mean nothing."""
        rng = self.rng
        octets = rng.randrange(14, MTU + 14)
        segment = {"raw": raw, "octets": octets, "flags": rng.getrandbits(8)}
        other = {"placed": 0, "connection": rng.choice([*self.references])}
        self.segments.put({"found": found, "segment": segment, **other})
        self.expect(0, {"note": None}, {"frame": 1, "raw": 1, "octets": octets})

    # What comes out.

    async def check(self) -> None:
        """All that was put in has been worked on; what came out is what had to."""
        for source in (self.segments, self.releases, self.commands):
            await source.wait_idle()
        while self.expected_jobs:
            expected, octets = self.expected_jobs.popleft()
            job = await self.jobs.get()
            assert {name: job[name] for name in expected} == expected
            if octets:
                inside = len(octets) - job["wrapped"]
                self.memory.write(job["address"], octets[:inside])
                self.memory.write(job["ring"], octets[inside:])
        while self.expected_events:
            assert await self.events.get() == self.expected_events.popleft()
        await ClockCycles(self.dut.clk, 3 * PERIOD)
        assert not len(self.jobs) and not len(self.events)


async def start(dut: Any) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern), pattern)
    await start_clock_and_reset(dut)
    return bench


async def step(bench: Bench, connection: int) -> None:
    """Something happens to a connection: a few segments, a release, a command."""
    rng, known = bench.rng, bench.references[connection]
    kind = rng.random()
    unread = len(known.receiver.unread)
    if kind < 0.15 and unread:
        await bench.release(connection, rng.choice([unread, rng.randint(1, unread)]))
    elif kind < 0.2:
        known.send()
        await bench.write_limits(connection)
    elif kind < 0.22:
        await bench.tell(connection, ReceiveOperation.ATTACH)
    elif kind < 0.25:
        bench.put_raw(*rng.choice([(0, 0), (0, 1), (1, 1)]))
    elif kind < 0.26 and not unread:
        await bench.tell(connection, ReceiveOperation.DISCARD)
    else:
        segment, position = known.segment()
        end = position + len(segment.payload)
        inside = known.receiver.next <= position and end <= known.receiver._edge
        placed = inside and connection not in bench.ended and rng.random() < 0.05
        if placed:
            await bench.check()
            bench.place(connection, segment, position)
        bench.put(connection, segment, position, placed=placed)


@shows("TCP-MUST-1", "TCP-SHLD-14", "TCP-SHLD-31", "TCP-3.10.7.4-02", "TCP-MAY-12")
@shows("TCPSEC-3.2-01", "TCPSEC-3.2-02", "TCPSEC-3.2-03", "TCPSEC-4.2-01", "TCPSEC-5.2-01")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_segments_do_what_the_reference_does_with_them(dut: Any) -> None:
    """Rounds of connections that begin, receive, and end by FIN, RST or not at all."""
    bench = await start(dut)
    rng = bench.rng
    seen: Counter[str] = Counter()
    for _ in range(10):
        some = {0, bench.connections - 1, rng.randrange(bench.connections)}
        for connection in some:
            await bench.begin(connection)
        for _ in range(140):
            await step(bench, rng.choice(sorted(some)))
        for connection in some:
            await bench.check()
            known = bench.references[connection]
            if connection not in bench.dead and len(known.receiver.unread):
                await bench.release(connection, len(known.receiver.unread))
            seen += known.seen
    seen += bench.seen
    for what in (*EVENT_WORDS, "refused", "cut", "moved", "wrapped", "due NONE", "due LATER"):
        assert seen[what], (what, seen)


@shows("TCP-MUST-66")
@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_window_that_is_full(dut: Any) -> None:
    """Its last octets come in order and out of order; it opens again; then come probes."""
    bench = await start(dut)
    rng = bench.rng
    seen: Counter[str] = Counter()
    for number, shift in enumerate((0, 1, 7, 0)):
        connection = number % 2 * (bench.connections - 1)
        known = await bench.begin(connection, size=0, shift=shift)
        receiver = known.receiver
        # A FIN at the right edge, and after it, is not in the window.
        place = receiver._edge - 10, rng.choice([10, 12])
        bench.put(connection, *known.segment_at(*place, Flags.FIN | Flags.ACK))
        while receiver.window:
            for position in (receiver.next + rng.randrange(100), receiver.next):
                octets = rng.randint(8_000, 16_000)
                bench.put(connection, *known.segment_at(position, octets, Flags.ACK))
        # It opens by one MSS, and not by less.
        least = receiver._edge + MTU - 40 - known.ring
        for count in (least - 1, 1):
            await bench.release(connection, count)
        while receiver.window:
            octets = rng.randint(1, receiver.window)
            bench.put(connection, *known.segment_at(receiver.next, octets, Flags.ACK))
        for _ in range(60):
            position = receiver.next + rng.choice([0, 0, 0, -1, 1])
            bench.put(connection, *known.segment_at(position, rng.choice([0, 1, 100])))
            if connection in bench.dead:
                break
        seen += known.seen
    await bench.check()
    assert seen["acknowledged at a zero window"] > 5, seen


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_fin_that_comes_before_its_data(dut: Any) -> None:
    """It counts when the data is there, which may have no FIN; what is after it never does."""
    bench = await start(dut)
    for first, flags in ((20, Flags.ACK), (25, Flags.ACK), (20, Flags.FIN | Flags.ACK)):
        known = await bench.begin(1, window=65_535)
        bench.put(1, *known.segment_at(20, 0, Flags.FIN | Flags.ACK))
        bench.put(1, *known.segment_at(30, 5, Flags.ACK))
        bench.put(1, *known.segment_at(0, first, flags))
        await bench.check()
        assert known.receiver.fin_taken
        # A FIN somewhere else is another one; and so is data.
        for position in (19, 20, 21, 40):
            bench.put(1, *known.segment_at(position, 5, flags))
    await bench.check()


@shows("TCP-SHLD-3")
@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_whose_frames_go_where(dut: Any) -> None:
    """To the ring; or to the driver, if they are of nobody or of a connection that has ended."""
    bench = await start(dut)
    last = bench.connections - 1
    for connection in (0, last):
        await bench.begin(connection)
    known = bench.references[last]
    for how in ("reset", "lost", "ended"):
        if how == "lost":
            await bench.tell(last, ReceiveOperation.DISCARD)
        flags = Flags.RST if how == "reset" else Flags.ACK
        bench.put(last, *known.segment_at(known.receiver.next, 10, flags))
        assert (last in bench.dead) == (how != "ended")
        # Dropped, until the sending side knows; others go on.
        for connection in (last, 0, last):
            bench.put(connection, *bench.references[connection].segment_at(0, 10))
        await bench.check()
        bench.ended.add(last)
        await bench.write_limits(last)
        for connection in (0, last, last, 0, last):
            other = bench.references[connection]
            bench.put(connection, *other.segment_at(other.receiver.next, 10, Flags.ACK))
            bench.put_raw(found=0, raw=0)
            bench.put_raw(found=0, raw=1)
        await bench.check()
        known = await bench.begin(last)
        bench.put(last, *known.segment_at(0, 10))
        await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_is_not_taken_holds_up_and_loses_nothing(dut: Any) -> None:
    bench = await start(dut)
    known = await bench.begin(0)
    await bench.check()
    for sink in (bench.jobs, bench.events):
        sink.paused = True
        await ClockCycles(dut.clk, 2)
        for _ in range(2 * ACK_EVENTS):
            bench.put(0, *known.segment_at(known.receiver.next, 10, Flags.ACK))
        await ClockCycles(dut.clk, 3 * ACK_EVENTS * PERIOD)
        # One job waits at the port, and one before it; so do the events.
        taken = 2 * ACK_EVENTS - bench.segments.pending
        assert taken == (1 if sink is bench.jobs else ACK_EVENTS)
        sink.paused = False
        await bench.check()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_rate_latency_and_turns(dut: Any) -> None:
    """Segments and releases take turns; a command comes first."""
    bench = await start(dut)
    for end in (bench.segments, bench.releases, bench.commands, bench.jobs, bench.events):
        end.set_pattern("always")
    known = await bench.begin(1, size=0, window=65_535, shift=7)
    await bench.check()
    for _ in range(12):
        bench.put(1, *known.segment_at(known.receiver.next, 10))
    cycle, jobs, taken, ready = 0, [], [], []
    while len(jobs) < 12:
        await RisingEdge(dut.clk)
        cycle += 1
        taken += [cycle] * int(dut.segment__valid.value and dut.segment__ready.value)
        jobs += [cycle] * int(dut.job__valid.value and dut.job__ready.value)
        ready += [cycle] * int(dut.ask__ready.value)
    # It is at the port for the first time in the second cycle.
    assert jobs[0] == 2 + LATENCY
    assert {after - before for before, after in pairwise(jobs)} == {PERIOD}
    # Once in each segment three cycles follow in which no row is read, nor written.
    assert sum(jobs[0] <= each < jobs[-1] for each in ready) == len(jobs) - 1
    await bench.check()

    for number in range(6):
        bench.put(1, *known.segment_at(known.receiver.next, 10))
        bench.releases.put({"connection": 1, "relative": 1, "value": 20})
        if number == 3:
            bench.commands.put({"operation": ReceiveOperation.ATTACH.value, "connection": 0})
    order = ""
    while len(order) < 13:
        await RisingEdge(dut.clk)
        for name in ("segment", "release", "command"):
            if getattr(dut, f"{name}__valid").value and getattr(dut, f"{name}__ready").value:
                order += name[0]
    assert order in ("csrsrsrsrsrsr", "crsrsrsrsrsrs"), order


@pytest.fixture(scope="module", params=PATTERNS)
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    block = ReceiveProcessor(LARGEST)
    return simulate(tmp_path_factory, block, __name__, request.param, PATTERNS)


@each_check(globals())
def test_receive_processor(check: str, verdicts: Verdicts) -> None:
    verdicts.require(check)


def test_receive_processor_of_the_smallest_size() -> None:
    run_cocotb(
        ReceiveProcessor(SMALLEST),
        __name__,
        test_filter="check_whose",
        parameters={"PATTERN": "random", "CONNECTIONS": str(SMALLEST)},
    )


@pytest.mark.parametrize(("connections", "mtu"), [(1, 1500), (257, 1500), (64, 575), (64, 16384)])
def test_sizes_that_are_not_allowed(connections: int, mtu: int) -> None:
    with pytest.raises(ValueError, match="allowed"):
        ReceiveProcessor(connections, mtu)
