"""The sending side with memory, an LLP that may send what it was granted, and what leaves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.ethernet.layouts import FRAME_BEAT
from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.tcp.layouts import (
    DEADLINE,
    LIMITS,
    TRANSMIT_SETTINGS,
    Due,
    NoticeKind,
    TransmitOperation,
    ack_event,
    attachment_layout,
    notice_layout,
    sender_event,
    settled_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.places import TRANSMIT_PLACES
from stagecoach.gateware.tcp.settle import SETTLED
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.tcp.congestion import initial_window
from stagecoach.sim.model.tcp.rto import RetransmissionTimeout
from stagecoach.sim.model.tcp.segment import Segment, decode_packet
from tests.support.runner import parameter
from tests.tcp.place_counts import PlaceCounts
from tests.tcp.read_memory import Memory as ReadPort
from tests.tcp.receive_reference import LOCAL, SPACE
from tests.tcp.sent_frames import Connection, octets_of
from tests.tcp.write_port import WritePort

SMALLEST, LARGEST = (2, 576), (256, 1500)
"""Connections, and MTU."""

RING = 1 << 17
OUR_WINDOW = 0xFFFF
DELAYED_ACK_US = 40_000
FIRST_PORT = 1000
"""Of the peers: connection n has the n-th one from here on."""


@dataclass
class Flow:
    """A connection: what was queued, and what the block said. Positions are octets of its stream.

    number: of position 0. window: of the peer, that came with the handshake. told: right edge that
    the peer's ACKs gave. starts: where an FPDU begins, or a segment of the driver's octets; ends
    alike. granted, emss: as said to the LLP. cut: windows may end in an FPDU. earlier: numbers that
    could be acknowledged before.
    """

    number: int
    ends_of: Connection
    window: int
    shift: int
    smss: int
    lane: int
    stream: bytearray = field(default_factory=bytearray)
    starts: set[int] = field(default_factory=lambda: {0})
    told: int = 0
    acked: int = 0
    written: int = 0
    base: int = 0
    granted: int = 0
    emss: int = 0
    cut: bool = False
    earlier: set[int] = field(default_factory=set)
    closing: bool = False
    peer_fin: bool = False
    said: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)

    @property
    def allowed(self) -> int:
        """Octets that the LLP may send."""
        return self.granted - len(self.stream)

    def position(self, number: int) -> int:
        return (number - self.number) % SPACE


class Bench:
    """Ports of the block; each segment that leaves is looked at, and handed to `sent`."""

    def __init__(self, dut: Any, rng: Random, pattern: str) -> None:
        self.dut, self.rng = dut, rng
        self.connections, mtu = (int(part) for part in parameter("SIZES", "256 1500").split())
        self.mss = mtu - 40
        config = RnicConfig(qps=self.connections)
        self.bits = bits = config.qp_bits
        options: dict[str, Any] = {"rng": rng, "pattern": pattern}
        self.tx = StreamSource(dut, "tx", MpaLayouts(config).tx, **options)
        self.acks = StreamSource(dut, "ack", ack_event(bits), **options)
        self.notes = StreamSource(dut, "note", settled_layout(bits), **options)
        self.commands = StreamSource(dut, "command", transmit_command(bits), **options)
        self.failed = StreamSource(dut, "failed", **options)
        self.sources = (self.tx, self.acks, self.notes, self.commands, self.failed)
        self.frames = StreamSink(dut, "frame", FRAME_BEAT, **options)
        self.said = StreamSink(dut, "said", sender_event(bits), **options)
        self.notices = StreamSink(dut, "notice", notice_layout(bits), **options)
        self.asks = StreamSink(dut, "ask", **options)
        outputs = ("frame", "said", "notice", "ask", "write__command", "read__command")
        for name in (*outputs, "write__data"):
            StreamMonitor(dut, name, keep=False)
        self.write = WritePort(dut, rng)
        self.write.watch = self._written
        self.read = ReadPort(dut, rng, pattern, self.write.memory.read)
        self.places = PlaceCounts(dut, TRANSMIT_PLACES)
        self.flows: dict[int, Flow] = {}
        self.limits: dict[int, Any] = {}
        self.sent: Callable[[int, Segment], None] = lambda *_: None
        self.now = 0
        self.frame_count = 0
        self.cycle = self.active = 0  # the last one in which something happened
        for name in ("attach", "header_write", "settled", "ranges"):
            getattr(dut, name).value = 0
        dut.time.value = 0
        self._asked = reader(dut.connection_read)
        self._writes_limits = reader(dut.limits_write)
        self._handshakes = [
            (reader(getattr(dut, f"{name}__valid")), reader(getattr(dut, f"{name}__ready")))
            for name in outputs
        ]

    async def start(self, now: int = 0, **settings: int) -> None:
        known = {"rto_minimum": 1000, "rto_maximum": 60_000_000, "r2": 100_000_000}
        known |= {"delayed_ack": DELAYED_ACK_US}
        self.dut.settings.value = pack(TRANSMIT_SETTINGS, known | settings)
        self.advance(now)
        await start_clock_and_reset(self.dut)
        every_cycle(self.dut, self._step)
        cocotb.start_soon(self._take_frames())
        cocotb.start_soon(self._take_said())
        cocotb.start_soon(self._take_notices())

    def advance(self, microseconds: int) -> None:
        self.now += microseconds
        self.dut.time.value = self.now % SPACE

    def _step(self, in_reset: bool) -> None:
        dut = self.dut
        self.cycle += 1
        flow = self.flows.get(self._asked())
        dut.settled.value = self._settled(flow) if flow else self.rng.getrandbits(SETTLED.size)
        if self._writes_limits():
            self.limits[int(dut.limits_connection.value)] = unpack(LIMITS, dut.limits.value)
        if self.is_busy or any(valid() and ready() for valid, ready in self._handshakes):
            self.active = self.cycle

    @property
    def is_busy(self) -> bool:
        """Something was not taken yet, or memory did not answer."""
        waits = any(source.pending for source in self.sources)
        return waits or self.write.waiting > 0 or self.read.words.pending > 0

    @staticmethod
    def _settled(flow: Flow) -> int:
        known = flow.ends_of
        number = (known.number + flow.peer_fin) % SPACE
        edge = (known.number + known.window) % SPACE
        return pack(SETTLED, number=number, edge=edge, fin=flow.peer_fin)

    async def rest(self, quiet: int = 0) -> None:
        """Wait until nothing happens, for longer than the timers sweep."""
        quiet = quiet or 200 + self.connections
        begin = self.cycle
        while self.cycle - max(self.active, begin) < quiet:
            await RisingEdge(self.dut.clk)

    @property
    def deadline(self) -> int | None:
        """Microseconds to the earliest one that is known, 0 if it has come; None: there is none."""
        known = unpack(DEADLINE, self.dut.earliest.value)
        waits = (known["at"] - self.now) % SPACE
        return (waits if waits < SPACE // 2 else 0) if known["armed"] else None

    async def jump(self) -> int:
        """To the next deadline of which something leaves, if any does; how long that was."""
        begin, frames = self.now, self.frame_count
        while self.deadline is not None and self.frame_count == frames:
            self.advance(self.deadline)
            await self.rest()
        return self.now - begin

    async def silent(self) -> None:
        """What is under way leaves; then no deadline is left, and nothing leaves."""
        await self.rest()
        await self.jump()
        self.places.check_rest()
        assert self.deadline is None
        active, frames = self.active, self.frame_count
        self.advance(1 << 29)
        await self.rest()
        assert (self.active, self.frame_count) == (active, frames)

    # Connections.

    def ring(self, connection: int) -> int:
        return 0x7F00_0000_0010 + 2 * RING * connection

    async def begin(
        self,
        connection: int,
        number: int,
        *,
        window: int = 0xFFFF,
        shift: int = 0,
        smss: int = 0,
        round_trip: int = 1000,
        attach: bool = True,
    ) -> Flow:
        """A connection after its handshake, with a lane of its own."""
        rng, dut, smss = self.rng, self.dut, smss or self.mss
        remote = IPv4Address("192.0.2.1"), FIRST_PORT + connection
        ends_of = Connection(
            *(rng.randbytes(6), rng.randbytes(6), LOCAL, remote),
            *(rng.randrange(64), rng.randint(1, 255), 0, rng.getrandbits(32), OUR_WINDOW, []),
        )
        flow = Flow(number, ends_of, window, shift, smss, self.connections - 1 - connection)
        flow.told = window
        self.flows[connection] = flow
        for row, word in ends_of.rows().items():
            dut.header_write.value, dut.header_connection.value = 1, connection
            dut.header_row.value, dut.header_word.value = row.value, word
            await RisingEdge(dut.clk)
        dut.header_write.value = 0
        rto = RetransmissionTimeout(minimum=1000)
        rto.sample(round_trip)
        assert rto.srtt8 is not None
        self.command(
            connection,
            TransmitOperation.BEGIN,
            number=number,
            window=window,
            window_from=ends_of.number,
            edge=(ends_of.number + OUR_WINDOW) % SPACE,
            announced=(ends_of.number + OUR_WINDOW) % SPACE,
            cwnd=initial_window(smss),
            rto={
                "sampled": 1,
                "srtt8": rto.srtt8,
                "rttvar4": rto.rttvar4,
                "timeout": rto.microseconds,
            },
            ring=self.ring(connection),
            size=0,
            shift=shift,
            emss=smss,
        )
        if attach:
            await self.attach(connection)
        return flow

    async def attach(self, connection: int) -> None:
        """The LLP sends from now on."""
        dut, flow = self.dut, self.flows[connection]
        fields = {"lane": flow.lane, "attached": 1, "connection": connection}
        dut.attachment.value = pack(attachment_layout(self.bits), fields)
        dut.attach.value = 1
        await RisingEdge(dut.clk)
        dut.attach.value = 0
        flow.base = len(flow.stream)
        told = len(flow.said)
        self.command(connection, TransmitOperation.ATTACH)
        while flow.said[told:] != ["EMSS", "TX_WINDOW"]:
            await RisingEdge(dut.clk)

    def command(self, connection: int, operation: TransmitOperation, **fields: Any) -> None:
        self.commands.put({"operation": operation.value, "connection": connection, **fields})

    # What is sent.

    def fpdu(self, connection: int, octets: int, *, close: bool = False) -> None:
        """Of the LLP; lanes after it mean nothing."""
        flow, rng = self.flows[connection], self.rng
        assert octets <= min(flow.emss, flow.allowed) or flow.notices
        fpdu = rng.randbytes(octets)
        for at in range(0, max(octets, 1), 8):
            part = fpdu[at : at + 8]
            word = part + rng.randbytes(8 - len(part))
            beat = {"connection": flow.lane, "data": int.from_bytes(word, "little")}
            beat |= {"octets": len(part), "first": at == 0, "last": at + 8 >= octets}
            self.tx.put(beat | {"close": close and beat["last"]})
        flow.stream += fpdu
        flow.starts.add(len(flow.stream))
        flow.closing |= close

    def octets(self, connection: int, octets: int) -> None:
        """Of the driver, which writes them to the ring itself."""
        flow = self.flows[connection]
        written = self.rng.randbytes(octets)
        place = (flow.number + len(flow.stream)) % RING
        inside = min(octets, RING - place)
        ring, memory = self.ring(connection), self.write.memory
        memory.write(ring + place, written[:inside])
        memory.write(ring, written[inside:])
        begin = len(flow.stream)
        flow.stream += written
        flow.written = len(flow.stream)
        flow.starts |= {*range(begin, len(flow.stream), flow.smss), len(flow.stream)}
        self.command(connection, TransmitOperation.SEND, octets=octets)

    def _written(self, address: int, octets: bytes) -> None:
        """Those of the next FPDU of a ring, and of none that is not acknowledged."""
        connection = (address - self.ring(0)) // (2 * RING)
        flow = self.flows[connection]
        place = (flow.number + flow.written) % RING
        assert address == self.ring(connection) + place, "not where it belongs"
        assert place + len(octets) <= RING, "after the end of the ring"
        following = flow.written + len(octets)
        assert octets == flow.stream[flow.written : following]
        assert following - RING <= flow.acked, "it was not acknowledged"
        flow.written = following

    # What happens to it.

    def acknowledge(self, connection: int, position: int, window: int) -> None:
        """By a segment without data; the window field is as on the wire."""
        self.put_ack(connection, position, window, self.flows[connection].ends_of.number)

    def put_ack(
        self, connection: int, position: int, window: int, sequence: int, **fields: int
    ) -> None:
        flow = self.flows[connection]
        flow.acked = max(flow.acked, min(position, len(flow.stream)))
        flow.told = max(flow.told, position + (window << flow.shift))
        event = {"connection": connection, "acknowledges": 1, "sequence": sequence}
        event |= {"acknowledgment": (flow.number + position) % SPACE, "window": window}
        self.acks.put({**event, "empty": 1, **fields})

    def put_fin(self, connection: int) -> None:
        """The peer's."""
        self.flows[connection].peer_fin = True
        self.put_note(connection, Due.NOW)

    def put_data(self, connection: int, octets: int = 100) -> None:
        """Of the peer, in order."""
        flow = self.flows[connection]
        known = flow.ends_of
        flow.earlier.add(known.number)
        known.number, known.window = (known.number + octets) % SPACE, known.window - octets
        self.put_note(connection, Due.LATER)

    def put_note(self, connection: int, due: Due) -> None:
        """Of `Settle`."""
        flow = self.flows[connection]
        known, fin = flow.ends_of, int(flow.peer_fin)
        note = {"connection": connection, "number": (known.number + fin) % SPACE, "fin": fin}
        note |= {"edge": (known.number + known.window) % SPACE, "due": due.value}
        self.notes.put({"failed": 0, "note": note})

    # What it says.

    async def _take_frames(self) -> None:
        while True:
            frame = octets_of(await self.frames.get_until())
            self.frame_count += 1
            _, segment = decode_packet(frame[14:])
            connection = segment.destination_port - FIRST_PORT
            self.flows[connection].frames.append(frame)
            self._judge(self.flows[connection], segment)
            self.sent(connection, segment)

    def _judge(self, flow: Flow, segment: Segment) -> None:
        """What has to be so of every segment."""
        flow.segments.append(segment)
        assert segment.source_port == LOCAL[1]
        known = flow.ends_of
        numbers = {known.number, (known.number + flow.peer_fin) % SPACE, *flow.earlier}
        assert segment.acknowledgment in numbers
        count = len(segment.payload)
        if not segment.length:
            return
        begin = flow.position(segment.sequence)
        end = begin + count
        assert end <= len(flow.stream), "never queued"
        assert segment.payload == flow.stream[begin:end]
        assert count <= flow.smss
        probes = segment.length == 1 and begin == flow.told
        assert begin + segment.length <= flow.told or probes, "after the peer's window"
        if not flow.cut:
            assert {begin, end} <= flow.starts, "an FPDU is cut"

    async def _take_said(self) -> None:
        while True:
            said = await self.said.get()
            flow, kind = self.flows[said["connection"]], LlpEventKind(said["kind"])
            flow.said.append(kind.name)
            if kind is LlpEventKind.TX_WINDOW:
                granted = flow.base + said["value"]
                assert flow.granted < granted <= flow.acked + RING
                flow.granted = granted
            elif kind is LlpEventKind.EMSS:
                flow.emss = said["value"]

    async def _take_notices(self) -> None:
        while True:
            notice = await self.notices.get()
            flow = self.flows[notice["connection"]]
            flow.notices.append(NoticeKind(notice["kind"]).name)


async def start(dut: Any, now: int = 0, **settings: int) -> Bench:
    pattern = parameter("PATTERN")
    bench = Bench(dut, seeded_random(pattern, parameter("SIZES", "")), pattern)
    await bench.start(now, **settings)
    return bench
