"""A NIC between a host, which has its registers and memory, and a wire.

All that the host does goes through the ports of the device, as a driver would do it.
"""

from collections import deque
from dataclasses import dataclass
from ipaddress import IPv4Address
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.commands import NetworkOpcode
from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.registers import Register
from stagecoach.hw.interface.network_entries import (
    CONNECTION_INFO,
    FRAME_DESCRIPTOR,
    FRAME_DESCRIPTOR_OCTETS,
    NETWORK_ENTRY,
    NETWORK_ENTRY_OCTETS,
    NetworkKind,
    slot_octets,
)
from stagecoach.sim.cosim.axi import OKAY, AxiMemory
from stagecoach.sim.cosim.registers import RegisterMaster
from stagecoach.sim.cosim.signals import every_cycle, reader
from stagecoach.sim.cosim.streams import start_clock_and_reset
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.congestion import initial_window
from stagecoach.sim.model.tcp.connection import Connection as Peer
from stagecoach.sim.model.tcp.segment import Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Settings
from tests.tcp.engine_host import StrictMemory
from tests.tcp.frames import IPV4, MAC, PEER
from tests.tcp.receive_reference import LOCAL, SPACE
from tests.tcp.sent_frames import Connection as Ends
from tests.tcp.wire import Wire

LOG2 = 4
"""Of the places of the driver's rings."""

RING = 1 << 17
WINDOW, SHIFT = 0xFFFF, 2
RTO_US = 300_000
CYCLES_OF_US = 16
SLOTS_CLEARED = 1 << 12
"""Cycles after reset in which the lookup takes nothing."""

WORD = 0xFFFFFFFF
Entry = dict[str, int]


@dataclass
class Flow:
    """A connection of the engine, and its peer.

    first: number of our first octet. receive_ring, send_ring: as they are in memory.
    """

    number: int
    ends: Ends
    peer: Peer
    first: int
    receive_ring: bytearray
    send_ring: bytearray
    addresses: tuple[int, int]


class Host:
    """The device, its memory and its wire. left: frames that left and were not taken yet."""

    def __init__(self, dut: Any, rng: Random, mtu: int) -> None:
        self.dut, self.rng, self.mtu = dut, rng, mtu
        self.memory = StrictMemory()
        latencies = {"read_latency": 60, "write_latency": 20, "rng": rng}
        self.ports = [
            AxiMemory(dut, name, dut.clk, self.memory, **latencies) for name in ("m_axi", "t_axi")
        ]
        self.master = RegisterMaster(dut, "s_axi", dut.clk)
        self.wire = Wire(dut, rng)
        self.left: deque[bytes] = deque()
        self.now = 0
        self._frame = bytearray()
        self._cycle = 0
        dut.tx__tready.value = 0
        self._tx = [reader(getattr(dut, f"tx__{name}")) for name in ("tvalid", "tdata", "tkeep")]
        self._last = reader(dut.tx__tlast)
        self._ready = 0
        self.takes = True  # the MAC does

    async def start(self) -> None:
        dut = self.dut
        dut.time_us.value = self.now
        await start_clock_and_reset(dut)
        for port in self.ports:
            cocotb.start_soon(port.run())
        cocotb.start_soon(self.wire.run())
        every_cycle(dut, self._step)
        await self.cycles(SLOTS_CLEARED)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    def advance(self, microseconds: int) -> None:
        self.now += microseconds
        self.dut.time_us.value = self.now % SPACE

    def _step(self, in_reset: bool) -> None:
        self._cycle += 1
        if self._cycle % CYCLES_OF_US == 0:
            self.advance(1)
        valid, data, keep = self._tx
        if self._ready and valid():
            octets = keep().bit_count()
            self._frame += data().to_bytes(8, "little")[:octets]
            if self._last():
                self.left.append(bytes(self._frame))
                self._frame.clear()
        ready = int(self.takes and self.rng.random() < 0.95)
        if ready != self._ready:
            self.dut.tx__tready.value = self._ready = ready

    async def frame(self) -> bytes:
        """The next one that leaves."""
        while not self.left:
            await RisingEdge(self.dut.clk)
        return self.left.popleft()

    async def segment(self) -> Segment:
        """The same, a segment."""
        frame = await self.frame()
        assert frame[12:14] == IPV4
        return decode_packet(frame[14:])[1]

    # Registers.

    async def read(self, register: Register) -> dict[str, int]:
        word, response = await self.master.read(register.address)
        assert response == OKAY
        return register.unpack(word)

    async def write(self, register: Register, **fields: int) -> None:
        assert await self.master.write(register.address, register.pack(**fields)) == OKAY

    async def write_wide(self, name: str, value: int) -> None:
        """A value of two registers."""
        await self.write(getattr(registers, f"{name}_LOW"), value=value & WORD)
        await self.write(getattr(registers, f"{name}_HIGH"), value=value >> 32)

    async def command(self, opcode: NetworkOpcode) -> bool:
        """Carries one out; whether it was valid."""
        await self.write(registers.NETWORK_COMMAND, opcode=opcode.value)
        while True:
            status = await self.read(registers.NETWORK_COMMAND_STATUS)
            if not status["busy"]:
                return not status["invalid"]

    # The driver's rings.

    async def open_rings(self) -> None:
        places = 1 << LOG2
        self.slot_octets = slot_octets(self.mtu)
        self.queue = bytearray(places * NETWORK_ENTRY_OCTETS)
        self.slots = bytearray(places * self.slot_octets)
        self.descriptors = bytearray(places * FRAME_DESCRIPTOR_OCTETS)
        rings = {"QUEUE": self.queue, "SLOTS": self.slots, "FRAMES": self.descriptors}
        for name, ring in rings.items():
            await self.write_wide(f"NETWORK_{name}", self.memory.map_aligned(ring))
        sizes = {"queue_log2": LOG2, "slots_log2": LOG2, "frames_log2": LOG2}
        await self.write(registers.NETWORK_RINGS, **sizes)
        await self.write_wide("NETWORK_MAC", int.from_bytes(MAC, "little"))
        for number in range(4):
            word = self.rng.getrandbits(31)
            await self.write(getattr(registers, f"NETWORK_SECRET_{number}"), value=word)
        self.consumed = self.slots_freed = self.produced = 0
        await self.write(registers.NETWORK_ENABLE, receive=1, transmit=1)
        await self.write(registers.NETWORK_INTERRUPT_ENABLE, queue=1, failed=1)

    async def entry(self) -> Entry:
        """The next one of the network queue, which is then freed; its interrupt is cleared."""
        while not self.dut.network_irq.value:
            await RisingEdge(self.dut.clk)
        at = self.consumed % (1 << LOG2) * NETWORK_ENTRY_OCTETS
        found, octets = {}, bytes(self.queue[at : at + NETWORK_ENTRY_OCTETS])
        for name, size, _ in NETWORK_ENTRY:
            found[name], octets = int.from_bytes(octets[:size], "little"), octets[size:]
        assert found["phase"] & 1 == 1 - (self.consumed >> LOG2 & 1)
        await self.write(registers.NETWORK_INTERRUPT_STATUS, queue=1)
        self.consumed += 1
        if found["kind"] == NetworkKind.FRAME:
            assert found["slot"] == self.slots_freed
            at = found["slot"] % (1 << LOG2) * self.slot_octets
            self.received = bytes(self.slots[at : at + found["octets"]])
            self.slots_freed += 1
        freed = {"queue_consumer": self.consumed, "slot_consumer": self.slots_freed}
        await self.write(registers.NETWORK_CONSUMERS, **freed)
        return found

    async def send_frame(self, frame: bytes) -> None:
        fields = {"address": self.memory.map(bytearray(frame)), "octets": len(frame)}
        at = self.produced % (1 << LOG2) * FRAME_DESCRIPTOR_OCTETS
        self.descriptors[at : at + FRAME_DESCRIPTOR_OCTETS] = b"".join(
            fields.get(name, 0).to_bytes(size, "little") for name, size, _ in FRAME_DESCRIPTOR
        )
        self.produced += 1
        await self.write(registers.NETWORK_PRODUCER, producer=self.produced)

    # Connections.

    async def establish(self, number: int, port: int = 1) -> Flow:
        """Headers, then the connection, after a handshake that took no time."""
        rng, mss = self.rng, self.mtu - 40
        remote = IPv4Address("192.0.2.1"), port
        ours, theirs = SPACE - 100, rng.getrandbits(32)
        ends = Ends(
            *(MAC, PEER, LOCAL, remote, rng.randrange(64), rng.randint(1, 255)),
            *(SHIFT, theirs, WINDOW, [], True),
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
            smss=mss,
            sack=True,
            round_trip=None,
            syn_losses=0,
        )
        peer = Peer.adopted(self.now, remote, adoption, Settings(mss=mss))
        rings = bytearray(RING), bytearray(RING)
        addresses = tuple(self.memory.map(ring, 8 * rng.randrange(512)) for ring in rings)
        await self.write(registers.TCP_CONNECTION, connection=number)
        for row, word in ends.rows().items():
            await self.write(registers.TCP_HEADER_ROW, row=row.value)
            await self.write_wide("TCP_HEADER", word)
            assert await self.command(NetworkOpcode.HEADER)
        for name, value in {
            "SEND_NEXT": ours,
            "SEND_WINDOW": WINDOW,
            "WINDOW_FROM": theirs,
            "RECEIVE_NEXT": theirs,
            "RECEIVE_EDGE": (theirs + WINDOW) % SPACE,
            "CWND": initial_window(mss),
            "SRTT8": 8 * RTO_US,
            "RTTVAR4": 0,
            "RTO": RTO_US,
            "SEGMENT_SIZE": mss,
        }.items():
            await self.write(getattr(registers, f"TCP_{name}"), value=value)
        await self.write(registers.TCP_OPTIONS, send_shift=SHIFT, receive_shift=SHIFT)
        await self.write(registers.TCP_RINGS, rx=0, tx=0)
        await self.write_wide("TCP_RX_RING", addresses[0])
        await self.write_wide("TCP_TX_RING", addresses[1])
        flow = Flow(number, ends, peer, ours, *rings, addresses)
        await self._ends(flow)
        assert await self.command(NetworkOpcode.ESTABLISH)
        return flow

    async def _ends(self, flow: Flow) -> None:
        await self.write(registers.TCP_LOCAL, value=int(flow.ends.local[0]))
        await self.write(registers.TCP_REMOTE, value=int(flow.ends.remote[0]))
        ports = {"local": flow.ends.local[1], "remote": flow.ends.remote[1]}
        await self.write(registers.TCP_PORTS, **ports)

    async def about(self, flow: Flow, opcode: NetworkOpcode, octets: int = 0) -> bool:
        """A command about a connection."""
        await self.write(registers.TCP_CONNECTION, connection=flow.number)
        await self.write(registers.TCP_OCTETS, value=octets)
        await self._ends(flow)
        return await self.command(opcode)

    async def send(self, flow: Flow, at: int, octets: bytes) -> None:
        """Octets of our stream, from position `at` on."""
        for index, octet in enumerate(octets):
            flow.send_ring[(flow.first + at + index) % RING] = octet
        assert await self.about(flow, NetworkOpcode.SEND, len(octets))

    def octets(self, flow: Flow, at: int, octets: int) -> bytes:
        """Octets of the peer's stream, from position `at` on, as they are in the ring."""
        return bytes(
            flow.receive_ring[(flow.ends.number + at + index) % RING] for index in range(octets)
        )

    def answers(self, flow: Flow) -> None:
        """What the peer has to say goes on the wire."""
        for segment in flow.peer.output:
            packet = encode_packet(segment, flow.ends.remote[0], flow.ends.local[0])
            self.wire.frames.append((MAC + PEER + IPV4 + packet).ljust(60, b"\0"))
        flow.peer.output.clear()

    def arrives(self, flow: Flow, segment: Segment) -> None:
        """A segment of ours reaches the peer, which answers."""
        flow.peer.segment_arrives(self.now, segment, LOCAL[0])
        self.answers(flow)

    async def info(self, flow: Flow) -> dict[str, int]:
        assert await self.about(flow, NetworkOpcode.INFO)
        found = {}
        for number, word in enumerate(CONNECTION_INFO):
            await self.write(registers.TCP_INFO_WORD, word=number)
            found[word.name] = (await self.read(registers.TCP_INFO))["value"]
        return found
