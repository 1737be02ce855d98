"""A peer at the other end of a NIC's wire that sends what it likes, beside one that is well.

What the NIC has to do with a frame is what `tests.tcp.frames.fate_of` and the reference engine say.
"""

import itertools
from collections import Counter
from ipaddress import IPv4Address, IPv4Interface
from typing import Any

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.network.hardware_port import HardwarePort
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.hw.interface.network_entries import FrameFate
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.host import Host
from stagecoach.sim.model.tcp.malformed import MalformedError
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Settings
from stagecoach.sim.network.engine import Engine, EngineSettings
from stagecoach.sim.network.flow import Flow
from stagecoach.sim.network.nic import SimulatedNic
from stagecoach.sim.network.timeline import CycleTime
from stagecoach.sim.wire.clock import CYCLE_PS
from stagecoach.sim.wire.pair import open_pair
from tests.support.compiled_nic import NIC_CONFIG, nic_library
from tests.tcp.frames import ARP, IPV4, MAC, MTU
from tests.tcp.transmit_reference import Challenges

OWN, PEER, BYSTANDER = (IPv4Address(f"192.0.2.{number}") for number in (2, 1, 3))
PEER_MAC, BYSTANDER_MAC = (bytes.fromhex(f"0200000000{number:02}") for number in (1, 3))
PORT = 7
RING = 128 << 10
SETTLE_US = 60_000
"""Longer than an ACK is delayed, shorter than the least retransmission timeout."""

STEP_US = 20
_PER_US = 1_000_000 / CYCLE_PS
SPACE = 1 << 32


def number(value: int) -> int:
    """A sequence number."""
    return value % SPACE


class Attacked:
    """A NIC with a connection to the peer, whose shadow the reference engine has, and one to the
    bystander.

    Attributes
    ----------
    stream, flow: of the connection to the peer, of the NIC and of the shadow. answers, expected:
    segments for the peer that came from the NIC, and from the shadow, since `exchange` began.
    others: frames for other ones. fates: that frames have to have had.
    """

    def __init__(self, wire: str) -> None:
        self._end = open_pair(wire)
        self._time = CycleTime(30.0)
        address = f"sim://?wire=pair:{wire}&ip={OWN}/24&mac={MAC.hex(':')}&tcp=engine"
        self.nic = SimulatedNic(
            f"{address}&rx_ring={RING}&tx_ring={RING}",
            NIC_CONFIG,
            time=self._time,
            library=nic_library(),
        )
        self.answers: list[Segment] = []
        self.expected: list[Segment] = []
        self.others: Counter[str] = Counter()
        self.fates = self.counts()
        settings = EngineSettings(MAC, MTU, RING, RING, 200_000, NIC_CONFIG.qps)
        self._shadow = Engine(settings, self._take_expected, lambda *_: None)
        self._ports = itertools.count(1000)
        self.port = 0
        self.first = 0
        port, establish = self.nic.network, self.nic.network.establish

        def watched(established: Any, early: tuple[bytes, ...] = ()) -> int:
            handle = establish(established, early)
            if established.remote[0] == PEER:
                self._establish(established)
            return handle

        port.establish = watched  # type: ignore[method-assign]
        self.listener = self.nic.listen("", PORT)
        self._host = Host(IPv4Interface(f"{BYSTANDER}/24"), bytes(16), Settings())
        self.beside: Connection = self._host.connect(self.now_us, (OWN, PORT), 5000)
        self.run(1000)
        self.beside_stream: NetworkStream = self.listener.accept(5)
        self.stream: NetworkStream
        self.flow: Flow

    def close(self) -> None:
        """End all of it."""
        self.nic.close()
        self._end.close()

    @property
    def now_us(self) -> int:
        """The time."""
        return self.nic.network.now_us()

    # Frames and time.

    def counts(self) -> Counter[str]:
        """Frames that the NIC has seen, by their fate."""
        found: Counter[str] = Counter()
        for fate in FrameFate:
            self.nic.write_register(registers.NETWORK_FRAME_FATE.address, fate)
            found[fate.name] = self.nic.read_register(registers.NETWORK_FRAMES_SEEN.address)
        return found

    def send(self, frame: bytes, fate: FrameFate) -> None:
        """A frame arrives at the NIC and at the shadow."""
        self.fates[fate.name] += 1
        assert self._end.send(frame)
        if fate is FrameFate.SEGMENT:
            self._shadow.take_frame(self.now_us, frame)

    def run(self, microseconds: int) -> None:
        """Let time go on for all."""
        until = self.now_us + microseconds
        while self.now_us < until:
            step = STEP_US if self._busy else until - self.now_us
            if (due := self._shadow.next_deadline()) is not None:
                step = min(step, max(1, due - self.now_us))
            self.nic.run_cycles(int(min(step, until - self.now_us) * _PER_US) + 1)
            self._serve()

    def _serve(self) -> None:
        self._busy -= self._busy > 0
        while (frame := self._end.receive()) is not None:
            self._busy = 3
            self._take(frame)
        now = self.now_us
        if (due := self._host.next_deadline()) is not None and due <= now:
            self._host.timer(now)
        for packet in self._host.take_packets():
            self._busy = 3
            self.fates["SEGMENT"] += 1
            assert self._end.send(MAC + BYSTANDER_MAC + IPV4 + packet)
        if (due := self._shadow.next_deadline()) is not None and due <= now:
            self._shadow.timer(now)

    _busy = 3

    def _take(self, frame: bytes) -> None:
        if frame[12:14] == ARP:
            self._answer_arp(frame)
            return
        if frame[:6] == BYSTANDER_MAC:
            self._host.packet_arrives(self.now_us, frame[14:])
            return
        try:
            packet, segment = decode_packet(frame[14:])
        except MalformedError as error:
            self.others[error.reason.name] += 1
            return
        ends = packet.destination, segment.source_port, segment.destination_port
        if ends == (PEER, PORT, self.port):
            self.answers.append(segment)
        else:
            self.others["reset" if Flags.RST in segment.flags else "segment"] += 1

    def _answer_arp(self, frame: bytes) -> None:
        macs = {PEER.packed: PEER_MAC, BYSTANDER.packed: BYSTANDER_MAC}
        if frame[20:22] == b"\0\1" and (mac := macs.get(frame[38:42])) and any(frame[28:32]):
            reply = b"\0\1\x08\0\6\4\0\2" + mac + frame[38:42] + frame[22:32]
            self.fates["RAW"] += 1
            assert self._end.send((MAC + mac + ARP + reply).ljust(60, b"\0"))

    def _take_expected(self, frame: bytes) -> None:
        self.expected.append(decode_packet(frame[14:])[1])

    # The connection to the peer.

    def _establish(self, established: Any) -> None:
        handle = self._shadow.establish(self.now_us, established, ())
        self.flow = self._shadow.flow(handle)
        self.flow.connection.record.challenges = Challenges()  # type: ignore[assignment]

    def frame(self, segment: Segment) -> bytes:
        """Of the peer."""
        return MAC + PEER_MAC + IPV4 + encode_packet(segment, PEER, OWN)

    def segment(self, sequence: int, acknowledgment: int, flags: Flags, **fields: Any) -> Segment:
        """Of the connection."""
        ports = self.port, PORT
        return Segment(*ports, number(sequence), number(acknowledgment), flags, **fields)

    def connect(self, first: int) -> None:
        """A new connection of the peer, whose first octet has the number `first`."""
        self.port, self.first = next(self._ports), number(first)
        self.answers.clear()
        options = Options(mss=1460, window_scale=2, sack_permitted=True)
        syn = self.segment(first - 1, 0, Flags.SYN, window=60_000, options=options)
        self.send_raw(syn)
        assert self.answers, (self.others, self.nic.stack.counters, self.counts())
        (answer,) = self.answers
        assert answer.flags == Flags.SYN | Flags.ACK
        assert answer.acknowledgment == number(first)
        self.send_raw(self.segment(first, answer.sequence + 1, Flags.ACK, window=15_000))
        self.stream = self.listener.accept(5)
        self.answers.clear()

    def send_raw(self, segment: Segment) -> None:
        """A good segment that the driver gets."""
        self.fates["SEGMENT"] += 1
        assert self._end.send(self.frame(segment))
        for _ in range(100):
            self.run(100)
            if self.answers:
                break

    # What NIC and shadow do alike.

    def stream_sends(self, octets: bytes) -> None:
        """Octets of the NIC's program."""
        self.stream.sendall(octets, 5)
        self.flow.send(self.now_us, octets)
        self.serve(self.flow)

    def serve(self, flow: Flow) -> None:
        """The shadow says what follows."""
        self._shadow.serve(self.now_us, flow)

    def settle(self) -> list[Segment]:
        """What the NIC has said when nothing more comes."""
        self._busy = 3
        self.run(SETTLE_US)
        for _ in range(30):
            if len(self.answers) == len(self.expected):
                break
            self.run(1000)  # timers of both end some microseconds apart
        return self.answers

    def same_edge(self) -> bool:
        """Whether the windows of NIC and shadow end at the same octet.

        Those that are fewer octets apart than a unit of the field are made the same. Silly window
        avoidance lets each move its edge up to two segments later.
        """
        ends = self.flow.established.local, self.flow.established.remote
        for each in self.nic.stack.connections():
            host, port = each.remote
            if each.info is not None and (host, port) == (str(ends[1][0]), ends[1][1]):
                receiver = self.flow.connection.record.receiver
                further = each.info.receive_window - receiver.window
                unit = 1 << self.flow.established.receive_shift
                assert -2 * MTU <= further <= RING
                if abs(further) < unit:
                    receiver._edge += further
                return abs(further) < unit
        return False

    def rings(self, flow: Flow) -> tuple[bytes, bytes]:
        """RX and TX ring of a connection of the NIC."""
        port = self.nic.network
        assert isinstance(port, HardwarePort)
        ends = flow.established.local, flow.established.remote
        found = port._by_ends.get(ends)
        # The counters tell why it has ended.
        state, counters = flow.connection.state, dict(self.nic.stack.counters)
        assert found is not None, f"the NIC has no {ends}, the shadow's is {state}: {counters}"
        rx, tx = port._numbers.rings(found.number)
        return rx.read(0, RING), tx.read(0, RING)
