"""Whose a segment is: records of frames get the connection that the lookup finds."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.layouts import SEGMENT, received_segment
from stagecoach.gateware.tcp.lookup import (
    SECRET_BITS,
    SLOTS_BITS,
    Lookup,
    lookup_command,
    lookup_result,
)


class Demultiplexer(wiring.Component):
    """Looks each record up, and hands it on with what was found; one of the driver goes between.

    A record waits at its port while `Lookup` works on its ends, also one that is `raw`: a record
    every 10 cycles, 10 cycles from a record to `o`. A segment of the driver, which names its
    connection and has no frame, goes first, and takes a cycle.

    While `o` is not taken, one record waits there, one in the lookup, and all others before it. A
    command is `done` when nothing waits at `o`: after a deletion no segment has the number of the
    connection. Until `done` is taken, nothing else goes on.

    Parameters
    ----------
    connections, slots_bits: as those of `Lookup`.

    Members
    -------
    secret, command, done: of `Lookup`. i: records. placed: segments of the driver, of which
        `connection` and `segment` count. o: all of them.
    """

    def __init__(self, connections: int = 64, slots_bits: int = SLOTS_BITS):
        self._connections, self._slots_bits = connections, slots_bits
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "secret": In(SECRET_BITS),
                "command": In(stream.Signature(lookup_command(bits))),
                "done": Out(stream.Signature(lookup_result(bits))),
                "i": In(stream.Signature(SEGMENT)),
                "placed": In(stream.Signature(received_segment(bits))),
                "o": Out(stream.Signature(received_segment(bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.lookup = lookup = Lookup(self._connections, self._slots_bits)
        wiring.connect(m, wiring.flipped(self.command), lookup.command)
        asked = Signal()  # the lookup has the ends of the record
        free, takes = Signal(), Signal()
        segment = self.o.p
        m.d.comb += [
            lookup.secret.eq(self.secret),
            lookup.request.valid.eq(self.i.valid & ~asked),
            lookup.request.payload.eq(self.i.p.key),
            free.eq(~self.o.valid | self.o.ready),
            # None comes between a deletion and its end.
            self.placed.ready.eq(free & ~lookup.done.valid),
            lookup.result.ready.eq(free & ~self.placed.valid),
            takes.eq(lookup.result.valid & lookup.result.ready),
            self.i.ready.eq(takes),
            self.done.valid.eq(lookup.done.valid & ~self.o.valid),
            self.done.payload.eq(lookup.done.payload),
            lookup.done.ready.eq(self.done.ready & ~self.o.valid),
        ]
        with m.If(free):
            m.d.sync += self.o.valid.eq(takes | (self.placed.valid & self.placed.ready))
            with m.If(self.placed.valid):
                m.d.sync += [
                    segment.eq(self.placed.p),
                    segment.found.eq(1),
                    segment.placed.eq(1),
                    segment.segment.raw.eq(0),
                ]
            with m.Else():
                m.d.sync += [
                    segment.found.eq(lookup.result.p.found),
                    segment.placed.eq(0),
                    segment.connection.eq(lookup.result.p.connection),
                    segment.segment.eq(self.i.p),
                ]
        with m.If(takes):
            m.d.sync += asked.eq(0)
        with m.Elif(lookup.request.valid & lookup.request.ready):
            m.d.sync += asked.eq(1)
        return m
