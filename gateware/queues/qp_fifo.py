"""One FIFO per QP, all of them in one memory."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from gateware.config import RnicConfig
from gateware.interfaces import NO_COLLISION, QpFifoReader, QpFifoWriter, QpStrobe


class QpFifo(wiring.Component):
    """`config.qps` FIFOs of `depth` items; items of one QP leave in the order of their pushes.

    One push, one pop and one clear are possible in every cycle, of any QPs. `level` and `head`
    come from registers, two and three cycles after `select`; the effect of a push, pop or clear is
    in `level` three cycles after it, in `head` four. Nothing is refused: the writer watches
    `level`, the reader never pops at level 0.

    A clear empties the FIFO of its QP. A push in the same cycle comes after it, a pop in the same
    cycle is ignored. After a reset of the device a FIFO must be cleared before it is used.

    Parameters
    ----------
    config: sizes of the device.
    shape: an item.
    depth: items per QP, a power of two.
    """

    def __init__(self, config: RnicConfig, shape: data.StructLayout, depth: int):
        if depth < 1 or depth & (depth - 1):
            raise ValueError(f"QpFifo depth is {depth!r}; allowed: a power of two from 1")
        self._config = config
        self._shape = shape
        self._depth = depth
        super().__init__(
            {
                "writer": In(QpFifoWriter(config, shape, depth)),
                "reader": In(QpFifoReader(config, shape, depth)),
                "clear": In(QpStrobe(config)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        qps = self._config.qps
        slot_bits = exact_log2(self._depth)
        count_bits = slot_bits + 1

        # level = pushed - popped - skipped. Each of the three has one writer, so that pushes,
        # pops and clears never wait for each other; a clear skips everything pushed so far.
        # At level 0 the head means nothing, so no item is read while it is written.
        m.submodules.items = items = Memory(
            shape=self._shape, depth=qps * self._depth, init=[], attrs=NO_COLLISION
        )
        m.submodules.pushed = pushed = Memory(shape=count_bits, depth=qps, init=[])
        m.submodules.popped = popped = Memory(shape=count_bits, depth=qps, init=[])
        m.submodules.skipped = skipped = Memory(shape=count_bits, depth=qps, init=[])

        def look(memory: Memory, qp: Signal):
            port = memory.read_port(domain="comb")
            m.d.comb += port.addr.eq(qp)
            return port.data

        items_write = items.write_port()
        pushed_write = pushed.write_port()
        tail = look(pushed, self.writer.push_qp)
        m.d.comb += [
            items_write.en.eq(self.writer.push),
            items_write.addr.eq(Cat(tail[:slot_bits], self.writer.push_qp)),
            items_write.data.eq(self.writer.item),
            pushed_write.en.eq(self.writer.push),
            pushed_write.addr.eq(self.writer.push_qp),
            pushed_write.data.eq(tail + 1),
        ]

        popped_write = popped.write_port()
        cleared_now = self.clear.valid & (self.clear.qp == self.reader.pop_qp)
        m.d.comb += [
            popped_write.en.eq(self.reader.pop & ~cleared_now),
            popped_write.addr.eq(self.reader.pop_qp),
            popped_write.data.eq(look(popped, self.reader.pop_qp) + 1),
        ]

        skipped_write = skipped.write_port()
        m.d.comb += [
            skipped_write.en.eq(self.clear.valid),
            skipped_write.addr.eq(self.clear.qp),
            skipped_write.data.eq(look(pushed, self.clear.qp) - look(popped, self.clear.qp)),
        ]

        for side in (self.writer, self.reader):
            counts = [Signal(count_bits, name=f"count_{i}") for i in range(3)]
            memories = (pushed, popped, skipped)
            reads = [look(memory, side.select) for memory in memories]
            difference = Signal(count_bits)
            m.d.sync += [count.eq(read) for count, read in zip(counts, reads, strict=True)]
            m.d.comb += difference.eq(counts[0] - counts[1] - counts[2])
            m.d.sync += side.level.eq(difference)
            if side is self.reader:
                # The address of the block RAM comes from a register: the way there is long.
                head = Signal(count_bits)
                selected = Signal.like(side.select)
                items_read = items.read_port()
                m.d.comb += items_read.addr.eq(Cat(head[:slot_bits], selected))
                m.d.sync += [
                    head.eq(reads[1] + reads[2]),
                    selected.eq(side.select),
                    side.head.eq(items_read.data),
                ]

        return m
