"""Small stream buffers of the DMA blocks: a register stage and a block-RAM queue."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out


class StreamBuffer(wiring.Component):
    """Two-entry buffer that cuts every combinational path of a stream.

    `i.ready` and all of `o` come from registers. Items pass in order; one item per cycle; latency
    one cycle.
    """

    def __init__(self, shape: object):
        self._shape = shape
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))}  # type: ignore[arg-type]
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spare = Signal(self._shape)  # type: ignore[arg-type]
        spare_full = Signal()
        m.d.comb += self.i.ready.eq(~spare_full)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(spare_full | self.i.valid), spare_full.eq(0)]
            with m.If(spare_full):
                m.d.sync += self.o.payload.eq(spare)
            with m.Else():
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.Elif(self.i.valid & ~spare_full):
            m.d.sync += spare_full.eq(1)
        # Loaded whenever it is empty, so that its enable does not wait for o.ready.
        with m.If(~spare_full):
            m.d.sync += spare.eq(self.i.payload)
        return m


class ReservedQueue(wiring.Component):
    """Queue of `depth` words in block RAM whose writer has reserved room beforehand.

    `push` with `word` cannot be refused. `freed` pulses for every word that left the memory, so
    that its place may be reserved again. Two registers stand between the memory and the user of
    `o`; latency three cycles, one word per cycle.
    """

    def __init__(self, shape: object, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"ReservedQueue depth is {depth!r}; allowed: a power of two from 2")
        self._shape = shape
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "word": In(shape),  # type: ignore[arg-type]
                "freed": Out(1),
                "o": Out(stream.Signature(shape)),  # type: ignore[arg-type]
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = words = memory.Memory(shape=self._shape, depth=self._depth, init=[])
        write = words.write_port()
        read = words.read_port()
        level = Signal(range(self._depth + 1))
        fetched = Signal()  # the memory's output is a word that was not passed on
        advance = Signal()
        fetch = Signal()
        m.d.comb += [
            write.en.eq(self.push),
            write.data.eq(self.word),
            advance.eq(~self.o.valid | self.o.ready),
            fetch.eq((level != 0) & (~fetched | advance)),
            read.en.eq(fetch),
        ]
        m.d.sync += [
            level.eq(level + self.push - fetch),
            self.freed.eq(fetch),
        ]
        with m.If(self.push):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(fetch):
            m.d.sync += [read.addr.eq(read.addr + 1), fetched.eq(1)]
        with m.Elif(advance):
            m.d.sync += fetched.eq(0)
        with m.If(advance):
            m.d.sync += [self.o.valid.eq(fetched), self.o.payload.eq(read.data)]
        return m
