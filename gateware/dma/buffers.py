"""A block-RAM queue of the read engine."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gateware.stream_buffer import StreamBuffer


class ReservedQueue(wiring.Component):
    """Queue of `depth` words in block RAM whose writer has reserved room beforehand.

    `push` with `word` cannot be refused. `freed` pulses for every word that left the memory, so
    that its place may be reserved again. A register and a `StreamBuffer` stand between the
    memory and the user of `o`; latency four cycles, one word per cycle.
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
        m.submodules.output = output = StreamBuffer(self._shape)
        read_out = Signal(self._shape)  # type: ignore[arg-type]
        read_out_valid = Signal()
        m.d.comb += [
            advance.eq(~read_out_valid | output.i.ready),
            output.i.valid.eq(read_out_valid),
            output.i.payload.eq(read_out),
        ]
        wiring.connect(m, output.o, wiring.flipped(self.o))
        with m.If(advance):
            m.d.sync += [read_out_valid.eq(fetched), read_out.eq(read.data)]
        return m
