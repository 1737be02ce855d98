"""The receive side of every connection: what it has received, and whether it is worth a visit."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind, QpCommandKind
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.mpa.layouts import SMALLEST_FPDU_OCTETS, MpaLayouts
from stagecoach.gateware.mpa.ports import ClosedPort
from stagecoach.gateware.stream.buffer import StreamBuffer

EVENTS_IN_A_ROW = 3
"""Events that are looked at while a connection waits for its visit."""

BEGINS = 2
"""Visits that may be begun, or be about to, and not be taken by those who request bytes."""


class Operation(enum.Enum):
    """What is done with a connection."""

    NONE = 0
    CLEAR = 1  # after a reset
    COMMAND = 2
    EVENT = 3
    BEGIN = 4  # it is the first one of those that wait
    END = 5


class ReceiveTable(wiring.Component):
    """Keeps what was announced of every connection and consumed, and says whom to visit.

    A connection with enough bytes for the FPDU at its head waits in a queue, once, and has one
    visit at a time. If nobody waits, the visit begins without the queue.

    One operation begins every two cycles, the first one in any cycle: the end of a visit before a
    command, before an event or a begin; after `EVENTS_IN_A_ROW` events a begin comes first. Six
    cycles later the connection is written back; an operation on the same connection that begins
    earlier gets what the ones before it made of it. After a reset all connections are forgotten,
    which takes two cycles each.

    CREATE and DESTROY forget what the LLP announced, CONNECT starts at position 0 with what it
    announced since. RX_AVAILABLE that does not go forward (mod 2^32) is ignored. After a command,
    what a visit comes to means nothing, and the next one begins when that has ended.

    While `begin` is not taken, commands, events and ends still are; while `closed` is not taken, no
    visit begins.

    Members
    -------
    command: taken within four cycles, if ends come every fourth cycle at most.
    event, waiting, taken: see `ReceiveEvents`.
    begin: visits; bytes are multiples of 4. others: one waits, or is about to begin.
    end_waiting, end: a visit came to that. end_taken: a pulse, in the second cycle in which it
        waits at the latest.
    forget: a pulse, a command came for the connection `number`. announce: a pulse, bytes of it up
        to `available` can be requested, a multiple of 4. begun: a pulse, it got a visit: an item
        of `begin`.
    closed: `ClosedPort`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        layouts = Layouts(config)
        mpa = MpaLayouts(config)
        self._mpa = mpa
        super().__init__(
            {
                "command": In(stream.Signature(layouts.qp_command)),
                "waiting": In(1),
                "event": In(layouts.llp_event),
                "taken": Out(1),
                "begin": Out(stream.Signature(mpa.begin)),
                "others": Out(1),
                "end_waiting": In(1),
                "end": In(mpa.visit_end),
                "end_taken": Out(1),
                "number": Out(config.qp_bits),
                "forget": Out(1),
                "announce": Out(1),
                "available": Out(32),
                "begun": Out(1),
                "closed": Out(ClosedPort(config)),
            }
        )
        self._connection = data.StructLayout(
            {
                "enabled": 1,
                "crc": 1,
                "markers": 1,
                "closed": 1,
                "queued": 1,  # it waits for its visit
                "visited": 1,  # it has one
                "held": 1,  # and what that comes to counts
                "consumed": 32,
                "available": 32,
                "needed": 17,
            }
        )
        self._item = data.StructLayout(
            {
                "operation": Operation,
                "number": config.qp_bits,
                "kind": QpCommandKind,
                "crc": 1,
                "markers": 1,
                "close": 1,  # the event CLOSED
                "dead": 1,
                "value": 32,  # announced or consumed
                "needed": 17,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.connections = self._memory = memory.Memory(
            shape=self._connection, depth=self._config.qps, init=[], attrs=NO_COLLISION
        )
        m.submodules.waiting = self._waiting = fifo.SyncFIFOBuffered(
            width=self._config.qp_bits, depth=self._config.qps
        )
        # An operation is in each of these for two cycles, the first one with `first`.
        self._first = Signal()
        self._read = Signal(self._item)  # of which the connection is read
        self._relate = Signal(self._item)  # ... is related to what comes
        self._decide = Signal(self._item)  # ... is changed
        # Visits that may yet be begun: each operation that may do so has one of them.
        self._credits = Signal(range(BEGINS + 1), init=BEGINS)
        self._selected = Signal()
        # Without an operation every cycle is a second one: the next begins at once, and when that
        # is depends on what comes alone, not on an even or odd cycle.
        self._arrives = Signal()
        busy = [
            item.operation != Operation.NONE for item in (self._read, self._relate, self._decide)
        ]
        m.d.sync += self._first.eq(~self._first & (self._arrives | Cat(busy).any()))
        self._elaborate_select(m)
        self._elaborate_change(m)
        return m

    def _elaborate_select(self, m: Module) -> None:
        """The next operation, in the second cycle of those before it."""
        command, event, end = self.command, self.event, self.end
        waiting, new = self._waiting, Signal(self._item)
        clearing = Signal(init=1)
        number = Signal(self._config.qp_bits)  # that is cleared
        events = Signal(range(EVENTS_IN_A_ROW + 1))  # while another connection waited
        may_begin = Signal()
        begins = Signal()
        second = ~self._first
        m.d.comb += [
            may_begin.eq(waiting.r_rdy & (self._credits != 0) & ~self.closed.valid),
            waiting.r_en.eq(begins),
            new.kind.eq(command.payload.kind),
            new.crc.eq(command.payload.crc),
            new.markers.eq(command.payload.receive_markers),
            new.close.eq(event.kind == LlpEventKind.CLOSED),
            new.dead.eq(end.dead),
            new.needed.eq(end.needed),
            new.value.eq(Mux(self.end_waiting, end.consumed, event.value)),
        ]
        with m.If(clearing):
            m.d.comb += [new.operation.eq(Operation.CLEAR), new.number.eq(number)]
        with m.Elif(self.end_waiting):
            m.d.comb += [
                new.operation.eq(Operation.END),
                new.number.eq(end.qp),
                self.end_taken.eq(second),
            ]
        with m.Elif(command.valid):
            m.d.comb += [
                new.operation.eq(Operation.COMMAND),
                new.number.eq(command.payload.qp),
                command.ready.eq(second),
            ]
        with m.Elif(self.waiting & ~(may_begin & (events == EVENTS_IN_A_ROW))):
            m.d.comb += [
                new.operation.eq(Operation.EVENT),
                new.number.eq(event.connection),
                self.taken.eq(second),
            ]
        with m.Elif(may_begin):
            m.d.comb += [
                new.operation.eq(Operation.BEGIN),
                new.number.eq(waiting.r_data),
                begins.eq(second),
            ]
        m.d.comb += self._arrives.eq(new.operation != Operation.NONE)
        with m.If(second):
            m.d.sync += [
                self._read.eq(new),
                self._relate.eq(self._read),
                self._decide.eq(self._relate),
            ]
            with m.If(clearing):
                m.d.sync += number.eq(number + 1)
                with m.If(number == self._config.qps - 1):
                    m.d.sync += clearing.eq(0)
        with m.If(begins | ~may_begin):
            m.d.sync += events.eq(0)
        with m.Elif(self.taken):
            m.d.sync += events.eq(events + 1)
        m.d.comb += self._selected.eq(begins)

    def _elaborate_change(self, m: Module) -> None:
        """Read, change, write back."""
        first, second = self._first, ~self._first
        reads, relates, decides = self._read, self._relate, self._decide
        read, write = self._memory.read_port(), self._memory.write_port()
        layout = self._connection

        # Read. What comes out of the memory lacks what the two operations before have made of it:
        # of the one that is decided then ...
        raw = Signal(layout)
        old = Signal(layout)
        same = Signal(init=1)
        same_before = Signal()
        made = Signal(layout)  # by the operation in `decides`, but for flags
        final = Signal(layout)  # ... with its flags, in its second cycle
        done = Signal(layout)  # ... and of the one before it
        m.d.comb += read.addr.eq(reads.number)
        m.d.sync += raw.eq(read.data)
        with m.If(second):
            m.d.sync += [
                same.eq(reads.number == relates.number),
                same_before.eq(reads.number == decides.number),
                done.eq(final),
            ]
        with m.If(first):
            m.d.sync += old.eq(Mux(same, made, Mux(same_before, done, raw)))

        # Relate. The positions are settled; flags may change once more.
        kept = Signal(layout)
        forward = Signal()  # RX_AVAILABLE is beyond what was known
        announced, unconsumed = Signal(32), Signal(32)  # bytes, with the position that comes
        held_end = Signal()
        consumed = Signal(32)
        is_end = relates.operation == Operation.END
        is_connect = (relates.operation == Operation.COMMAND) & (
            relates.kind == QpCommandKind.CONNECT
        )
        m.d.comb += [
            held_end.eq(is_end & old.held),
            consumed.eq(Mux(held_end, relates.value, Mux(is_connect, 0, old.consumed))),
        ]
        with m.If(second):
            m.d.sync += [
                kept.eq(old),
                forward.eq(
                    ~(relates.value - old.available)[31]
                    & (relates.operation == Operation.EVENT)
                    & ~relates.close
                ),
                announced.eq(relates.value - old.consumed),
                unconsumed.eq(old.available - consumed),
            ]
            with m.If(same):
                for name in ("enabled", "crc", "markers", "closed", "queued", "visited", "held"):
                    m.d.sync += kept[name].eq(final[name])

        # Decide: in the first cycle whether it has enough ...
        held = Signal()
        enough, some = Signal(), Signal()
        backlog = Signal(32)
        m.d.comb += [
            made.eq(kept),
            held.eq((decides.operation == Operation.END) & kept.held),
            backlog.eq(Mux(forward, announced, unconsumed)),
        ]
        with m.If(forward):
            m.d.comb += made.available.eq(decides.value)
        with m.If(held):
            m.d.comb += [made.consumed.eq(decides.value), made.needed.eq(decides.needed)]
        with m.Switch(decides.operation):
            with m.Case(Operation.CLEAR):
                m.d.comb += made.eq(Const(0, layout.size))
            with m.Case(Operation.COMMAND):
                m.d.comb += made.held.eq(0)
                with m.Switch(decides.kind):
                    with m.Case(QpCommandKind.CREATE, QpCommandKind.DESTROY):
                        m.d.comb += [made.enabled.eq(0), made.closed.eq(0)]
                        m.d.comb += [made.consumed.eq(0), made.available.eq(0)]
                    with m.Case(QpCommandKind.CONNECT):
                        m.d.comb += [
                            made.enabled.eq(1),
                            made.crc.eq(decides.crc),
                            made.markers.eq(decides.markers),
                            made.consumed.eq(0),
                            made.needed.eq(SMALLEST_FPDU_OCTETS),
                        ]
                    with m.Case(QpCommandKind.STOP):
                        m.d.comb += made.enabled.eq(0)
            with m.Case(Operation.EVENT):
                m.d.comb += made.closed.eq(kept.closed | decides.close)
            with m.Case(Operation.BEGIN):
                m.d.comb += made.queued.eq(0)
            with m.Case(Operation.END):
                m.d.comb += [
                    made.visited.eq(0),
                    made.held.eq(0),
                    made.enabled.eq(kept.enabled & ~(kept.held & decides.dead)),
                ]
        may_visit = Signal()
        begins = Signal()
        changes = Signal()  # the operation looks at one connection
        is_begin = Signal()
        is_command = Signal()
        direct = Signal()
        m.d.comb += changes.eq(decides.operation >= Operation.COMMAND.value)
        with m.If(first):
            m.d.sync += [
                enough.eq(backlog[17:].any() | (backlog[:17] >= made.needed)),
                some.eq(backlog.any()),
                is_begin.eq(decides.operation == Operation.BEGIN),
                is_command.eq(decides.operation == Operation.COMMAND),
                may_visit.eq(changes & made.enabled & ~made.queued & ~made.visited),
                direct.eq(
                    ~self._waiting.r_rdy
                    & (self._credits == BEGINS)  # one begin more may be selected meanwhile
                    & (decides.operation != Operation.BEGIN)
                    & ~self.closed.valid
                ),
            ]

        # ... and in the second one what follows from it.
        closes = Signal()
        queues = Signal()
        returned = Signal()
        spent = Signal()
        m.d.comb += [
            begins.eq(second & may_visit & enough & (is_begin | direct)),
            closes.eq(second & may_visit & ~enough & made.closed & is_begin & ~self.closed.valid),
            queues.eq(second & may_visit & (enough | made.closed) & ~begins & ~closes),
            final.eq(made),
            write.addr.eq(decides.number),
            write.data.eq(final),
            write.en.eq(second & (decides.operation != Operation.NONE)),
            self._waiting.w_data.eq(decides.number),
            self._waiting.w_en.eq(queues),
        ]
        with m.If(begins):
            m.d.comb += [final.visited.eq(1), final.held.eq(1)]
        with m.If(queues):
            m.d.comb += final.queued.eq(1)
        with m.If(closes):
            # The LLP closed and no whole FPDU is left: it is said once.
            m.d.comb += final.enabled.eq(0)

        m.d.comb += [
            self.number.eq(decides.number),
            self.forget.eq(second & is_command),
            self.announce.eq(second & forward),
            self.available.eq(decides.value & ~3),
            self.begun.eq(begins),
        ]
        # Visits to begin; there is room for all that have a credit.
        m.submodules.begin = buffer = StreamBuffer(self._mpa.begin)
        wiring.connect(m, buffer.o, wiring.flipped(self.begin))
        item = buffer.i.payload
        m.d.comb += [
            buffer.i.valid.eq(begins),
            item.qp.eq(decides.number),
            item.crc.eq(made.crc),
            item.markers.eq(made.markers),
            item.position.eq(made.consumed),
            item.available.eq(made.available & ~3),
            spent.eq(begins & ~is_begin),
            returned.eq(second & is_begin & ~begins),
        ]
        m.d.sync += [
            self._credits.eq(
                self._credits
                + (self.begin.valid & self.begin.ready)
                + returned
                - (self._selected + spent)
            ),
            self.others.eq(self._waiting.r_rdy | (self._credits != BEGINS)),
        ]

        with m.If(self.closed.taken | (self.forget & (self.closed.qp == decides.number))):
            m.d.sync += self.closed.valid.eq(0)
        with m.If(closes):
            m.d.sync += [
                self.closed.valid.eq(1),
                self.closed.qp.eq(decides.number),
                self.closed.inside.eq(some),
            ]
