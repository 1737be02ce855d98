"""Whose turn it is: the events of the sending side, one at a time."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out


class TransmitKind(enum.Enum, shape=3):
    """Events of the sending side."""

    ACK = 0  # what a segment means for it
    NOTE = 1  # what is stored of the peer's data
    DUE = 2  # a deadline may have come
    FPDU = 3
    COMMAND = 4
    FAILED = 5  # its ring could not be written
    VISIT = 6  # it had more to send than its turn allowed


class TransmitTurn(wiring.Component):
    """Lets events pass in turns of their kinds, so that none holds up another kind.

    An event is chosen in a cycle, and offered in the next ones; it is taken from its input when
    it is taken here, so its payload is there all the while.

    Parameters
    ----------
    bits: of a connection.

    Members
    -------
    events: connections, of each kind of event. o: one of them, and its kind.
    """

    def __init__(self, bits: int):
        chosen = data.StructLayout({"kind": TransmitKind, "connection": bits})
        super().__init__(
            {
                "events": In(stream.Signature(bits)).array(len(TransmitKind)),
                "o": Out(stream.Signature(chosen)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        events, o = self.events, self.o
        waiting, turn, candidates = (Signal(len(TransmitKind)) for _ in range(3))
        offered = Signal(len(TransmitKind))  # the kind that is
        chosen, connection = Signal(TransmitKind), Signal(o.p.connection.shape())
        m.d.comb += [
            waiting.eq(Cat(event.valid for event in events)),
            candidates.eq(Mux((waiting & turn).any(), waiting & turn, waiting)),
        ]
        for number, event in reversed(list(enumerate(events))):
            with m.If(candidates[number]):
                m.d.comb += [chosen.eq(number), connection.eq(event.payload)]
            m.d.comb += event.ready.eq(o.ready & offered[number])
        with m.If(o.ready):
            m.d.sync += [o.valid.eq(0), offered.eq(0)]
        with m.If(~o.valid & waiting.any()):
            m.d.sync += [
                o.valid.eq(1),
                *(offered[place].eq(Value.cast(chosen) == place) for place in range(len(offered))),
                o.p.kind.eq(chosen),
                o.p.connection.eq(connection),
                *(turn[place].eq(Value.cast(chosen) < place) for place in range(len(turn))),
            ]
        return m
