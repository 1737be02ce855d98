"""What the LLP port tells the device: bytes that came, windows, and the end."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.tcp.layouts import attachment_layout, sender_event, settled_layout


class _Kind(enum.Enum, shape=2):
    """What is worked on."""

    SETTLED = 0
    SENDER = 1
    ATTACH = 2


class LlpEvents(wiring.Component):
    """Turns what happens to connections into events of the lanes that have their streams.

    A note of `Settle` is RX_AVAILABLE if its number has moved, and CLOSED if it has the peer's FIN,
    or failed. The sending side says the other events, and CLOSED. What happens to a connection that
    is not attached is kept; when it is attached, what is there then is said, and its end if that
    came. After CLOSED nothing more is said of it, until its number begins anew: a connection that
    begins is not attached. It may be when the note of its beginning was taken.

    An item takes 5 cycles, 6 if it has two events, 3 if it changes nothing; its event is there
    after 4. It waits at its port until then. An attachment comes first, notes and the sending side
    take turns: no connection holds up another one but for such an item. While nobody takes events,
    everything waits. Positions are modulo 2^32.

    Parameters
    ----------
    config: sizes of the device: a lane for each of its QPs, and as many connections.

    Members
    -------
    settled: notes. sender: what the sending side says. attachment: streams that are attached, and
        detached. event: of the LLP port.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        bits = config.qp_bits
        super().__init__(
            {
                "settled": In(stream.Signature(settled_layout(bits))),
                "sender": In(stream.Signature(sender_event(bits))),
                "attachment": In(stream.Signature(attachment_layout(bits))),
                "event": Out(stream.Signature(Layouts(config).llp_event)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self._config.qp_bits
        row_layout = data.StructLayout(
            # ended: its end came, and was said if it is attached. available: number after the last
            # byte that is there.
            {"attached": 1, "ended": 1, "lane": bits, "base": 32, "available": 32}
        )
        m.submodules.rows = rows = memory.Memory(
            shape=row_layout, depth=self._config.qps, init=[], attrs=NO_COLLISION
        )
        write, read = rows.write_port(), rows.read_port()
        note, said, given = self.settled.p.note, self.sender.p, self.attachment.p

        kind = Signal(_Kind)
        turn = Signal()  # of the sending side
        connection = Signal(bits)
        row = Signal(row_layout)
        available = Signal(32)  # number after the last byte that is there now
        fin = Signal()
        closes = Signal()  # the end has to be said
        done = Signal()
        m.d.comb += [
            self.settled.ready.eq(done & (kind == _Kind.SETTLED)),
            self.sender.ready.eq(done & (kind == _Kind.SENDER)),
            self.attachment.ready.eq(done & (kind == _Kind.ATTACH)),
            write.addr.eq(connection),
            write.data.eq(row),
        ]
        speaks, says, ends, begins = Signal(), Signal(), Signal(), Signal()
        moves = Signal()  # bytes came
        m.d.comb += speaks.eq(row.attached & (~row.ended | (kind == _Kind.ATTACH)))
        with m.Switch(kind):
            with m.Case(_Kind.SENDER):
                m.d.comb += [
                    ends.eq(said.kind == LlpEventKind.CLOSED),
                    says.eq(speaks & ~ends),
                ]
            with m.Case(_Kind.SETTLED):
                m.d.comb += [
                    ends.eq(self.settled.p.failed | fin),
                    moves.eq(~self.settled.p.failed & (available != row.available)),
                    says.eq(speaks & moves & ~begins),
                    begins.eq(note.begin),
                ]
            with m.Default():
                m.d.comb += [
                    ends.eq(row.ended),
                    says.eq(speaks & (available != row.base)),
                ]

        event = self.event
        with m.If(event.ready):
            m.d.sync += event.valid.eq(0)
        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # an attachment, a note, or something of the sending side
                senders = self.sender.valid & (turn | ~self.settled.valid)
                chosen = Mux(senders, said.connection, note.connection)
                m.d.comb += read.addr.eq(Mux(self.attachment.valid, given.connection, chosen))
                m.d.sync += connection.eq(read.addr)
                with m.If(self.attachment.valid):
                    m.d.sync += kind.eq(_Kind.ATTACH)
                with m.Elif(senders):
                    m.d.sync += kind.eq(_Kind.SENDER)
                with m.Else():
                    m.d.sync += kind.eq(_Kind.SETTLED)
                with m.If(self.attachment.valid | self.sender.valid | self.settled.valid):
                    m.next = "ROW"
            with m.State("ROW"):  # that of the connection is there
                m.d.sync += [
                    row.eq(read.data),
                    available.eq(note.number - note.fin),
                    fin.eq(note.fin),
                ]
                with m.If(kind == _Kind.ATTACH):
                    m.d.sync += [
                        row.attached.eq(given.attached),
                        row.lane.eq(given.lane),
                        row.base.eq(given.base),
                        available.eq(read.data.available),
                    ]
                m.next = "JUDGE"
            with m.State("JUDGE"):  # what has to be said
                m.d.sync += [
                    closes.eq(speaks & ends),
                    row.ended.eq((row.ended | ends) & ~begins),
                ]
                with m.If(begins):
                    m.d.sync += row.attached.eq(0)
                with m.If(moves):
                    m.d.sync += row.available.eq(available)
                with m.If(says):
                    m.next = "SAY"
                with m.Elif(speaks & ends):
                    m.next = "CLOSE"
                with m.Elif((kind == _Kind.ATTACH) | moves | ends | begins):
                    m.next = "WRITE"
                with m.Else():
                    m.d.comb += done.eq(1)
                    m.next = "TAKE"
            with m.State("SAY"):  # until there is room for an event
                with m.If(~event.valid):
                    m.d.sync += [
                        event.valid.eq(1),
                        event.p.connection.eq(row.lane),
                        event.p.kind.eq(LlpEventKind.RX_AVAILABLE),
                        event.p.value.eq(available - row.base),
                    ]
                    with m.If(kind == _Kind.SENDER):
                        m.d.sync += [event.p.kind.eq(said.kind), event.p.value.eq(said.value)]
                    m.next = "WRITE"
                    with m.If(closes):
                        m.next = "CLOSE"
            with m.State("CLOSE"):  # the same
                with m.If(~event.valid):
                    m.d.sync += [
                        event.valid.eq(1),
                        event.p.connection.eq(row.lane),
                        event.p.kind.eq(LlpEventKind.CLOSED),
                    ]
                    m.next = "WRITE"
            with m.State("WRITE"):  # what is known of the connection then
                m.d.comb += [write.en.eq(1), done.eq(1)]
                m.next = "TAKE"
        with m.If(done):
            m.d.sync += turn.eq(kind == _Kind.SETTLED)
        return m
