"""Merges what the LLP says of a connection while the connection table is busy."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, LlpEventKind


class ReceiveEvents(wiring.Component):
    """Hands events on, several of one connection that follow each other as one.

    RX_AVAILABLE and CLOSED go on, other events end here. While one waits to be taken, RX_AVAILABLE
    of the same connection is merged with it: the position that is further counts, seen from the
    one that waits (mod 2^32). An event is taken every second cycle at most, and comes out two
    cycles later at the earliest. While nobody takes it, `i` waits, once an event of another
    connection has come.

    Members
    -------
    i: the events of the LLP.
    waiting: there is one. event: this one; its `value` may grow while it waits.
    taken: a pulse, `event` was taken.
    """

    def __init__(self, config: RnicConfig):
        layout = Layouts(config).llp_event
        super().__init__(
            {
                "i": In(stream.Signature(layout)),
                "waiting": Out(1),
                "event": Out(layout),
                "taken": In(1),
            }
        )
        self._layout = layout

    def elaborate(self, platform: object) -> Module:
        m = Module()
        coming = Signal(self._layout)
        comes = Signal()
        wanted = Signal()
        same = Signal()  # both are RX_AVAILABLE of one connection
        further = Signal()
        event, i = self.event, self.i
        available = LlpEventKind.RX_AVAILABLE
        m.d.comb += [
            i.ready.eq(~comes),
            wanted.eq((i.payload.kind == available) | (i.payload.kind == LlpEventKind.CLOSED)),
            same.eq(
                (coming.connection == event.connection)
                & (coming.kind == available)
                & (event.kind == available)
            ),
            further.eq(~(coming.value - event.value)[31]),
        ]
        with m.If(~comes):
            m.d.sync += [coming.eq(i.payload), comes.eq(i.valid & wanted)]
        with m.If(~self.waiting | self.taken):
            m.d.sync += [self.waiting.eq(comes), comes.eq(i.valid & wanted & ~comes)]
            with m.If(comes):
                m.d.sync += event.eq(coming)
        with m.Elif(comes & same):
            m.d.sync += comes.eq(0)
            with m.If(further):
                m.d.sync += event.value.eq(coming.value)
        return m
