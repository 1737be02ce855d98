"""Knows what every connection has received and which one is worth a visit."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.interfaces import NO_COLLISION, Layouts, LlpEventKind, QpCommandKind
from stagecoach.gateware.mpa.layouts import ANSWER, SMALLEST_FPDU_OCTETS, MpaLayouts
from stagecoach.gateware.mpa.receive_visits import ReceiveVisits


class _Operation(enum.Enum):
    COMMAND = 0
    EVENT = 1
    VISIT = 2
    VISIT_END = 3


class ReceiveScheduler(wiring.Component):
    """Keeps the receive side of every connection and chooses whom the deframer visits.

    A connection with enough octets for the FPDU at its head waits in a queue, once. A visit
    goes on for as long as more is available, at most `VISIT_OCTETS` and the rest of an FPDU if
    others wait. It ends where the next FPDU is not there completely; the connection comes back
    when it is. The next visit begins when nothing is left to request for the one before: its
    request goes to the LLP while the deframer is still in that.

    CREATE and DESTROY forget what the LLP announced, CONNECT starts at position 0 with what it
    announced since. RX_AVAILABLE that does not go forward is ignored.

    Members
    -------
    command, event: see `gateware.interfaces`. One takes eight cycles, as do the begin and
        the end of a visit.
    request: to the LLP. answer: the same to the deframer, before the answer can be there.
    The rest: to and from the deframer, see there.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        mpa = MpaLayouts(config)
        super().__init__(
            {
                "command": In(stream.Signature(layouts.qp_command)),
                "event": In(stream.Signature(layouts.llp_event)),
                "request": Out(stream.Signature(mpa.rx_request)),
                "answer": Out(stream.Signature(ANSWER)),
                "took": In(1),
                "start": Out(1),
                "position": Out(32),
                "qp": Out(config.qp_bits),
                "crc": Out(1),
                "markers": Out(1),
                "kill": Out(1),
                "failed": In(1),
                "inside": In(1),
                "fpdu_octets": In(17),
                "fpdu_end": In(32),
                "consumed": In(32),
                "idle": In(1),
                "left": In(1),
                "leave": Out(1),
                "closed": Out(1),
                "closed_qp": Out(config.qp_bits),
                "closed_inside": Out(1),
                "closed_taken": In(1),
            }
        )
        self._connection = data.StructLayout(
            {
                "enabled": 1,
                "crc": 1,
                "markers": 1,
                "closed": 1,
                "queued": 1,
                "consumed": 32,
                "available": 32,
                "needed": 17,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.visits = visits = ReceiveVisits(self._config)
        wiring.connect(m, visits.request, wiring.flipped(self.request))
        wiring.connect(m, visits.answer, wiring.flipped(self.answer))
        for name in ("start", "position", "qp", "crc", "markers", "kill", "leave"):
            m.d.comb += getattr(self, name).eq(getattr(visits, name))
        for name in (
            "took",
            "failed",
            "inside",
            "fpdu_octets",
            "fpdu_end",
            "consumed",
            "idle",
            "left",
        ):
            m.d.comb += getattr(visits, name).eq(getattr(self, name))
        self._elaborate_context(m, visits)
        return m

    def _elaborate_context(self, m: Module, visits: ReceiveVisits) -> None:
        """One operation on one connection at a time: read, change, write back."""
        qps = self._config.qps
        m.submodules.connections = connections = memory.Memory(
            shape=self._connection, depth=qps, init=[], attrs=NO_COLLISION
        )
        read, write = connections.read_port(), connections.write_port()
        m.submodules.waiting = waiting = fifo.SyncFIFOBuffered(
            width=self._config.qp_bits, depth=qps
        )

        operation = Signal(_Operation)
        number = Signal(self._config.qp_bits)
        kind = Signal(QpCommandKind)
        command_crc = Signal()
        command_markers = Signal()
        event_kind = Signal(LlpEventKind)
        value = Signal(32)
        old = Signal(self._connection)
        new = Signal(self._connection)
        commands = Signal()  # a command is in CHANGE
        forward = Signal()  # RX_AVAILABLE is beyond what was known
        backlog = Signal(32)
        enough = Signal()
        some = Signal()
        may_enlist, may_visit = Signal(), Signal()

        m.d.sync += commands.eq(0)
        m.d.comb += [
            visits.command.eq(commands),
            read.addr.eq(number),
            write.addr.eq(number),
            write.data.eq(new),
            waiting.w_data.eq(number),
            visits.number.eq(number),
            visits.visit.qp.eq(number),
            visits.visit.crc.eq(new.crc),
            visits.visit.markers.eq(new.markers),
            visits.visit.position.eq(new.consumed),
            visits.visit.available.eq(new.available),
            visits.available.eq(value),
            visits.others.eq(waiting.r_rdy),
        ]
        with m.If(self.closed_taken):
            m.d.sync += self.closed.eq(0)

        with m.FSM():
            # After a reset, when `new` is 0: forget every connection.
            with m.State("CLEAR"):
                m.d.comb += write.en.eq(1)
                m.d.sync += number.eq(number + 1)
                with m.If(number == qps - 1):
                    m.next = "SELECT"
            # Wait for something to do.
            with m.State("SELECT"):
                m.d.comb += [
                    self.command.ready.eq(1),
                    self.event.ready.eq(~self.command.valid),
                ]
                m.d.sync += [
                    kind.eq(self.command.payload.kind),
                    command_crc.eq(self.command.payload.crc),
                    command_markers.eq(self.command.payload.receive_markers),
                    event_kind.eq(self.event.payload.kind),
                    value.eq(self.event.payload.value),
                ]
                with m.If(self.command.valid):
                    m.d.sync += [
                        operation.eq(_Operation.COMMAND),
                        number.eq(self.command.payload.qp),
                    ]
                    m.next = "READ"
                with m.Elif(self.event.valid):
                    m.d.sync += [
                        operation.eq(_Operation.EVENT),
                        number.eq(self.event.payload.connection),
                    ]
                    m.next = "READ"
                with m.Elif(visits.ended):
                    m.d.sync += [operation.eq(_Operation.VISIT_END), number.eq(visits.end.qp)]
                    m.next = "READ"
                with m.Elif(waiting.r_rdy & visits.vacant & ~self.closed):
                    m.d.sync += [operation.eq(_Operation.VISIT), number.eq(waiting.r_data)]
                    m.next = "READ"
            # The memory reads.
            with m.State("READ"):
                m.d.comb += waiting.r_en.eq(operation == _Operation.VISIT)
                m.next = "FETCH"
            # Its word goes to a register.
            with m.State("FETCH"):
                m.d.sync += old.eq(read.data)
                m.next = "RELATE"
            # How an announced position relates to the known one.
            with m.State("RELATE"):
                m.d.sync += [
                    forward.eq(~(value - old.available)[31]),
                    commands.eq(operation == _Operation.COMMAND),
                ]
                m.next = "CHANGE"
            # What the operation says.
            with m.State("CHANGE"):
                m.d.sync += new.eq(old)
                with m.Switch(operation):
                    with m.Case(_Operation.COMMAND):
                        self._elaborate_command(m, kind, command_crc, command_markers, new)
                        with m.If(self.closed_qp == number):
                            m.d.sync += self.closed.eq(0)
                    with m.Case(_Operation.EVENT):
                        with m.If(event_kind == LlpEventKind.CLOSED):
                            m.d.sync += new.closed.eq(1)
                        with m.Elif((event_kind == LlpEventKind.RX_AVAILABLE) & forward):
                            m.d.sync += new.available.eq(value)
                            m.d.comb += visits.announce.eq(1)
                    with m.Case(_Operation.VISIT):
                        m.d.sync += new.queued.eq(0)
                    with m.Case(_Operation.VISIT_END):
                        m.d.comb += visits.written.eq(1)
                        with m.If(visits.end.held):
                            m.d.sync += [
                                new.enabled.eq(~visits.end.dead),
                                new.consumed.eq(visits.end.consumed),
                                new.needed.eq(visits.end.needed),
                            ]
                m.next = "MEASURE"
            # How much the connection has that was not consumed.
            with m.State("MEASURE"):
                m.d.sync += backlog.eq(new.available - new.consumed)
                m.next = "COMPARE"
            # Is it worth a visit?
            with m.State("COMPARE"):
                m.d.sync += [
                    enough.eq(backlog[17:].any() | (backlog[:17] >= new.needed)),
                    some.eq(backlog.any()),
                    may_enlist.eq(
                        (operation != _Operation.VISIT) & new.enabled & ~new.queued & ~visits.held
                    ),
                    may_visit.eq((operation == _Operation.VISIT) & new.enabled),
                ]
                m.next = "WRITE"
            # Write back, and begin what follows from it.
            with m.State("WRITE"):
                m.d.comb += write.en.eq(1)
                m.next = "SELECT"
                with m.If(may_enlist & (enough | new.closed)):
                    m.d.comb += [write.data.queued.eq(1), waiting.w_en.eq(1)]
                with m.If(may_visit & enough):
                    m.d.comb += visits.begin.eq(1)
                with m.Elif(may_visit & new.closed):
                    # The LLP closed and no whole FPDU is left: it is said once.
                    m.d.comb += write.data.enabled.eq(0)
                    m.d.sync += [
                        self.closed.eq(1),
                        self.closed_qp.eq(number),
                        self.closed_inside.eq(some),
                    ]

    def _elaborate_command(
        self, m: Module, kind: Signal, crc: Signal, markers: Signal, new: data.View
    ) -> None:
        with m.Switch(kind):
            with m.Case(QpCommandKind.CREATE, QpCommandKind.DESTROY):
                m.d.sync += [new.enabled.eq(0), new.closed.eq(0)]
                m.d.sync += [new.consumed.eq(0), new.available.eq(0)]
            with m.Case(QpCommandKind.CONNECT):
                m.d.sync += [
                    new.enabled.eq(1),
                    new.crc.eq(crc),
                    new.markers.eq(markers),
                    new.consumed.eq(0),
                    new.needed.eq(SMALLEST_FPDU_OCTETS),
                ]
            with m.Case(QpCommandKind.STOP):
                m.d.sync += new.enabled.eq(0)
