"""The engine between a wire with peers of the reference TCP, memory, a device and a driver.

Commands come by the ports, in the order that docs/tcp-engine.md gives.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import IPv4Address
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import LlpEventKind
from stagecoach.gateware.tcp.layouts import (
    DEADLINE,
    TRANSMIT_SETTINGS,
    ReceiveOperation,
    TransmitOperation,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.lookup import SECRET_BITS, lookup_command, lookup_result
from stagecoach.hw.interface.network_entries import (
    CONNECTION_INFO,
    NetworkFlags,
    NetworkKind,
)
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.congestion import initial_window
from stagecoach.sim.model.tcp.connection import Connection as Peer
from stagecoach.sim.model.tcp.rto import RetransmissionTimeout
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Settings, State
from tests.support.runner import parameter
from tests.tcp.engine_host import Axi, Device, Driver, StrictMemory
from tests.tcp.frames import ARP, IPV4, MAC, PEER
from tests.tcp.receive_reference import LOCAL, SPACE
from tests.tcp.sent_frames import Connection as Ends
from tests.tcp.wire import Wire

RING = 1 << 17
WINDOW, SHIFT = 0xFFFF, 2
"""Of ours, when the engine gets a connection."""

INFO_CYCLES = 4
"""From the number of a word to the word, and one to see it."""

COUNTS = 3
"""Words of INFO that are counts, the last ones."""

CYCLES_OF_US = 16
QUIET_CYCLES = 150
LONGEST_DELAY_US = 20
SLOTS_CLEARED = 1 << 12


@dataclass
class Flow:
    """A connection: its peer, its rings, and what was sent and received.

    said, heard: octets that the peer has sent, and received. sent: octets of ours, of the driver
    and of the device. read: octets of the peer that the driver has read. bases: of those and of
    `sent`, how many there were when the device got the stream. ended: what the driver was told.
    segments: what the wire carried, by the names of CONNECTION_INFO; counted: what the engine had
    counted of the number before. sent_up_to: number after all that has left.
    """

    number: int
    ends: Ends
    peer: Peer
    first: int  # number of our first octet
    receive_ring: bytearray
    send_ring: bytearray
    receive_address: int
    send_address: int
    smss: int
    said: bytearray = field(default_factory=bytearray)  # by the peer
    sent: bytearray = field(default_factory=bytearray)
    heard: bytearray = field(default_factory=bytearray)  # by the peer
    read: bytearray = field(default_factory=bytearray)
    lane: int | None = None
    bases: tuple[int, int] = (0, 0)
    ended: str = ""
    fin: bool = False
    suspected: int = 0
    inserted: bool = False
    segments: Counter[str] = field(default_factory=Counter)
    counted: dict[str, int] = field(default_factory=dict)
    sent_up_to: int = 0

    @property
    def key(self) -> dict[str, int]:
        (local, local_port), (remote, remote_port) = self.ends.local, self.ends.remote
        ends = {"local": int(local), "remote": int(remote)}
        return {**ends, "local_port": local_port, "remote_port": remote_port}

    @property
    def their_first(self) -> int:
        return self.ends.number


class Bench:
    """All of it. `lost` is the share of frames that the wire loses; it delays all, by any time."""

    def __init__(self, dut: Any, rng: Random, config: RnicConfig, mtu: int) -> None:
        self.dut, self.rng, self.mtu = dut, rng, mtu
        self.connections, self.bits = config.qps, config.qp_bits
        bits = self.bits
        self.memory = StrictMemory()
        self.axi = Axi(
            dut, "t_axi", dut.clk, self.memory, read_latency=100, write_latency=40, rng=rng
        )
        self.commands = StreamSource(dut, "receive_command", receive_command(bits))
        self.send_commands = StreamSource(dut, "transmit_command", transmit_command(bits))
        self.lookups = StreamSource(dut, "lookup", lookup_command(bits))
        self.lookups_done = StreamSink(dut, "lookup_done", lookup_result(bits))
        self.placed = StreamSource(dut, "placed", received_segment(bits))
        self.releases = StreamSource(dut, "release", release_layout(bits))
        self.attachments = StreamSource(dut, "attachment", attachment_layout(bits))
        self.device = Device(dut, rng)
        self.driver = Driver(dut, rng, self.memory, mtu)
        self.driver.heard = self._told
        self.wire = Wire(dut, rng)
        self.flows: dict[int, Flow] = {}
        self.ends: dict[tuple[IPv4Address, int], Flow] = {}  # by those of peers
        self.seen: Counter[str] = Counter()
        self.raw: list[bytes] = []  # frames of the driver that left
        self.arp: list[bytes] = []  # those that came, and are no TCP
        self.lost = 0.0
        self.takes = True  # the MAC does
        self.now = self.cycle = self.active = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = self._port = 0
        self._frame = bytearray()
        dut.mac.value = int.from_bytes(MAC, "little")
        dut.secret.value = rng.getrandbits(SECRET_BITS)
        for name in ("header_write", "fate_read", "fence_start", "info_word", "info_read"):
            getattr(dut, name).value = 0
        dut.tx__tready.value = 0
        self._ready = 0
        self._tx = [reader(getattr(dut, f"tx__{name}")) for name in ("tvalid", "tdata", "tkeep")]
        self._last = reader(dut.tx__tlast)
        self._begun, self._busy = reader(dut.begun), reader(dut.fence_busy)
        self._edge = reader(dut.begun_edge)
        self._watched = [
            reader(getattr(dut, name))
            for name in ("t_axi__awvalid", "t_axi__arvalid", "t_axi__wvalid", "tx__tvalid")
        ]
        self.begins = 0
        self.edge = 0  # of the last connection that began

    async def start(self, now: int = 0, **settings: int) -> None:
        known = {"rto_minimum": 1000, "rto_maximum": 60_000_000, "r2": 100_000_000}
        known |= {"delayed_ack": 2000}
        self.dut.settings.value = pack(TRANSMIT_SETTINGS, known | settings)
        self.advance(now)
        await start_clock_and_reset(self.dut)
        cocotb.start_soon(self.axi.run())
        cocotb.start_soon(self.wire.run())
        every_cycle(self.dut, self._step)
        await self.cycles(SLOTS_CLEARED)
        self.driver.start()

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def until(self, done: Callable[[], bool]) -> None:
        while not done():
            await RisingEdge(self.dut.clk)

    # Time, and the wire.

    def advance(self, microseconds: int) -> None:
        self.now += microseconds
        self.dut.time.value = self.now % SPACE

    def later(self, microseconds: int, event: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._events, (self.now + microseconds, self._order, event))

    def _next(self) -> int:
        """Microseconds until something happens."""
        dues = [self._events[0][0] - self.now] if self._events else []
        for flow in self.ends.values():
            due = flow.peer.next_deadline()
            if due is not None:
                dues.append(due - self.now)
        known = unpack(DEADLINE, int(self.dut.deadline.value))
        if known["armed"]:
            wait = (known["at"] - self.now) % SPACE
            dues.append(wait if wait < SPACE // 2 else 0)
        return max(min(dues, default=0), 0)

    def _step(self, in_reset: bool) -> None:
        self.cycle += 1
        if in_reset:
            return
        if self._begun():
            self.begins += 1
            self.edge = self._edge()
        self._take_word()
        if (
            self.device.moved
            or self.wire.sends
            or self.wire.frames
            or self._busy()
            or any(read() for read in self._watched)
        ):
            self.active = self.cycle
        if self.cycle - self.active > QUIET_CYCLES + self.connections:
            self.advance(self._next())
            self.active = self.cycle
        elif self.cycle % CYCLES_OF_US == 0:
            self.advance(1)
        else:
            return
        while self._events and self._events[0][0] <= self.now:
            _, _, event = heappop(self._events)
            event()
        for flow in list(self.ends.values()):
            due = flow.peer.next_deadline()
            if due is not None and due <= self.now:
                flow.peer.timer(self.now)
                self._answers(flow)

    def _take_word(self) -> None:
        valid, data, keep = self._tx
        if self._ready and valid():
            octets = keep().bit_count()
            self._frame += data().to_bytes(8, "little")[:octets]
            if self._last():
                self._leaves(bytes(self._frame))
                self._frame.clear()
        ready = int(self.takes and self.rng.random() < 0.95)
        if ready != self._ready:
            self.dut.tx__tready.value = self._ready = ready

    def _leaves(self, frame: bytes) -> None:
        """A frame of the engine: a segment of a connection, or what the driver sent."""
        if frame[12:14] != IPV4:
            self.raw.append(frame)
            return
        packet, segment = decode_packet(frame[14:])
        flow = self.ends.get((packet.destination, segment.destination_port))
        assert flow is not None, "of no connection"
        assert frame[:6] == flow.ends.remote_mac and frame[6:12] == flow.ends.local_mac
        end = (segment.sequence + segment.length) % SPACE
        new = (end - flow.sent_up_to) % SPACE
        begins_again = segment.length and segment.sequence != flow.sent_up_to
        flow.segments["segments_again" if begins_again else "segments_sent"] += 1
        if segment.length and new < SPACE >> 1:
            flow.sent_up_to = end
        self.seen["blocks"] += bool(segment.options.sack)
        assert flow.ends.sack or not segment.options.sack
        if not self._loses():
            self.later(self.rng.randrange(LONGEST_DELAY_US), lambda: self._arrives(flow, segment))

    def _loses(self) -> bool:
        loses = self.rng.random() < self.lost
        self.seen["lost"] += loses
        return loses

    def _arrives(self, flow: Flow, segment: Segment) -> None:
        peer = flow.peer
        if Flags.RST in segment.flags:
            self.seen["reset"] += peer.state is not State.CLOSED
        elif peer.state is State.CLOSED and not flow.ended:
            # RFC 9293, 3.10.7.1: what it sent before may have overtaken its data.
            ports = segment.destination_port, segment.source_port
            peer.output.append(Segment(*ports, segment.acknowledgment, flags=Flags.RST))
            self._answers(flow)
        if peer.state is State.CLOSED:
            return
        peer.segment_arrives(self.now, segment, LOCAL[0])
        self.reads(flow)

    def reads(self, flow: Flow) -> None:
        """The peer's program does, and sends no more when the stream has ended."""
        peer = flow.peer
        if peer.state is not State.CLOSED:
            flow.heard += peer.receive(self.now)
            if peer.state is State.CLOSE_WAIT and peer.finished:
                peer.close(self.now)
        self._answers(flow)

    def says(self, flow: Flow, octets: bytes) -> None:
        """The peer's program does."""
        flow.said += octets
        flow.peer.send(self.now, octets)
        self._answers(flow)

    def _answers(self, flow: Flow) -> None:
        """What the peer has to say."""
        for segment in flow.peer.output:
            if not self._loses():
                packet = encode_packet(segment, flow.ends.remote[0], flow.ends.local[0])
                frame = (MAC + PEER + IPV4 + packet).ljust(60, b"\0")
                self.later(
                    self.rng.randrange(LONGEST_DELAY_US),
                    lambda frame=frame: self._comes(flow, frame),
                )
        flow.peer.output.clear()

    def _comes(self, flow: Flow, frame: bytes) -> None:
        """A frame of a peer gets to the engine."""
        flow.segments["segments_received"] += 1
        self.wire.frames.append(frame)

    def put_arp(self) -> None:
        """A frame of no connection."""
        frame = MAC + PEER + ARP + self.rng.randbytes(self.rng.randint(46, 300))
        self.arp.append(frame)
        self.wire.frames.append(frame)

    # Commands.

    async def establish(self, number: int, *, sack: bool = True, smss: int = 0) -> Flow:
        """A connection after its handshake; the engine has it from here on."""
        rng, mss = self.rng, self.mtu - 40
        smss = smss or mss
        self._port += 1
        remote = IPv4Address((192 << 24) + rng.getrandbits(16)), self._port
        ours, theirs = (
            rng.choice([SPACE - 3000, RING - 3000, rng.getrandbits(32)]) for _ in range(2)
        )
        ends = Ends(
            *(MAC, rng.randbytes(6), LOCAL, remote, rng.randrange(64), rng.randint(1, 255)),
            *(SHIFT, theirs, WINDOW, [], sack),
        )
        adoption = Adoption(
            remote=LOCAL,
            next_sent=theirs,
            next_received=ours,
            window=WINDOW,
            window_from=ours,
            send_shift=SHIFT,
            receive_shift=SHIFT,
            receive_window=WINDOW,
            smss=smss,
            sack=sack,
            round_trip=None,
            syn_losses=0,
        )
        settings = Settings(mss=mss, rto_minimum=1000, delayed_ack=2000)
        rings = bytearray(RING), bytearray(RING)
        # Any multiple of 8.
        addresses = [self.memory.map(ring, 8 * rng.randrange(512)) for ring in rings]
        peer = Peer.adopted(self.now, remote, adoption, settings)
        flow = Flow(number, ends, peer, ours, *rings, *addresses, smss, sent_up_to=ours)
        flow.counted = await self.counts(number)
        self.flows[number] = self.ends[remote] = flow
        for row, word in ends.rows().items():
            await self._header(number, row.value, word)
        begins = self.begins
        self.receive(
            flow,
            ReceiveOperation.BEGIN,
            next=theirs,
            edge=(theirs + WINDOW) % SPACE,
            ring=addresses[0],
            size=0,
            shift=SHIFT,
        )
        await self.until(lambda: self.begins > begins)
        assert self.begins == begins + 1
        self.command(
            flow,
            TransmitOperation.BEGIN,
            number=ours,
            window=WINDOW,
            window_from=theirs,
            edge=self.edge,
            announced=(theirs + WINDOW) % SPACE,
            cwnd=initial_window(smss),
            rto=_round_trip(500),
            ring=addresses[1],
            size=0,
            shift=SHIFT,
            emss=smss,
        )
        await self.lookups.send({"connection": number, "key": flow.key})
        flow.inserted = bool((await self.lookups_done.get())["found"])
        assert flow.inserted or self.connections > 16
        return flow

    async def _header(self, number: int, row: int, word: int) -> None:
        dut = self.dut
        dut.header_write.value, dut.header_connection.value = 1, number
        dut.header_row.value, dut.header_word.value = row, word
        await RisingEdge(dut.clk)
        dut.header_write.value = 0

    def receive(self, flow: Flow, operation: ReceiveOperation, **fields: int) -> None:
        self.commands.put({"operation": operation.value, "connection": flow.number, **fields})

    def command(self, flow: Flow, operation: TransmitOperation, **fields: Any) -> None:
        self.send_commands.put({"operation": operation.value, "connection": flow.number, **fields})

    async def attach(self, flow: Flow, lane: int) -> None:
        """The device has the stream from here on: what the driver has not read is its."""
        self.receive(flow, ReceiveOperation.ATTACH)
        await self.commands.wait_idle()
        flow.lane, flow.bases = lane, (len(flow.read), len(flow.sent))
        self.device.attach(lane)
        base = (flow.their_first + len(flow.read)) % SPACE
        fields = {"lane": lane, "connection": flow.number, "attached": 1, "base": base}
        await self.attachments.send(fields | {"ring": flow.receive_address, "size": 0})
        self.command(flow, TransmitOperation.ATTACH)
        await self.until(lambda: self.granted(flow) > len(flow.sent))

    def granted(self, flow: Flow) -> int:
        """Octets of the stream that the device may have sent."""
        assert flow.lane is not None
        return flow.bases[1] + self.device.value(flow.lane, LlpEventKind.TX_WINDOW)

    async def detach(self, flow: Flow) -> None:
        await self.attachments.send({"lane": flow.lane, "connection": flow.number})
        self.command(flow, TransmitOperation.DETACH)
        await self.send_commands.wait_idle()
        await self.fence()

    async def fence(self) -> None:
        self.start_fence()
        await RisingEdge(self.dut.clk)
        self.dut.fence_start.value = 0
        await RisingEdge(self.dut.clk)
        await self.until(lambda: not self._busy())

    def start_fence(self) -> None:
        self.dut.fence_start.value = 1

    async def forget(self, flow: Flow) -> None:
        """The number and the rings may be used again: nothing touches them any more."""
        await self.lookups.send({"delete": 1, "key": flow.key})
        done = await self.lookups_done.get()
        assert done == {"found": 1, "connection": flow.number}
        await self.fence()
        for address in (flow.receive_address, flow.send_address):
            self.memory.unmap(address)
        del self.ends[flow.ends.remote]
        del self.flows[flow.number]

    async def info(self, flow: Flow) -> dict[str, int]:
        dut = self.dut
        dut.info_read.value = flow.number
        self.command(flow, TransmitOperation.INFO)
        await self.until(lambda: bool(dut.info_done.value))
        await self.cycles(30)
        return await self._words(0)

    async def _words(self, first: int) -> dict[str, int]:
        """Words of CONNECTION_INFO, from one on."""
        found = {}
        for place, known in enumerate(CONNECTION_INFO[first:], first):
            self.dut.info_word.value = place
            await self.cycles(INFO_CYCLES)
            found[known.name] = int(self.dut.info.value)
        return found

    async def counts(self, number: int) -> dict[str, int]:
        """Of the segments of a number, which take no INFO."""
        self.dut.info_read.value = number
        return await self._words(len(CONNECTION_INFO) - COUNTS)

    async def check_counts(self, flow: Flow, lost: int = 0) -> None:
        """They are those of the wire, but for so many frames that there was no room for."""
        found = await self.counts(flow.number)
        counted = {name: (found[name] - flow.counted[name]) % SPACE for name in found}
        missing = flow.segments["segments_received"] - counted.pop("segments_received")
        assert 0 <= missing <= lost
        assert counted == {name: flow.segments[name] for name in counted}

    # The driver, and the device.

    def send(self, flow: Flow, octets: bytes) -> None:
        """The driver does: it writes the ring, and tells."""
        place = (flow.first + len(flow.sent)) % RING
        inside = min(len(octets), RING - place)
        flow.send_ring[place : place + inside] = octets[:inside]
        flow.send_ring[: len(octets) - inside] = octets[inside:]
        flow.sent += octets
        self.command(flow, TransmitOperation.SEND, octets=len(octets))

    def _told(self, entry: dict[str, int]) -> None:
        kind = NetworkKind(entry["kind"])
        if kind is NetworkKind.FRAME:
            self._framed(self.driver.frames[-1])
            return
        flow = self.flows[entry["connection"]]
        assert not flow.ended, "after the end"
        flow.fin = bool(entry["flags"] & NetworkFlags.FIN)
        end = (entry["acknowledgment"] - flow.their_first) % SPACE - flow.fin
        assert end <= len(flow.said)
        if kind is NetworkKind.SUSPECT:
            flow.suspected += 1
        elif kind is not NetworkKind.READABLE:
            flow.ended = kind.name
        if flow.lane is None:
            self._reads(flow, end)

    def _reads(self, flow: Flow, end: int) -> None:
        """The driver does, and releases what it has read."""
        begin = len(flow.read)
        assert begin <= end
        place = (flow.their_first + begin) % RING
        twice = flow.receive_ring + flow.receive_ring
        flow.read += twice[place : place + end - begin]
        if end > begin and not flow.ended:
            fields = {"connection": flow.number, "relative": 1, "value": end - begin}
            self.releases.put(fields)

    def _framed(self, frame: bytes) -> None:
        """None of a connection that the engine has, before its end was told."""
        if frame[12:14] != IPV4:
            assert frame in self.arp
            self.arp = self.arp[self.arp.index(frame) + 1 :]
            self.seen["arp"] += 1
            return
        packet, segment = decode_packet(frame[14:])
        flow = self.ends.get((packet.source, segment.source_port))
        assert flow is None or flow.ended or not flow.inserted, "before its end"
        self.seen["of the driver"] += 1

    def heard(self, flow: Flow) -> bytes:
        """Octets of the peer that came to the driver and to the device."""
        if flow.lane is None:
            return bytes(flow.read)
        return bytes(flow.read[: flow.bases[0]] + self.device.received[flow.lane])


def _round_trip(microseconds: int) -> dict[str, int]:
    rto = RetransmissionTimeout(minimum=1000)
    rto.sample(microseconds)
    assert rto.srtt8 is not None
    known = {"srtt8": rto.srtt8, "rttvar4": rto.rttvar4, "timeout": rto.microseconds}
    return {"sampled": 1, **known}


async def start(dut: Any, now: int = 0, **settings: int) -> Bench:
    qps, mtu = map(int, parameter("PATTERN").split())
    rng = seeded_random(parameter("PATTERN"))
    bench = Bench(dut, rng, RnicConfig(qps=qps), mtu)
    await bench.start(now, **settings)
    return bench
