"""A place for each connection, where what is said of it waits: who says it goes on."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.stream.fifo import StreamFifo


class Pending(wiring.Component):
    """Keeps the last item of each connection until it is taken.

    An item takes the place of the one of its connection that waits; the one at `o` stays as it is.
    Connections leave in the order in which they began to wait.

    An item is taken in the cycle in which it comes, or 2 cycles later; it is at `o` 5 cycles after
    it came, if none waits before it, and the next one 4 after it was taken. If `o` is never taken,
    items are taken all the same. At rest nothing moves.

    After a reset all items are forgotten; until then, for as many cycles as there are connections,
    none is taken.

    Parameters
    ----------
    connections: 2 to 256. layout: of an item; it has `connection`.

    Members
    -------
    i, o: items. began: a pulse, an item was taken whose connection had none that waits; each leaves
        once. waits: some do, from the cycle after the first one came until the last one left.
    """

    def __init__(self, connections: int, layout: data.StructLayout):
        if not 2 <= connections <= 256:
            raise ValueError(f"Pending connections is {connections!r}; allowed: 2 to 256")
        self._connections = connections
        self._rest = data.StructLayout(
            {name: shape for name, shape in layout.members.items() if name != "connection"}
        )
        super().__init__(
            {
                "i": In(stream.Signature(layout)),
                "o": Out(stream.Signature(layout)),
                "began": Out(1),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        item, o = self.i.p, self.o
        # Each connection once, and whether it is there; its output has another place.
        m.submodules.order = order = StreamFifo(item.connection.shape(), self._connections + 1)
        m.submodules.waiting = waiting = memory.Memory(shape=1, depth=self._connections, init=[])
        waits, write = waiting.read_port(domain="comb"), waiting.write_port()
        following = order.o.payload
        count = Signal.like(following)  # of those that are forgotten
        fetches, gives = Signal(), Signal()
        # The one at `o` and one of each connection.
        number, leaves = Signal(range(self._connections + 2)), Signal()
        m.d.sync += number.eq(number + self.began - leaves)
        m.d.comb += [
            self.began.eq(order.i.valid & order.i.ready),
            self.waits.eq(number != 0),
            leaves.eq(o.valid & o.ready),
            waits.addr.eq(item.connection),
            order.i.payload.eq(item.connection),
            order.i.valid.eq(self.i.valid & self.i.ready & ~waits.data),
        ]
        if self._rest.members:
            # An item is fetched when none is taken.
            m.submodules.items = items = memory.Memory(
                shape=self._rest, depth=self._connections, init=[], attrs=NO_COLLISION
            )
            comes, fetched = items.write_port(), items.read_port()
            m.d.comb += [
                comes.addr.eq(item.connection),
                *(comes.data[name].eq(item[name]) for name in self._rest.members),
                comes.en.eq(self.i.valid & self.i.ready),
                fetched.addr.eq(following),
                fetched.en.eq(fetches),
            ]
            with m.If(gives):
                m.d.sync += [o.p[name].eq(fetched.data[name]) for name in self._rest.members]

        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.FSM(init="FORGET"):
            with m.State("FORGET"):  # all of them
                m.d.comb += [write.addr.eq(count), write.en.eq(1)]
                m.d.sync += count.eq(count + 1)
                with m.If(count == self._connections - 1):
                    m.next = "TAKE"
            with m.State("TAKE"):  # items, until one may go
                m.d.comb += [
                    self.i.ready.eq(1),
                    write.addr.eq(item.connection),
                    write.data.eq(1),
                    write.en.eq(self.i.valid),
                ]
                with m.If(order.o.valid & ~o.valid):
                    m.next = "FETCH"
            with m.State("FETCH"):  # the first one
                m.d.comb += fetches.eq(1)
                m.next = "GIVE"
            with m.State("GIVE"):  # it, so that its place is free
                m.d.comb += [
                    gives.eq(1),
                    order.o.ready.eq(1),
                    write.addr.eq(following),
                    write.en.eq(1),
                ]
                m.d.sync += [o.valid.eq(1), o.p.connection.eq(following)]
                m.next = "TAKE"
        return m
