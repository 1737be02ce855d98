"""A NIC with a TCP engine, in Python: registers of `hw/interface/network.rdl`, rings in memory.

A `NetworkHost`. Its engine is the reference TCP (`fake_engine`).
"""

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ipaddress import IPv4Address
from typing import Any

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.network.hardware.memory import AlignedMemory
from stagecoach.host_driver.network_registers import NetworkOpcode
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.host_driver.transport.network import FrameHead, Link
from stagecoach.hw.interface.network_entries import (
    CONNECTION_INFO,
    FRAME_DESCRIPTOR_OCTETS,
    NETWORK_ENTRY_OCTETS,
    FrameFate,
    HeaderRow,
    NetworkFlags,
    NetworkKind,
    slot_octets,
)
from stagecoach.sim.model.tcp import ipv4
from stagecoach.sim.model.tcp.malformed import MalformedError
from stagecoach.sim.model.tcp.segment import decode_packet
from stagecoach.sim.model.tcp.state import Settings
from tests.host_driver.network.fake_engine import SPACE, Begin, Counts, EngineConnection, Ring

BY_ADDRESS = {
    register.address: register
    for register in vars(registers).values()
    if isinstance(register, Register)
}
STAGING = range(registers.TCP_CONNECTION.address, registers.TCP_INFO_WORD.address)


class FakeNic:
    """Time is `now`; what waits ends with `wake_network` or an interrupt.

    Parameters
    ----------
    connections, mtu: sizes. unaligned: mapped buffers begin at so many octets after a page.

    Attributes
    ----------
    answers: whether it can answer requests by itself; answered, unanswered, urgent: what it has
        counted.
    sent: frames that left; `wire` takes each of them, too. refuses: whether the hash has no slot.
    carrier, refused: of `link`.
    busy_reads: how often a command says that it is busy, by opcode; others once. while_busy: what
        happens then. commands: opcodes, in order.
    may_pass: whether time may go on in `wait_network`.
    fails, loses: how many frames, or entries, memory does not take from now on.
    """

    def __init__(self, connections: int = 4, mtu: int = 1500, unaligned: int = 8) -> None:
        self.mtu, self.connections = mtu, connections
        self.now = 1_000_000
        self.sent: list[bytes] = []
        self.wire: Callable[[bytes], None] = lambda frame: None
        self.carrier = "up"
        self.refused: dict[str, int] = {}
        self.refuses = False
        self.answers = self.answered = self.unanswered = self.urgent = 0
        self.busy_reads: dict[int, int] = {}
        self.while_busy: dict[int, Callable[[], None]] = {}
        self.commands: list[NetworkOpcode] = []
        self.fails = 0
        self.loses = 0
        self.may_pass: Callable[[], bool] = lambda: True
        self.closed: str | None = None
        self.engine: dict[int, EngineConnection] = {}
        self.lookup: dict[tuple[Any, Any], int] = {}
        self.lanes: dict[int, EngineConnection] = {}
        self.mapped: dict[int, memoryview] = {}
        self.lock = threading.Condition(threading.RLock())
        self._unaligned = unaligned
        self._next_address = 1 << 32
        self._values = {
            **{address: register.constant or 0 for address, register in BY_ADDRESS.items()},
            registers.NETWORK_SIZES.address: registers.NETWORK_SIZES.pack(
                connections=connections, mtu=mtu
            ),
            registers.NETWORK_RTO_MAXIMUM.address: 60_000_000,
        }
        self._rows: dict[int, dict[HeaderRow, bytes]] = {}
        self._info = [0] * len(CONNECTION_INFO)
        # They go on from one connection of a number to the next, and wrap soon.
        self.counts: defaultdict[int, Counts] = defaultdict(lambda: Counts(SPACE - 2, SPACE - 1, 7))
        self._busy = 0
        self._invalid = False
        self._notices: deque[tuple[NetworkKind, int, int, int, NetworkFlags]] = deque()
        self._entry = self._slot = self._done = 0
        self._dropped = 0
        self.fates: Counter[FrameFate] = Counter()
        self._woken = False

    # The host.

    def now_us(self) -> int:
        return self.now

    def pause(self) -> AbstractContextManager[None]:
        return nullcontext()

    def new_lock(self) -> Any:
        return threading.RLock()

    def frame_heads(self) -> list[FrameHead]:
        return [FrameHead(self.now, True, len(frame), frame[:128]) for frame in self.sent[-64:]]

    def link(self) -> Link:
        return Link(self.carrier, self.refused)

    def allocate(self, octets: int, alignment: int = 8) -> AlignedMemory:
        return AlignedMemory(self, octets, alignment)

    def map_memory(self, buffer: Any) -> int:
        with self.lock:
            view = memoryview(buffer).cast("B")
            address = self._next_address + self._unaligned
            self._next_address += (view.nbytes + 8191) // 4096 * 4096
            self.mapped[address] = view
            return address

    def unmap_memory(self, address: int) -> None:
        with self.lock:
            self.mapped.pop(address).release()

    def memory(self, address: int, octets: int) -> memoryview:
        """Mapped bytes; an access past them is a fault of the driver."""
        for start, view in self.mapped.items():
            if start <= address and address + octets <= start + view.nbytes:
                return view[address - start : address - start + octets]
        raise AssertionError(f"{octets} octets at {address:#x} are not mapped")

    @property
    def interrupt(self) -> bool:
        return bool(
            self._values[registers.NETWORK_INTERRUPT_STATUS.address]
            & self._values[registers.NETWORK_INTERRUPT_ENABLE.address]
        )

    def wait_network(self, until_us: int | None) -> None:
        with self.lock:
            if not self._woken and not self.interrupt and self.closed is None:
                self._pass(until_us)
            self._woken = False
            if self.closed is not None:
                raise DeviceClosed(self.closed)

    def _pass(self, until_us: int | None) -> None:
        """Nothing is there: time goes on, to the next thing that is due."""
        times = [until_us, self.deadline]
        due = min((time for time in times if time is not None), default=None)
        if due is None or (due > self.now and not self.may_pass()):
            self.lock.wait(10)
        else:
            self.run_to(due)

    def wake_network(self) -> None:
        with self.lock:
            self._woken = True
            self.lock.notify_all()

    def close(self, why: str = "the device was closed") -> None:
        with self.lock:
            self.closed = why
            self.lock.notify_all()

    # Registers.

    def _fields(self, register: Register) -> dict[str, int]:
        return register.unpack(self._values[register.address])

    def _value(self, register: Register) -> int:
        return self._fields(register)["value"]

    def _wide(self, low: Register, high: Register) -> int:
        return self._value(low) | self._value(high) << 32

    def read_register(self, address: int) -> int:
        with self.lock:
            if self.closed is not None:
                raise DeviceClosed(self.closed)
            register = BY_ADDRESS[address]
            if register is registers.NETWORK_COMMAND_STATUS:
                busy = self._busy > 0
                self._busy -= busy
                if busy and (action := self.while_busy.get(self.commands[-1])):
                    action()
                return register.pack(busy=int(busy), invalid=int(self._invalid))
            if register is registers.NETWORK_STATUS:
                return register.pack(receive_idle=1, transmit_idle=1, answers=self.answers)
            if register is registers.NETWORK_TIME:
                return self.now & 0xFFFFFFFF
            if register is registers.NETWORK_SENT:
                return register.pack(consumer=self._done)
            if register is registers.NETWORK_FRAMES_DROPPED:
                return self._dropped
            if register is registers.NETWORK_ANSWERED:
                return self.answered
            if register is registers.NETWORK_UNANSWERED:
                return self.unanswered
            if register is registers.NETWORK_URGENT:
                return self.urgent
            if register is registers.NETWORK_FRAMES_SEEN:
                fate = FrameFate(self._fields(registers.NETWORK_FRAME_FATE)["fate"])
                return self.fates[fate]
            if register is registers.TCP_INFO:
                return self._info[self._fields(registers.TCP_INFO_WORD)["word"]]
            return self._values[address]

    def write_register(self, address: int, value: int) -> None:
        with self.lock:
            if self.closed is not None:
                raise DeviceClosed(self.closed)
            register = BY_ADDRESS[address]
            assert register.constant is None, "a constant was written"
            if register is registers.NETWORK_COMMAND:
                assert not self._busy, "a command while one is under way would wait for ever"
                self._command(NetworkOpcode(value))
            elif register is registers.NETWORK_INTERRUPT_STATUS:
                self._values[address] &= ~value
            else:
                assert not (self._busy and address in STAGING), "arguments changed too early"
                self._values[address] = value
                if register is registers.NETWORK_PRODUCER:
                    self._transmit()
                elif register is registers.NETWORK_CONSUMERS:
                    self._fill()
                elif register is registers.NETWORK_ENABLE and not value & 1:
                    fields = self._fields(registers.NETWORK_CONSUMERS)
                    self._entry, self._slot = fields["queue_consumer"], fields["slot_consumer"]
            self.lock.notify_all()

    # Rings of the driver.

    def _ring(self, name: str, octets: int) -> tuple[int, int]:
        """Address and places of one of the three rings; it has to be aligned."""
        low = getattr(registers, f"NETWORK_{name.upper()}_LOW")
        high = getattr(registers, f"NETWORK_{name.upper()}_HIGH")
        address = self._wide(low, high)
        places = 1 << self._fields(registers.NETWORK_RINGS)[f"{name}_log2"]
        assert address % (places * octets) == 0, f"the ring of {name} is not aligned"
        return address, places

    def _enabled(self, name: str) -> bool:
        return bool(self._fields(registers.NETWORK_ENABLE)[name])

    def _put(self, octets: bytes) -> None:
        """Write an entry without its phase, which is added."""
        address, places = self._ring("queue", NETWORK_ENTRY_OCTETS)
        phase = 1 ^ (self._entry // places & 1)
        if self.loses:
            self.loses -= 1
            self._raise(failed=1)
        else:
            place = address + self._entry % places * NETWORK_ENTRY_OCTETS
            self.memory(place, NETWORK_ENTRY_OCTETS)[:] = octets + bytes((phase,))
        self._entry = (self._entry + 1) % 65536
        self._raise(queue=1)

    def _raise(self, **bits: int) -> None:
        address = registers.NETWORK_INTERRUPT_STATUS.address
        with self.lock:
            self._values[address] |= registers.NETWORK_INTERRUPT_STATUS.pack(**bits)
            self.lock.notify_all()

    def _has_place(self) -> bool:
        if not self._enabled("receive"):
            return False
        _, places = self._ring("queue", NETWORK_ENTRY_OCTETS)
        consumer = self._fields(registers.NETWORK_CONSUMERS)["queue_consumer"]
        return (self._entry - consumer) % 65536 < places

    def notice(
        self, kind: NetworkKind, connection: int, sent: int, received: int, flags: NetworkFlags
    ) -> None:
        """One waits for a place."""
        self._notices.append((kind, connection, sent, received, flags))
        self._fill()

    def _fill(self) -> None:
        while self._notices and self._has_place():
            kind, connection, sent, received, flags = self._notices.popleft()
            numbers = sent.to_bytes(4, "little") + received.to_bytes(4, "little")
            self._put(numbers + bytes(4) + bytes((connection, kind, flags)))

    def raw(self, frame: bytes) -> None:
        """A frame for the driver, which needs a slot and a place."""
        with self.lock:
            self._write_frame(frame)

    def _write_frame(self, frame: bytes) -> None:
        size = slot_octets(self.mtu)
        self._fill()
        address, slots = self._ring("slots", size)
        consumer = self._fields(registers.NETWORK_CONSUMERS)["slot_consumer"]
        has_slot = (self._slot - consumer) % 65536 < slots
        if self._notices or not has_slot or not self._has_place():
            self._dropped += 1
            return
        octets = len(frame)
        if self.fails:
            self.fails -= 1
            octets = 0
            self._raise(failed=1)
        else:
            place = address + self._slot % slots * size
            self.memory(place, len(frame))[:] = frame
        lengths = octets.to_bytes(2, "little") + self._slot.to_bytes(2, "little")
        self._slot = (self._slot + 1) % 65536
        self._put(bytes(8) + lengths + bytes((0, NetworkKind.FRAME, 0)))

    def _transmit(self) -> None:
        producer = self._fields(registers.NETWORK_PRODUCER)["producer"]
        if not self._enabled("transmit"):
            self._done = producer
            return
        while self._done != producer and not self.stopped:
            address, places = self._ring("frames", FRAME_DESCRIPTOR_OCTETS)
            place = address + self._done % places * FRAME_DESCRIPTOR_OCTETS
            descriptor = bytes(self.memory(place, FRAME_DESCRIPTOR_OCTETS))
            start = int.from_bytes(descriptor[:8], "little")
            octets = int.from_bytes(descriptor[8:10], "little")
            assert start % 8 == 0 and 14 <= octets <= self.mtu + 14
            assert not any(descriptor[10:])
            self._done = (self._done + 1) % 65536
            self._leaves(bytes(self.memory(start, octets)))

    stopped = False
    """Whether the MAC takes no frame of the driver."""

    def _leaves(self, frame: bytes) -> None:
        self.sent.append(frame)
        self.wire(frame)

    # The engine.

    @property
    def deadline(self) -> int | None:
        """When a timer is due."""
        times = (each.tcp.next_deadline() for each in self.engine.values() if not each.over)
        return min((time for time in times if time is not None), default=None)

    def run_to(self, now: int) -> None:
        """Time goes on."""
        with self.lock:
            self.now = max(self.now, now)
            for connection in list(self.engine.values()):
                due = connection.tcp.next_deadline()
                if not connection.over and due is not None and due <= self.now:
                    connection.tcp.timer(self.now)
                    self._serve(connection)

    def _serve(self, connection: EngineConnection) -> None:
        for frame in connection.serve(self.now):
            self._leaves(frame)

    def frame(self, frame: bytes) -> None:
        """One comes from the wire."""
        with self.lock:
            if not self._receive(frame):
                self.raw(frame)

    def _mac(self) -> bytes:
        value = self._wide(registers.NETWORK_MAC_LOW, registers.NETWORK_MAC_HIGH)
        return value.to_bytes(8, "little")[:6]

    def _receive(self, frame: bytes) -> bool:
        if frame[:6] != self._mac() or frame[12:14] != b"\x08\x00":
            return False
        try:
            packet, segment = decode_packet(frame[14:])
        except MalformedError:
            return False
        ends = self._ends_of(packet, segment.destination_port, segment.source_port)
        number = self.lookup.get(ends)
        if number is None or self.engine[number].over:
            return False
        self.engine[number].arrives(self.now, segment)
        self._serve(self.engine[number])
        return True

    @staticmethod
    def _ends_of(packet: ipv4.Packet, local: int, remote: int) -> tuple[Any, Any]:
        return (packet.destination, local), (packet.source, remote)

    # Commands.

    def _command(self, opcode: NetworkOpcode) -> None:
        self.commands.append(opcode)
        number = self._fields(registers.TCP_CONNECTION)["connection"]
        lane = self._fields(registers.TCP_CONNECTION)["lane"]
        valid = number < self.connections and lane < self.connections
        self._invalid = not (valid and self._do(opcode, number, lane))
        self._busy = self.busy_reads.get(opcode, 1)

    def _do(self, opcode: NetworkOpcode, number: int, lane: int) -> bool:
        """Whether it was valid."""
        now = self.now
        octets = self._value(registers.TCP_OCTETS)
        if opcode is NetworkOpcode.HEADER:
            row = HeaderRow(self._fields(registers.TCP_HEADER_ROW)["row"])
            value = self._wide(registers.TCP_HEADER_LOW, registers.TCP_HEADER_HIGH)
            self._rows.setdefault(number, {})[row] = value.to_bytes(8, "little")
            return True
        if opcode is NetworkOpcode.ESTABLISH:
            return self._establish(number)
        if opcode is NetworkOpcode.INFO:
            known = self.engine[number].information() if number in self.engine else []
            self._info[: len(known)] = known
            counts = self.counts[number].words()
            self._info[-len(counts) :] = counts
            return True
        connection = self.engine[number]
        if opcode is NetworkOpcode.SEGMENT:
            flags = self._fields(registers.TCP_FLAGS)
            numbers = self._value(registers.TCP_NUMBER), self._value(registers.TCP_ACKNOWLEDGMENT)
            if not connection.over:
                connection.segment(now, numbers, flags["control"], flags["window"], octets)
        elif opcode is NetworkOpcode.SEND:
            assert connection.lane is None
            if not octets:
                return False
            connection.send(now, octets)
        elif opcode is NetworkOpcode.RELEASE:
            assert connection.lane is None
            if not octets:
                return False
            connection.release(now, octets)
        elif opcode is NetworkOpcode.ATTACH:
            assert lane not in self.lanes
            connection.attach(lane, self._value(registers.TCP_RECEIVE_NEXT))
            self.lanes[lane] = connection
        elif opcode is NetworkOpcode.DETACH:
            self.lanes = {each: it for each, it in self.lanes.items() if it is not connection}
            connection.lane = None
            self._rest(connection)
        elif opcode is NetworkOpcode.CLOSE:
            connection.close(now)
        elif opcode is NetworkOpcode.ABORT:
            connection.abort(now)
        elif opcode is NetworkOpcode.RESIZE:
            emss = self._value(registers.TCP_SEGMENT_SIZE)
            if not 1 <= emss <= self.mtu - 40:
                return False
            if not connection.over:
                connection.tcp.resize(now, emss)
        elif opcode is NetworkOpcode.FORGET:
            return self._forget(connection)
        else:
            raise AssertionError(f"{opcode} is not expected")
        self._serve(connection)
        return True

    def _forget(self, connection: EngineConnection) -> bool:
        """Its ends; the number rests until no lane has the stream."""
        assert connection.over and not connection.forgotten
        assert self.lookup.pop(self._staged_ends()) == connection.number
        connection.forgotten = True
        self._rest(connection)
        return True

    def _rest(self, connection: EngineConnection) -> None:
        if connection.forgotten and connection.lane is None:
            del self.engine[connection.number]

    def _staged_ends(self) -> tuple[tuple[IPv4Address, int], tuple[IPv4Address, int]]:
        ports = self._fields(registers.TCP_PORTS)
        return (
            (IPv4Address(self._value(registers.TCP_LOCAL)), ports["local"]),
            (IPv4Address(self._value(registers.TCP_REMOTE)), ports["remote"]),
        )

    def _establish(self, number: int) -> bool:
        assert number not in self.engine, "the number is in use"
        emss = self._value(registers.TCP_SEGMENT_SIZE)
        if self.refuses or not 1 <= emss <= self.mtu - 40:
            return False
        options = self._fields(registers.TCP_OPTIONS)
        sizes = self._fields(registers.TCP_RINGS)
        rx = self._wide(registers.TCP_RX_RING_LOW, registers.TCP_RX_RING_HIGH)
        tx = self._wide(registers.TCP_TX_RING_LOW, registers.TCP_TX_RING_HIGH)
        assert rx % 8 == tx % 8 == 0
        rings = Ring(self.memory, rx, sizes["rx"]), Ring(self.memory, tx, sizes["tx"])
        begin = Begin(
            *self._staged_ends(),
            self._value(registers.TCP_SEND_NEXT),
            self._value(registers.TCP_SEND_WINDOW),
            self._value(registers.TCP_WINDOW_FROM),
            self._value(registers.TCP_RECEIVE_NEXT),
            self._value(registers.TCP_RECEIVE_EDGE),
            self._value(registers.TCP_CWND),
            self._value(registers.TCP_SRTT8),
            self._value(registers.TCP_RTTVAR4),
            self._value(registers.TCP_RTO),
            bool(options["sampled"]),
            options["send_shift"],
            options["receive_shift"],
            emss,
        )
        settings = Settings(
            mss=self.mtu - 40,
            receive_buffer=rings[0].octets,
            rto_minimum=self._value(registers.NETWORK_RTO_MINIMUM),
            rto_maximum=self._value(registers.NETWORK_RTO_MAXIMUM),
            r2=self._value(registers.NETWORK_R2),
            delayed_ack=self._value(registers.NETWORK_DELAYED_ACK),
        )
        connection = EngineConnection(
            *(self.now, number, begin, self._rows[number], rings, settings, self.notice),
            self.counts[number],
        )
        ends = begin.local, begin.remote
        assert ends not in self.lookup
        self.lookup[ends] = number
        self.engine[number] = connection
        self._serve(connection)
        return True
