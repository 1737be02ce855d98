"""How many segments of each connection came, and left."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import enum, memory, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION


class Count(enum.Enum, shape=2):
    """What is counted, by its place among the counts of a connection."""

    RECEIVED = 0  # segments that came
    SENT = 1  # that left, but for those of AGAIN
    AGAIN = 2  # that left, with bytes or a FIN that had left before


class ConnectionCounts(wiring.Component):
    """Counts segments, in a block RAM. At least 8 cycles lie between two of a direction.

    A segment is counted within 6 cycles. The count that is asked for is in `word` while `shown` is
    high, at least in each second cycle; it is that of what was asked a cycle ago. Nothing waits:
    no neighbour can hold up a count. At rest nothing moves.

    Counts are modulo 2^32. Nothing clears them, neither a reset nor a new connection: who wants
    those of a connection takes the difference to what they were when it began.

    Parameters
    ----------
    connections: 2 to 256.

    Members
    -------
    received, received_connection: a pulse, a segment of a connection came. sent, sent_connection,
        again: a pulse, one left; whether it had left before.
    connection, count: what is asked for. word, shown: as said.
    """

    def __init__(self, connections: int = 64):
        if not 2 <= connections <= 256:
            raise ValueError(f"ConnectionCounts connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        bits = (connections - 1).bit_length()
        super().__init__(
            {
                "received": In(1),
                "received_connection": In(bits),
                "sent": In(1),
                "sent_connection": In(bits),
                "again": In(1),
                "connection": In(bits),
                "count": In(Count),
                "word": Out(32),
                "shown": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counts = counts = memory.Memory(
            shape=32, depth=self._connections << Count.as_shape().width, init=[], attrs=NO_COLLISION
        )
        read, write = counts.read_port(), counts.write_port()

        came, left = Signal(), Signal()  # segments that wait to be counted
        came_of, left_of = Signal.like(self.connection), Signal.like(self.connection)
        left_again = Signal()
        takes = Signal()  # one of them is
        place = Cat(
            Mux(came, Count.RECEIVED, Mux(left_again, Count.AGAIN, Count.SENT)),
            Mux(came, came_of, left_of),
        )
        read_out, added, written = Signal(), Signal(), Signal()  # the cycles after that
        places = [Signal.like(read.addr, name=f"place_{number}") for number in range(2)]
        word = Signal(32)
        m.d.comb += [
            # Never so that nothing is shown for two cycles.
            takes.eq((came | left) & self.shown),
            read.addr.eq(Mux(takes, place, Cat(self.count, self.connection))),
            self.word.eq(read.data),
            # What was read while it was written may be anything.
            self.shown.eq(~read_out & ~written),
            write.addr.eq(places[1]),
            write.data.eq(word + 1),
            write.en.eq(added),
        ]
        m.d.sync += [read_out.eq(takes), added.eq(read_out), written.eq(added)]
        with m.If(takes):
            m.d.sync += [came.eq(0), places[0].eq(place)]
            with m.If(~came):
                m.d.sync += left.eq(0)
        with m.If(read_out):
            m.d.sync += [word.eq(read.data), places[1].eq(places[0])]
        with m.If(self.received):
            m.d.sync += [came.eq(1), came_of.eq(self.received_connection)]
        with m.If(self.sent):
            m.d.sync += [left.eq(1), left_of.eq(self.sent_connection), left_again.eq(self.again)]
        return m
