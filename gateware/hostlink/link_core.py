"""What all host links have in common: line, session, registers, host memory, interrupts."""

from amaranth.hdl import Cat, Const, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_WIDTH, RnicConfig
from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.hostlink.frame_receiver import FrameReceiver
from stagecoach.gateware.hostlink.frame_transmitter import FrameTransmitter, Stuffer
from stagecoach.gateware.hostlink.memory_bridge import ReadBridge, WriteBridge
from stagecoach.gateware.hostlink.octets import OCTET, MessageArbiter, MessageSlot
from stagecoach.gateware.hostlink.register_bridge import RegisterBridge
from stagecoach.gateware.registers.ports import AxiLiteSignature
from stagecoach.hw.interface.hostlink import MAXIMUM_BEATS, VERSION, WINDOW, Kind

RESTART_CYCLES = 16
FIELD_OCTETS = 7
"""Payload of the longest message that is not data: LLP_EVENT."""


class Dispatcher(wiring.Component):
    """Messages of the host to those whom they are for; a byte a cycle, if those take it.

    Parameters
    ----------
    kinds: of the messages that are data.

    Members
    -------
    i: messages: kind and payload.
    data: for each of `kinds`, its messages without their kind.
    kind, fields: of the other messages, the first byte of the payload in the lowest bits; they
        stay while `valid` until `ready`.
    """

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self._kinds = kinds
        super().__init__(
            {
                "i": In(stream.Signature(OCTET)),
                "data": Out(stream.Signature(OCTET)).array(len(kinds)),
                "valid": Out(1),
                "ready": In(1),
                "kind": Out(8),
                "fields": Out(8 * FIELD_OCTETS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(range(FIELD_OCTETS + 1))
        with m.FSM():
            with m.State("KIND"):  # waits for a message
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [self.kind.eq(self.i.p.octet), count.eq(0)]
                with m.If(self.i.valid & ~self.i.p.last):
                    m.next = "FIELDS"
                    with m.Switch(self.i.p.octet):
                        for kind in self._kinds:
                            with m.Case(kind):
                                m.next = kind.name
            for kind, port in zip(self._kinds, self.data, strict=True):
                with m.State(kind.name):  # passes bytes on
                    m.d.comb += [
                        port.valid.eq(self.i.valid),
                        port.payload.eq(self.i.payload),
                        self.i.ready.eq(port.ready),
                    ]
                    with m.If(self.i.valid & port.ready & self.i.p.last):
                        m.next = "KIND"
            with m.State("FIELDS"):  # collects the fields
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    with m.If(count != FIELD_OCTETS):
                        m.d.sync += [
                            self.fields.word_select(count, 8).eq(self.i.p.octet),
                            count.eq(count + 1),
                        ]
                    with m.If(self.i.p.last):
                        m.next = "MESSAGE"
            with m.State("MESSAGE"):  # waits until it is taken
                m.d.comb += self.valid.eq(1)
                with m.If(self.ready):
                    m.next = "KIND"
        return m


class LinkCore(wiring.Component):
    """The part of a host link that every device needs; who has it adds messages of its own.

    The device makes an access to host memory, and takes an answer, without waiting for anything
    else of this link, except that its sends may wait for reads. A message of the host that is not
    taken holds up all after it: `data` and `message` are always taken soon.

    Parameters
    ----------
    config: of the device; bursts of up to 32 words, ports of 64 bits.
    clock_hz: told to the host. retry_cycles: see `FrameTransmitter`.
    events, memory_log2: told to the host, see HELLO in docs/hostlink.md.
    irqs: interrupts of the device.
    kind: of the host's messages that are passed on as data. sources: streams of own messages.

    Members
    -------
    i, o: bytes of the line.
    registers: AXI4-Lite, the device is its slave. memory: AXI4, of the device.
    irq: of the device, a bit for each.
    restart: the device is to be reset: high for 16 cycles when a session begins.
    data: messages of `kind`, without it.
    message_valid, message_ready, kind, fields: other messages, as `Dispatcher` has them.
    sources: messages for the host, kind and payload.
    mark, passed: see `RegisterBridge`.
    """

    def __init__(
        self,
        config: RnicConfig,
        clock_hz: int,
        retry_cycles: int,
        *,
        events: int,
        memory_log2: int,
        irqs: int,
        kind: Kind,
        sources: int,
    ):
        if config.max_burst_beats > MAXIMUM_BEATS:
            raise ValueError(
                f"RnicConfig.max_burst_beats is {config.max_burst_beats}; "
                f"allowed with a host link: up to {MAXIMUM_BEATS}"
            )
        if config.data_width != WORD_WIDTH:
            raise ValueError(
                f"RnicConfig.data_width is {config.data_width}; "
                f"allowed with a host link: {WORD_WIDTH}"
            )
        if not 2 <= retry_cycles:
            raise ValueError(f"retry_cycles is {retry_cycles}; allowed: 2 and more")
        self._clock_hz = int(clock_hz)
        self._retry_cycles = retry_cycles
        self._events = events
        self._memory_log2 = memory_log2
        self._data_kind = kind
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "registers": Out(AxiLiteSignature()),
                "memory": In(AxiSignature()),
                "irq": In(irqs),
                "restart": Out(1),
                "data": Out(stream.Signature(OCTET)),
                "message_valid": Out(1),
                "message_ready": In(1),
                "kind": Out(8),
                "fields": Out(8 * FIELD_OCTETS),
                "sources": In(stream.Signature(OCTET)).array(sources),
                "mark": Out(1),
                "passed": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        restart = self.restart

        def fresh(component: wiring.Component) -> object:
            """A component that begins anew with each session."""
            return ResetInserter(restart)(component)

        m.submodules.receiver = receiver = FrameReceiver()
        m.submodules.stuffer = stuffer = Stuffer()
        transmitter = FrameTransmitter(self._retry_cycles)
        dispatcher = Dispatcher((Kind.READ_DATA, self._data_kind))
        registers = RegisterBridge()
        reads, writes = ReadBridge(), WriteBridge()
        interrupt = MessageSlot(Kind.INTERRUPT, 1)
        sources = (interrupt.o, registers.o, reads.o, writes.o)
        arbiter = MessageArbiter(len(sources) + len(self.sources))
        m.submodules.transmitter = fresh(transmitter)
        m.submodules.dispatcher = fresh(dispatcher)
        m.submodules.registers = fresh(registers)
        m.submodules.reads = fresh(reads)
        m.submodules.writes = fresh(writes)
        m.submodules.interrupt = fresh(interrupt)
        m.submodules.arbiter = fresh(arbiter)

        # The line
        wiring.connect(m, wiring.flipped(self.i), receiver.i)
        wiring.connect(m, transmitter.o, stuffer.i)
        wiring.connect(m, stuffer.o, wiring.flipped(self.o))
        wiring.connect(m, receiver.o, dispatcher.i)
        m.d.comb += [
            transmitter.expected.eq(receiver.expected),
            transmitter.acknowledged.eq(receiver.acknowledged),
            transmitter.acknowledged_number.eq(receiver.acknowledged_number),
            transmitter.again.eq(receiver.again),
            transmitter.acknowledge.eq(receiver.acknowledge),
            transmitter.reject.eq(receiver.reject),
        ]
        self._elaborate_session(m, receiver, transmitter)

        # The ports
        wiring.connect(m, registers.bus, wiring.flipped(self.registers))
        connect_axi(m, self.memory, reads.axi, writes.axi)
        m.d.comb += [self.mark.eq(registers.mark), registers.passed.eq(self.passed)]
        read_data, other_data = dispatcher.data
        wiring.connect(m, read_data, reads.i)
        wiring.connect(m, other_data, wiring.flipped(self.data))
        self._elaborate_fields(m, dispatcher, registers, writes)

        told = Signal(len(self.irq))
        telling = Signal()
        m.d.comb += [interrupt.i.valid.eq(telling), interrupt.i.payload.eq(told)]
        with m.If(restart):
            m.d.sync += [told.eq(0), telling.eq(0)]
        with m.Elif(telling):
            m.d.sync += telling.eq(~interrupt.i.ready)
        with m.Elif(self.irq != told):
            m.d.sync += [told.eq(self.irq), telling.eq(1)]

        outer = [wiring.flipped(port) for port in self.sources]
        for source, port in zip((*sources, *outer), arbiter.i, strict=True):
            wiring.connect(m, source, port)
        wiring.connect(m, arbiter.o, transmitter.i)
        return m

    def _elaborate_session(
        self, m: Module, receiver: FrameReceiver, transmitter: FrameTransmitter
    ) -> None:
        session = Signal()
        nonce = Signal(32)
        left = Signal(range(RESTART_CYCLES + 1))
        m.d.comb += [
            receiver.restart.eq(self.restart),
            receiver.session.eq(session & ~self.restart),
            transmitter.hello_payload.eq(
                Cat(
                    nonce,
                    Const(VERSION, 8),
                    Const(self._events, 8),
                    Const(WINDOW, 8),
                    Const(self._memory_log2, 8),
                    Const(self._clock_hz, 32),
                )
            ),
        ]
        with m.FSM(name="session"):
            with m.State("OPEN"):  # waits for the host to begin
                m.d.sync += left.eq(RESTART_CYCLES)
                with m.If(receiver.open):
                    m.d.sync += [session.eq(1), nonce.eq(receiver.nonce)]
                    with m.If(session & (receiver.nonce == nonce)):
                        m.next = "HELLO"
                    with m.Else():
                        m.d.sync += self.restart.eq(1)
                        m.next = "RESTART"
            with m.State("RESTART"):  # waits until everything is reset
                m.d.sync += left.eq(left - 1)
                with m.If(left == 1):
                    m.d.sync += self.restart.eq(0)
                    m.next = "SETTLE"
            with m.State("SETTLE"):  # the last cycle of the reset
                m.next = "HELLO"
            with m.State("HELLO"):  # answers
                m.d.comb += transmitter.hello.eq(1)
                m.next = "OPEN"

    def _elaborate_fields(
        self,
        m: Module,
        dispatcher: Dispatcher,
        registers: RegisterBridge,
        writes: WriteBridge,
    ) -> None:
        fields, access = dispatcher.fields, registers.access
        m.d.comb += [
            access.p.address.eq(fields[:16]),
            access.p.value.eq(fields[16:48]),
            access.p.write.eq(dispatcher.kind == Kind.REGISTER_WRITE),
            writes.response.eq(fields[:2]),
            self.kind.eq(dispatcher.kind),
            self.fields.eq(fields),
        ]
        with m.Switch(dispatcher.kind):
            with m.Case(Kind.REGISTER_READ, Kind.REGISTER_WRITE):
                m.d.comb += [access.valid.eq(dispatcher.valid), dispatcher.ready.eq(access.ready)]
            with m.Case(Kind.WRITE_DONE):
                m.d.comb += [writes.done.eq(dispatcher.valid), dispatcher.ready.eq(1)]
            with m.Default():
                m.d.comb += [
                    self.message_valid.eq(dispatcher.valid),
                    dispatcher.ready.eq(self.message_ready),
                ]
