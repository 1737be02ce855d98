"""The receiving side between a wire, a memory and a device that reads what it is told of.

Frames come at the rate of the wire. The reference TCP gets each one that the counters do not say
to be FULL, and says what has to come out.
"""

from collections import Counter, deque
from dataclasses import replace
from ipaddress import IPv4Address
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import RAW_WORD, FrameFate
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.tcp.layouts import (
    LIMITS,
    Due,
    ReceiveOperation,
    ack_event,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    sender_event,
    settled_layout,
)
from stagecoach.gateware.tcp.lookup import SECRET_BITS, lookup_command, lookup_result
from stagecoach.gateware.tcp.places import RECEIVE_PLACES
from stagecoach.hw.interface.llp import LlpEventKind
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet
from tests.tcp.asked_ranges import asked_ranges
from tests.tcp.frames import MAC, fate_of
from tests.tcp.place_counts import PlaceCounts
from tests.tcp.read_memory import Memory as ReadMemory
from tests.tcp.receive_reference import SPACE, Reference
from tests.tcp.received_connection import LOCAL, Connection
from tests.tcp.wire import Wire
from tests.tcp.write_port import WritePort

SHIFT, RING = 2, 1 << 17
HEADERS = 14 + 40
COUNTED = 12
"""Cycles from the last octets of a frame at `rx` to its fate at `value`."""

QUIET = 40
"""Cycles after which something that is worked on would have been seen."""

CHUNK = 2048
SLOTS_CLEARED = 1 << 12


class Bench:
    """All of it. `fates` counts frames; what is expected is appended when a fate is known."""

    def __init__(self, dut: Any, rng: Random, config: RnicConfig, mtu: int) -> None:
        self.dut, self.rng, self.config, self.mtu = dut, rng, config, mtu
        bits, mpa = config.qp_bits, MpaLayouts(config)
        self.write = WritePort(dut, rng)
        self.read = ReadMemory(dut, rng, "bursty", self.write.memory.read)
        options: dict[str, Any] = {"rng": rng, "pattern": "random"}
        self.lookups = StreamSource(dut, "lookup", lookup_command(bits))
        self.lookups_done = StreamSink(dut, "lookup_done", lookup_result(bits), **options)
        self.placed = StreamSource(dut, "placed", received_segment(bits))
        self.commands = StreamSource(dut, "command", receive_command(bits))
        self.releases = StreamSource(dut, "release", release_layout(bits))
        self.asks = StreamSource(dut, "ask")
        self.senders = StreamSource(dut, "sender", sender_event(bits))
        self.attachments = StreamSource(dut, "attachment", attachment_layout(bits))
        self.requests = StreamSource(dut, "llp_request", mpa.rx_request)
        self.llp_releases = StreamSource(dut, "llp_release", mpa.rx_release)
        self.events = StreamSink(dut, "event", ack_event(bits), **options)
        self.notes = StreamSink(dut, "note", settled_layout(bits), **options)
        self.raw = StreamSink(dut, "raw", RAW_WORD, rng=rng, pattern="bursty")
        self.llp_events = StreamSink(dut, "llp_event", Layouts(config).llp_event, **options)
        self.answers = StreamSink(dut, "llp_answer", rng=rng, pattern="bursty")
        self.failed = StreamSink(dut, "failed")
        self.places = PlaceCounts(dut, RECEIVE_PLACES)
        self._urgent = reader(dut.urgent)
        every_cycle(dut, self._count)
        for name in ("event", "note", "raw", "llp_event", "llp_answer", "lookup_done"):
            StreamMonitor(dut, name, keep=False)
        self.connections: dict[int, Connection] = {}
        self.lanes: dict[int, Connection] = {}
        self.medium = Wire(dut, rng)
        self.wire, self.judged = self.medium.frames, self.medium.ended
        self.failing: set[int] = set()  # connections whose octets memory refuses
        self.fates: Counter[FrameFate] = Counter()
        self.urgent = self.expected_urgent = 0
        self.expected_events: deque[dict[str, Any]] = deque()
        self.expected_notes: deque[dict[str, Any]] = deque()
        self.expected_said: dict[int, deque[tuple[LlpEventKind, int]]] = {}
        self.expected_answers: deque[tuple[Connection, int, int]] = deque()
        self.driver: deque[bytes] = deque()
        self._moved = 0  # cycle in which something came out
        self._full = 0
        dut.mac.value = int.from_bytes(MAC, "little")
        dut.secret.value = rng.getrandbits(SECRET_BITS)
        dut.fate_read.value = FrameFate.FULL.value
        for name in ("limits_write", "connection_read"):
            getattr(dut, name).value = 0

    async def start(self) -> None:
        await start_clock_and_reset(self.dut)
        for task in (self.medium.run, self._judge, self._check, self._device, self._answered):
            cocotb.start_soon(task())
        await self.cycles(SLOTS_CLEARED)

    def _count(self, in_reset: bool) -> None:
        if not in_reset:
            self.urgent += self._urgent()

    @property
    def cycle(self) -> int:
        return self.medium.cycle

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    # What becomes of frames.

    async def _judge(self) -> None:
        """When a frame was counted it is known whether there was room."""
        while True:
            await RisingEdge(self.dut.clk)
            if not self.judged or self.judged[0][0] + COUNTED > self.cycle:
                continue
            _, frame = self.judged.popleft()
            full = int(self.dut.value.value)
            self._arrives(frame, is_full=full != self._full)
            self._full = full

    def _arrives(self, frame: bytes, *, is_full: bool) -> None:
        fate = fate_of(frame, self.mtu)
        if is_full:
            assert fate in (FrameFate.SEGMENT, FrameFate.RAW)
            fate = FrameFate.FULL
        self.fates[fate] += 1
        if fate is FrameFate.RAW:
            self.driver.append(frame)
        if fate is not FrameFate.SEGMENT:
            return
        packet, segment = decode_packet(frame[14:])
        ends = packet.source, (segment.source_port, segment.destination_port)
        for number, each in self.connections.items():
            if each.found and packet.destination == LOCAL and (each.remote, each.ports) == ends:
                self.expected_urgent += Flags.URG in segment.flags
                if each.ended:
                    break
                self.arrives(number, segment)
                return
        self.driver.append(frame)

    def arrives(self, number: int, segment: Segment) -> None:
        """The reference says what a segment does."""
        connection = self.connections[number]
        if connection.dead:
            return
        done = connection.known.arrives(segment)
        if done["event"]:
            self.expected_events.append({"connection": number, **done["event"]})
            connection.dead = bool(done["event"]["reset"] or done["event"]["lost"])
        self.expect(number, done)

    def expect(self, number: int, done: dict[str, Any]) -> None:
        """A note, if there is one, and what the device is told because of it."""
        note, connection = done["note"], self.connections[number]
        if note is None:
            return
        failed = int(number in self.failing)
        self.expected_notes.append({"failed": failed, "note": {"connection": number, **note}})
        if failed:
            self.close(connection)
            return
        available = (note["number"] - note["fin"]) % SPACE
        if available != connection.settled:
            connection.settled = available
            self.say(connection)
        if note["fin"]:
            self.close(connection)

    def say(self, connection: Connection) -> None:
        if connection.lane is not None and not connection.closed:
            base = connection.known.number(connection.base)
            value = (connection.settled - base) % SPACE
            self.expected_said[connection.lane].append((LlpEventKind.RX_AVAILABLE, value))

    def close(self, connection: Connection) -> None:
        if connection.lane is not None and not connection.closed:
            self.expected_said[connection.lane].append((LlpEventKind.CLOSED, 0))
        connection.closed = True

    # What comes out.

    async def _check(self) -> None:
        """Each in its order."""
        while True:
            await RisingEdge(self.dut.clk)
            for event in self.events.take_all():
                assert event == self.expected_events.popleft()
                self._moved = self.cycle
            for said in self.notes.take_all():
                assert said == self.expected_notes.popleft()
                self._moved = self.cycle
            if len(self.raw):
                beats = await self.raw.get_until("last")
                parts = [each["data"].to_bytes(8, "little")[: each["octets"]] for each in beats]
                assert b"".join(parts) == self.driver.popleft()
                self._moved = self.cycle

    async def _device(self) -> None:
        """Asks for all that it is told of, in pieces of any size."""
        rng = self.rng
        while True:
            event = await self.llp_events.get()
            self._moved = self.cycle
            lane, kind = event["connection"], LlpEventKind(event["kind"])
            expected, value = self.expected_said[lane].popleft()
            assert kind is expected
            if kind is LlpEventKind.CLOSED:
                continue
            assert event["value"] == value
            connection = self.lanes[lane]
            end = connection.base + value
            while connection.asked < end:
                octets = min(rng.randint(1, CHUNK), end - connection.asked)
                position = connection.asked - connection.base
                self.requests.put({"connection": lane, "position": position, "octets": octets})
                self.expected_answers.append((connection, connection.asked, octets))
                connection.asked += octets

    async def _answered(self) -> None:
        """Answers are the octets of the stream."""
        while True:
            words = [await self.answers.get()]
            connection, position, octets = self.expected_answers[0]
            while len(words) < -(-octets // 8):
                words.append(await self.answers.get())
            found = b"".join(word.to_bytes(8, "little") for word in words)[:octets]
            assert found == connection.known.octets(position, octets)
            self.expected_answers.popleft()
            connection.read += octets
            self._moved = self.cycle

    async def quiet(self) -> None:
        """All that had to come has come, and nothing else does."""
        sources = (self.placed, self.commands, self.releases, self.llp_releases, self.asks)
        sources += (self.senders, self.attachments, self.requests)
        while (
            self.wire
            or self.medium.sends
            or self.judged
            or self.expected_events
            or self.expected_notes
            or self.driver
            or any(self.expected_said.values())
            or self.expected_answers
            or any(source.pending for source in sources)
        ):
            self._moved = max(self._moved, self.cycle - QUIET)
            await RisingEdge(self.dut.clk)
        await self.cycles(QUIET)
        assert self._moved < self.cycle - QUIET + 1
        for connection in self.connections.values():
            if connection.lane is not None and not connection.dead:
                assert connection.read == connection.end

    async def check_rest(self) -> None:
        """The counts are those of the frames; nothing is offered."""
        await self.quiet()
        self.places.check_rest()
        assert self.urgent == self.expected_urgent
        for fate in FrameFate:
            self.dut.fate_read.value = fate.value
            await self.cycles(3)
            assert int(self.dut.value.value) == self.fates[fate], fate
        self.dut.fate_read.value = FrameFate.FULL.value
        await self.cycles(3)
        offers = ("event", "note", "raw", "llp_event", "llp_answer", "lookup_done", "failed")
        for name in (*offers, "write__command", "write__data", "read__command"):
            assert not getattr(self.dut, f"{name}__valid").value, name

    # Commands.

    async def insert(self, number: int, connection: Connection) -> bool:
        """The lookup knows its ends from now on, if it has room."""
        await self.lookups.send({"connection": number, "key": connection.key})
        return bool((await self.lookups_done.get())["found"])

    async def delete(self, number: int) -> None:
        connection = self.connections[number]
        await self.lookups.send({"delete": 1, "key": connection.key})
        assert await self.lookups_done.get() == {"found": 1, "connection": number}
        connection.found = False

    async def write_limits(self, number: int) -> None:
        dut, connection = self.dut, self.connections[number]
        dut.limits_write.value, dut.limits_connection.value = 1, number
        limits = {**connection.known.limits, "ended": int(connection.ended)}
        dut.limits.value = pack(LIMITS, limits)
        await RisingEdge(dut.clk)
        dut.limits_write.value = 0

    async def begin(self, number: int, lane: int | None) -> Connection:
        """A connection with new ends; its stream is attached if there is a lane."""
        rng = self.rng
        known = Reference(
            rng,
            following=rng.choice([rng.getrandbits(32), SPACE - 3000, RING - 3000]),
            window=0xFFFF,
            ring=RING,
            shift=SHIFT,
            mss=self.mtu - 40,
            unacknowledged=rng.getrandbits(32),
        )
        connection = Connection(
            known,
            IPv4Address((192 << 24) + rng.getrandbits(16)),
            (rng.randrange(1, 1 << 16), rng.randrange(1, 1 << 16)),
        )
        connection.settled = known.number(0)
        self.connections[number] = connection
        await self.write_limits(number)
        command = {"operation": ReceiveOperation.BEGIN.value, "connection": number}
        command |= {"next": known.number(0), "edge": (known.number(0) + 0xFFFF) % SPACE}
        self.expect(number, known.note(Due.NONE, begin=True))
        self.commands.put({**command, "shift": SHIFT, "ring": self.ring(number), "size": 0})
        await self.commands.wait_idle()
        while not await self.insert(number, connection):
            connection.ports = rng.randrange(1, 1 << 16), rng.randrange(1, 1 << 16)
        if lane is not None:
            await self.attach(number, lane)
        return connection

    def ring(self, number: int) -> int:
        return number * RING + 0x7F00_0000_0010

    async def attach(self, number: int, lane: int) -> None:
        """The device gets the stream, from the first octet that was not released on."""
        await self.quiet()
        connection = self.connections[number]
        known = connection.known
        self.commands.put({"operation": ReceiveOperation.ATTACH.value, "connection": number})
        await self.commands.wait_idle()
        base = known.number(known.released)
        connection.lane, connection.base = lane, known.released
        connection.asked = connection.read = known.released
        self.lanes[lane] = connection
        self.expected_said[lane] = deque()
        if connection.settled != base:
            value = (connection.settled - base) % SPACE
            self.expected_said[lane].append((LlpEventKind.RX_AVAILABLE, value))
        if connection.closed:
            self.expected_said[lane].append((LlpEventKind.CLOSED, 0))
        given = {"lane": lane, "connection": number, "attached": 1, "base": base}
        await self.attachments.send({**given, "ring": self.ring(number), "size": 0})

    async def end(self, number: int) -> None:
        """The sending side and the driver see that a connection is over, and forget it."""
        await self.quiet()
        connection = self.connections[number]
        connection.ended = True
        await self.write_limits(number)
        await self.senders.send({"connection": number, "kind": LlpEventKind.CLOSED.value})
        self.close(connection)
        await self.quiet()
        if connection.lane is not None:
            await self.attachments.send({"lane": connection.lane, "connection": number})
            del self.lanes[connection.lane]
            connection.lane = None

    async def release(self, number: int) -> None:
        """Some of what was read, or, before it is attached, of what is stored."""
        connection = self.connections[number]
        known = connection.known
        end = connection.end
        if connection.dead or end == known.released:
            return
        count = self.rng.randint(1, end - known.released)
        self.expect(number, known.release(count))
        if connection.lane is None:
            await self.releases.send({"connection": number, "relative": 1, "value": count})
        else:
            position = known.released - connection.base
            await self.llp_releases.send({"connection": connection.lane, "position": position})
        await self.cycles(QUIET)

    async def blocks(self, number: int) -> tuple[tuple[int, int], ...]:
        """Ranges out of order, the last one first."""
        return await asked_ranges(self.dut, self.asks, number)

    # Frames.

    def put(self, number: int, segment: Segment) -> bytes:
        """A frame of a connection, no longer than the MTU."""
        most = self.mtu - 40
        segment = replace(segment, payload=segment.payload[:most])
        frame = self.connections[number].frame(segment)
        self.wire.append(frame)
        return frame

    def in_order(self, number: int, octets: int, position: int | None = None) -> bytes:
        """Data with a true ACK at a position, or where the last frame ended."""
        known = self.connections[number].known
        at = known.receiver.next if position is None else position
        return self.put(number, known.segment_at(at, octets, Flags.ACK)[0])
