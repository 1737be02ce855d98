"""A FIFO between two streams that lets an item out in the cycle after it came."""

from amaranth import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out


class PromptFifo(wiring.Component):
    """Holds up to `depth` items between `i` and `o`; both ends are registered.

    One item per cycle; latency one cycle, because an item passes by the memory when that is empty.
    This costs a multiplexer of the payload's width beside a `StreamFifo`. It is written to the
    memory all the same: neither the write port nor its address waits for `o.ready`.

    Parameters
    ----------
    shape: the payload.
    depth: items, 2 or more.

    Members
    -------
    level: items that wait after the one on `o`.
    """

    def __init__(self, shape: ShapeLike, depth: int):
        if depth < 2:
            raise ValueError(f"PromptFifo depth is {depth!r}; allowed: 2 and more")
        self._rest = depth - 1
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rest = self._rest
        item, coming = Value.cast(self.o.payload), Value.cast(self.i.payload)
        m.submodules.memory = waiting = memory.Memory(shape=len(item), depth=rest, init=[])
        write, read = waiting.write_port(), waiting.read_port(domain="comb")
        empty = Signal(init=1)  # level is 0
        full = Signal()
        vacant = Signal(init=1)  # not o.valid; of its own, for the wide register
        comes = Signal()
        load = Signal()
        leaves = Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            comes.eq(self.i.valid & ~full),
            load.eq(~self.o.valid | self.o.ready),
            leaves.eq(load & (~empty | self.i.valid)),
            # What stands after the last item means nothing.
            write.en.eq(~full),
            write.data.eq(coming),
        ]
        with m.If(load):
            m.d.sync += [
                self.o.valid.eq(~empty | self.i.valid),
                vacant.eq(empty & ~self.i.valid),
            ]
        with m.If(vacant | self.o.ready):
            m.d.sync += item.eq(Mux(empty, coming, read.data))
        for port, moves in ((write, comes), (read, leaves)):
            with m.If(moves):
                m.d.sync += port.addr.eq(Mux(port.addr == rest - 1, 0, port.addr + 1))
        with m.If(comes & ~leaves):
            m.d.sync += [
                self.level.eq(self.level + 1),
                empty.eq(0),
                full.eq(self.level == rest - 1),
            ]
        with m.Elif(leaves & ~comes):
            m.d.sync += [
                self.level.eq(self.level - 1),
                empty.eq(self.level == 1),
                full.eq(0),
            ]
        return m
