"""A transport to a device of a few lines: registers, commands and rings, but no datapath."""

import ctypes
from typing import Any

from stagecoach.host_driver import entries, registers
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.transport import sockets
from stagecoach.host_driver.transport.base import ByteStream, TransportError
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import (
    SEND_ENTRY_OCTETS,
    SEND_UNIT_OCTETS,
    CompletionFlags,
    CompletionOpcode,
    send_units,
)
from stagecoach.hw.interface.registers import registers as described

QPS, CQS, STAGS_LOG2, READS = 4, 4, 4, 8
RESET, INIT, RTS, ERR = range(4)


class _DeviceRing:
    """A completion or event ring as the device sees it.

    Attributes
    ----------
    producer: number after the last entry. unanswered: the last ones, of which host memory has not
        answered the writes. consumer: what the driver has told.
    """

    def __init__(self, memory: memoryview, log2: int, octets: int):
        self.memory = memory
        self.log2 = log2
        self.octets = octets
        self.producer = 0
        self.unanswered = 0
        self.consumer = 0
        self.armed = False

    def interrupts(self) -> bool:
        """Whether it raises the interrupt now; it does so once."""
        raised = self.armed and self.producer != self.consumer
        self.armed = self.armed and not raised
        return raised

    def write(self, layout: entries.EntryLayout, **values: int | bytes) -> None:
        assert (self.producer - self.consumer) & 0xFFFF < 1 << self.log2, "the ring is full"
        slot = self.producer & (1 << self.log2) - 1
        phase = 1 ^ self.producer >> self.log2 & 1
        layout.pack_into(self.memory, slot * self.octets, phase=phase, **values)
        self.producer = self.producer + 1 & 0xFFFF


class FakeDevice:
    """A `Transport`.

    Attributes
    ----------
    words: registers. commands: opcodes in order. stags: STag to its length.
    doorbells: name of the doorbell and its fields, in order.
    taken: number of the entry of a shared ring that each QP has taken and not completed.
    shared: rings that are shared. limits: entries that were told of each.
    attached: connection to stream. refuse: opcodes that the device calls invalid.
    """

    def __init__(self) -> None:
        self.words = {register.address: register.constant or 0 for register in described()}
        self.words[registers.QUEUES.address] = registers.QUEUES.pack(qps=QPS, cqs=CQS)
        self.words[registers.LIMITS.address] = registers.LIMITS.pack(
            stags_log2=STAGS_LOG2, read_queue_depth=READS, pending_sends=8
        )
        self.words[registers.CAPABILITIES.address] = registers.CAPABILITIES.pack(
            immediate_data=1, atomics=1, swap=1, srq=1
        )
        self.commands: list[int] = []
        self.doorbells: list[tuple[str, dict[str, int]]] = []
        self.stags: dict[int, int] = {}
        self.states = dict.fromkeys(range(QPS), RESET)
        self.causes = dict.fromkeys(range(QPS), 0)
        self.taken: dict[int, int] = {}
        self.shared: set[int] = set()
        self.limits: list[dict[str, int]] = []
        self.rings: dict[int, _DeviceRing] = {}
        self.attached: dict[int, ByteStream] = {}
        self.detach_timeouts: list[float] = []
        self.mapped: dict[int, memoryview] = {}
        self.refuse: set[int] = set()
        self.invalid = False
        self.stuck = False
        self.closed = False

    @property
    def info(self) -> dict[str, Any]:
        return {"kind": "fake"}

    # Registers and commands

    def field(self, register: registers.Register, name: str) -> int:
        return register.unpack(self.words[register.address])[name]

    def wide(self, low: registers.Register, high: registers.Register) -> int:
        return self.field(low, "value") | self.field(high, "value") << 32

    def read_register(self, address: int) -> int:
        if address == registers.COMMAND_STATUS.address:
            return registers.COMMAND_STATUS.pack(busy=int(self.stuck), invalid=int(self.invalid))
        if address == registers.QP_STATE.address:
            qp = self.field(registers.QP_NUMBER, "qp")
            return registers.QP_STATE.pack(state=self.states[qp], cause=self.causes[qp])
        if address == registers.QP_TAKEN.address:
            qp = self.field(registers.QP_NUMBER, "qp")
            taken = self.taken.get(qp)
            return registers.QP_TAKEN.pack(index=taken or 0, taken=int(taken is not None))
        if address == registers.CQ_ANSWERED.address:
            ring = self.rings[self.field(registers.CQ_NUMBER, "cq")]
            return registers.CQ_ANSWERED.pack(entries=ring.producer - ring.unanswered & 0xFFFF)
        return self.words[address]

    def write_register(self, address: int, value: int) -> None:
        if address not in self.words:
            raise TransportError(f"no register at {address:#x}")
        if address == registers.COMMAND.address:
            self._command(value)
        for name in ("SEND_DOORBELL", "RECEIVE_DOORBELL", "CQ_DOORBELL"):
            register = getattr(registers, name)
            if address == register.address:
                fields = register.unpack(value)
                self.doorbells.append((name, fields))
                if name == "CQ_DOORBELL":
                    ring = self.rings[fields["cq"]]
                    ring.consumer = fields["consumer"]
                    ring.armed = ring.armed or bool(fields["arm"])
                    self._interrupt(fields["cq"])
        if address == registers.INTERRUPT_STATUS.address:
            value = self.words[address] & ~value
        self.words[address] = value

    def _interrupt(self, ring: int) -> None:
        if self.rings[ring].interrupts():
            name = "event" if ring == CQS else "completion"
            self.words[registers.INTERRUPT_STATUS.address] |= registers.INTERRUPT_STATUS.pack(
                **{name: 1}
            )

    def _command(self, opcode: int) -> None:
        self.commands.append(opcode)
        self.invalid = opcode in self.refuse
        if self.invalid:
            return
        qp = self.field(registers.QP_NUMBER, "qp")
        cq = self.field(registers.CQ_NUMBER, "cq")
        stag = self.field(registers.STAG_VALUE, "stag")
        match opcode:
            case CommandOpcode.QP_CREATE:
                self.states[qp], self.causes[qp] = INIT, 0
            case CommandOpcode.QP_CONNECT:
                self.states[qp] = RTS
            case CommandOpcode.QP_STOP:
                self.states[qp] = ERR
            case CommandOpcode.QP_DESTROY:
                self.states[qp] = RESET
            case CommandOpcode.SRQ_CREATE:
                self.shared.add(qp)
            case CommandOpcode.SRQ_DESTROY:
                self.shared.discard(qp)
            case CommandOpcode.SRQ_LIMIT:
                limit = registers.SRQ_LIMIT.unpack(self.words[registers.SRQ_LIMIT.address])
                self.limits.append({"srq": qp} | limit)
            case CommandOpcode.STAG_WRITE:
                self.stags[stag] = self.wide(registers.STAG_LENGTH_LOW, registers.STAG_LENGTH_HIGH)
            case CommandOpcode.STAG_RESET:
                self.stags.clear()
            case CommandOpcode.STAG_INVALIDATE:
                self.stags.pop(stag, None)
            case CommandOpcode.CQ_ENABLE:
                base = self.wide(registers.CQ_BASE_LOW, registers.CQ_BASE_HIGH)
                log2 = self.field(registers.CQ_SIZE, "log2")
                self.rings[cq] = _DeviceRing(self.mapped[base], log2, entries.COMPLETION.size)
            case CommandOpcode.CQ_DISABLE:
                self.rings.pop(cq, None)

    # What the device writes

    def complete(
        self, cq: int, qp: int, index: int, opcode: int, length: int = 0, **fields: int
    ) -> None:
        """Writes a completion entry; `fields` are those that are not named here, or else 0."""
        self.rings[cq].write(
            entries.COMPLETION, qp=qp, index=index, opcode=opcode, length=length, **fields
        )
        self._interrupt(cq)

    def receive_invalidating(self, cq: int, qp: int, index: int, stag: int) -> None:
        """A Send with Invalidate has come: the STag is invalid when its completion is there."""
        self.stags.pop(stag)
        flags = CompletionFlags.INVALIDATED
        self.complete(cq, qp, index, CompletionOpcode.RECEIVE, flags=flags, invalidated_stag=stag)

    def event(
        self,
        qp: int,
        cause: Cause,
        index: int = 0,
        header: bytes = b"",
        ulpdu_length: int | None = None,
    ) -> None:
        """Stops a QP and writes an event entry; the ULPDU is as long as `header` if not given.

        Of a Terminate `header` is what comes after its DDP header.
        """
        if cause == Cause.TERMINATE_RECEIVED:
            index = int.from_bytes(header[18:20].ljust(2, b"\xee"), "big")
        self.states[qp], self.causes[qp] = ERR, cause
        self.rings[CQS].write(
            entries.EVENT,
            qp=qp,
            cause=cause,
            index=index,
            ulpdu_length=len(header) if ulpdu_length is None else ulpdu_length,
            header=header[:18].ljust(18, b"\xee"),
        )
        self._interrupt(CQS)

    def srq_event(self, srq: int, cause: Cause, index: int = 0) -> None:
        """Writes an event entry of a shared ring."""
        self.rings[CQS].write(
            entries.EVENT, qp=srq, srq=1, cause=cause, index=index, header=bytes(18)
        )
        self._interrupt(CQS)

    # The rest of a transport

    def map_memory(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        self.mapped[address] = view
        return address

    def unmap_memory(self, address: int) -> None:
        self.mapped.pop(address).release()

    def listen(self, host: str, port: int) -> sockets.SocketListener:
        return sockets.SocketListener(host, port)

    def connect(self, host: str, port: int, timeout: float | None = None) -> sockets.SocketStream:
        return sockets.connect(host, port, timeout)

    def attach(self, connection: int, stream: ByteStream) -> None:
        self.attached[connection] = stream

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        self.detach_timeouts.append(timeout)
        if connection not in self.attached:
            raise TransportError(f"connection {connection} is not attached")
        self.attached.pop(connection).close()

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        return True

    def close(self) -> None:
        for stream in self.attached.values():
            stream.close()
        self.closed = True

    def __enter__(self) -> "FakeDevice":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NoStream:
    """In the place of a TCP connection of which nothing is wanted."""

    def close(self) -> None:
        pass


def send_entry(verbs: Any, index: int) -> dict[str, Any]:
    """The entry with that number in the send ring of the device's QP."""
    device = verbs.device
    ring = device.mapped[device.wide(registers.QP_SEND_BASE_LOW, registers.QP_SEND_BASE_HIGH)]
    return entry_at(ring, index)


def entry_at(ring: memoryview, index: int) -> dict[str, Any]:
    """The send entry with that number; a second unit that it does not have is zero."""

    def unit(number: int) -> bytes:
        offset = number * SEND_UNIT_OCTETS % len(ring)
        return bytes(ring[offset : offset + SEND_UNIT_OCTETS])

    first = memoryview(unit(index).ljust(SEND_ENTRY_OCTETS, b"\0"))
    entry = entries.SEND.unpack_from(first, 0)
    if send_units(int(entry["opcode"]), int(entry["element_count"])) == 1:
        return entry
    return entries.SEND.unpack_from(memoryview(unit(index) + unit(index + 1)), 0)
