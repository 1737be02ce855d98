"""What the driver is told of connections: bytes that it has to read, and ends."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import RAW_NOTICE, NetworkKind
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.tcp.layouts import (
    NoticeKind,
    attachment_layout,
    notice_layout,
    settled_layout,
)
from stagecoach.gateware.tcp.pending import Pending

_ROW = data.StructLayout({"number": 32, "fin": 1})
"""What is settled of a connection, but for the edge, which is not told: one block RAM."""


class DriverNotices(wiring.Component):
    """Adds to each notice what is settled of its connection, and makes those of bytes that came.

    A connection to which no lane is attached is READABLE when its settled number moves, or its FIN
    comes. One such notice of each connection waits, and one more if that is the next to leave,
    whatever comes until it is made: then it says what is settled at that time. It takes turns with
    notices of the sending side. After the end of a connection was told, nothing is said of it until
    its number begins anew: a READABLE that waits is forgotten then; one that still waits when that
    begins says what is true of the new one.

    A note is taken within 8 cycles, whatever waits. From a note to its notice 9 cycles, from a
    notice of the sending side 2, if no other one waits; one in 3 cycles. If `o` is not taken, notes
    are taken all the same, and notices wait: those of the sending side at their port. Numbers are
    modulo 2^32. At rest nothing moves but for `connection_read`.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    note: of `Settle`. attach, attachment: a pulse, a lane is attached or detached.
    notice: of the sending side. o: the same, and those of bytes that came, to `RawReceive`.
    waits: some wait here, from 8 cycles after the note of the first one, or the cycle after it
        left the sending side, until the last one was taken.
    connection_read: for which connection `settled` is the number of the last note that did not
        fail, within 24 cycles.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"DriverNotices connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        self._bits = bits = (connections - 1).bit_length()
        super().__init__(
            {
                "note": In(stream.Signature(settled_layout(bits))),
                "attach": In(1),
                "attachment": In(attachment_layout(bits)),
                "notice": In(stream.Signature(notice_layout(bits))),
                "o": Out(stream.Signature(RAW_NOTICE)),
                "waits": Out(1),
                "connection_read": In(bits),
                "settled": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.readable = readable = Pending(
            self._connections, data.StructLayout({"connection": self._bits})
        )
        m.submodules.table = table = memory.Memory(
            shape=_ROW, depth=self._connections, init=[], attrs=NO_COLLISION
        )
        # Connections whose streams lanes have, and those whose end was told.
        m.submodules.attached = attached = memory.Memory(shape=1, depth=self._connections, init=[])
        m.submodules.ended = ended = memory.Memory(shape=1, depth=self._connections, init=[])
        write, read = table.write_port(), table.read_port()
        marks_attached, is_attached = attached.write_port(), attached.read_port(domain="comb")
        marks_ended, is_ended = ended.write_port(), ended.read_port(domain="comb")
        note, notice, o = self.note.p.note, self.notice.p, self.o
        row = read.data

        turn = Signal()  # of READABLE
        tells, told = Signal(), Signal()  # a notice of the sending side is next, is worked on
        shows = Signal()  # what was read is for `settled`
        connection = Signal(self._bits)  # of the notice
        moved, readies = Signal(), Signal()
        m.d.comb += [
            write.addr.eq(note.connection),
            *(write.data[name].eq(note[name]) for name in _ROW.members),
            moved.eq((row.number != note.number) | (row.fin != note.fin)),
            is_attached.addr.eq(note.connection),
            readies.eq(moved & ~note.begin & ~self.note.p.failed & ~is_attached.data),
            tells.eq(self.notice.valid & ~(turn & readable.o.valid)),
            is_ended.addr.eq(connection),
            readable.i.p.connection.eq(note.connection),
            self.waits.eq(readable.waits | o.valid),
            marks_attached.addr.eq(self.attachment.connection),
            marks_attached.data.eq(self.attachment.attached),
            marks_attached.en.eq(self.attach),
            marks_ended.addr.eq(note.connection),
        ]
        m.d.sync += shows.eq(0)
        with m.If(shows):
            m.d.sync += self.settled.eq(row.number)
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(~o.valid):
            m.d.sync += [
                o.p.kind.eq(Mux(told, Value.cast(notice.kind), NetworkKind.READABLE)),
                o.p.connection.eq(connection),
                o.p.sequence.eq(Mux(told, notice.number, 0)),
                o.p.acknowledgment.eq(row.number),
                o.p.fin.eq(row.fin),
            ]

        with m.FSM(init="TAKE"):
            with m.State("TAKE"):  # a note, or a notice
                m.d.comb += [read.en.eq(1), read.addr.eq(self.connection_read)]
                m.d.sync += [
                    told.eq(tells),
                    connection.eq(Mux(tells, notice.connection, readable.o.p.connection)),
                ]
                with m.If(self.note.valid):
                    m.d.comb += read.addr.eq(note.connection)
                    m.next = "COMPARE"
                with m.Elif(~o.valid & (self.notice.valid | readable.o.valid)):
                    m.d.comb += read.addr.eq(Mux(tells, notice.connection, readable.o.p.connection))
                    m.next = "COMPOSE"
                with m.Else():
                    m.d.sync += shows.eq(1)
            with m.State("COMPARE"):  # with what was settled; until no lane is attached
                with m.If(~self.attach):
                    m.d.comb += [
                        self.note.ready.eq(~readies),
                        write.en.eq(~self.note.p.failed),
                        marks_ended.en.eq(note.begin),
                    ]
                    m.next = "TAKE"
                    with m.If(readies):
                        m.next = "READABLE"
                    with m.If(note.begin):
                        m.d.comb += [
                            marks_attached.addr.eq(note.connection),
                            marks_attached.data.eq(0),
                            marks_attached.en.eq(1),
                        ]
            with m.State("READABLE"):  # until the connection waits to be told of
                m.d.comb += [readable.i.valid.eq(1), self.note.ready.eq(readable.i.ready)]
                with m.If(readable.i.ready):
                    m.next = "TAKE"
            with m.State("COMPOSE"):  # what is said, if it did not end before
                m.d.comb += [
                    self.notice.ready.eq(told),
                    readable.o.ready.eq(~told),
                    marks_ended.addr.eq(connection),
                    marks_ended.data.eq(1),
                    marks_ended.en.eq(told & (notice.kind != NoticeKind.SUSPECT)),
                ]
                m.d.sync += [o.valid.eq(told | ~is_ended.data), turn.eq(told)]
                m.next = "TAKE"
        return m
