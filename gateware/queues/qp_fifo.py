"""One FIFO per QP, all of them in one memory."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.ports import QpFifoReader, QpFifoWriter


class QpFifo(wiring.Component):
    """`config.qps` FIFOs of `depth` items; items of one QP leave in the order of their pushes.

    One push and one pop are possible in every second cycle, one clear in every cycle, of any QPs.
    The QP of a push or pop stands from the cycle before on. `level` and `head` come from registers,
    two and three cycles after `select`; the effect of a push or pop is in `level` three cycles
    after it, in `head` four, that of a clear a cycle later. Nothing is refused: the writer watches
    `level`, the reader never pops at level 0. A `head` that leaves in the cycle of its `select`, by
    a pop or a clear, is undefined.

    A clear empties the FIFO of its QP. A push in the same cycle comes after it, a pop in the same
    cycle is ignored. After a reset of the device a FIFO must be cleared before it is used.

    With `held` the reader sees the items of a QP only when they were released: the n-th `release`
    of a QP is for its n-th item, and is in the reader's `level` three cycles later. The writer's
    `level` counts all. What was not released when the FIFO is cleared never is.

    Parameters
    ----------
    config: sizes of the device.
    shape: an item.
    depth: items per QP, a power of two.
    held: items wait for their `release`.
    """

    def __init__(
        self, config: RnicConfig, shape: data.StructLayout, depth: int, *, held: bool = False
    ):
        if depth < 1 or depth & (depth - 1):
            raise ValueError(f"QpFifo depth is {depth!r}; allowed: a power of two from 1")
        self._config = config
        self._shape = shape
        self._depth = depth
        self._held = held
        members: dict[str, wiring.Member] = {
            "writer": In(QpFifoWriter(config, shape, depth)),
            "reader": In(QpFifoReader(config, shape, depth)),
            "clear": In(QpStrobe(config)),
        }
        if held:
            members["release"] = In(QpStrobe(config))
        super().__init__(members)

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
        # The QP and its count come from registers, because their way is long.
        push_qp, tail = Signal.like(self.writer.push_qp), Signal(count_bits)
        m.d.sync += [
            push_qp.eq(self.writer.push_qp),
            tail.eq(look(pushed, self.writer.push_qp)),
        ]
        m.d.comb += [
            items_write.en.eq(self.writer.push),
            items_write.addr.eq(Cat(tail[:slot_bits], push_qp)),
            items_write.data.eq(self.writer.item),
            pushed_write.en.eq(self.writer.push),
            pushed_write.addr.eq(push_qp),
            pushed_write.data.eq(tail + 1),
        ]

        popped_write = popped.write_port()
        pop_qp, gone = Signal.like(self.reader.pop_qp), Signal(count_bits)
        m.d.sync += [
            pop_qp.eq(self.reader.pop_qp),
            gone.eq(look(popped, self.reader.pop_qp)),
        ]
        cleared_now = self.clear.valid & (self.clear.qp == pop_qp)
        m.d.comb += [
            popped_write.en.eq(self.reader.pop & ~cleared_now),
            popped_write.addr.eq(pop_qp),
            popped_write.data.eq(gone + 1),
        ]

        def clear_to_difference(written: Memory, more: Memory, less: Memory) -> None:
            """A cycle after a clear, of what the counts were in its cycle."""
            port = written.write_port()
            first, second = Signal(count_bits), Signal(count_bits)
            m.d.sync += [
                port.en.eq(self.clear.valid),
                port.addr.eq(self.clear.qp),
                first.eq(look(more, self.clear.qp)),
                second.eq(look(less, self.clear.qp)),
            ]
            m.d.comb += port.data.eq(first - second)

        clear_to_difference(skipped, pushed, popped)

        # The reader's level = released + missed - popped - skipped: a clear misses all that was
        # pushed and not released.
        reader_memories: tuple[Memory, ...] = (pushed, popped, skipped)
        if self._held:
            m.submodules.released = released = Memory(shape=count_bits, depth=qps, init=[])
            m.submodules.missed = missed = Memory(shape=count_bits, depth=qps, init=[])
            released_write = released.write_port()
            m.d.comb += [
                released_write.en.eq(self.release.valid),
                released_write.addr.eq(self.release.qp),
                released_write.data.eq(look(released, self.release.qp) + 1),
            ]
            clear_to_difference(missed, pushed, released)
            reader_memories = (released, popped, skipped, missed)

        for side, memories in (
            (self.writer, (pushed, popped, skipped)),
            (self.reader, reader_memories),
        ):
            counts = [Signal(count_bits, name=f"count_{i}") for i in range(len(memories))]
            reads = [look(memory, side.select) for memory in memories]
            difference = Signal(count_bits)
            m.d.sync += [count.eq(read) for count, read in zip(counts, reads, strict=True)]
            m.d.comb += difference.eq(counts[0] - counts[1] - counts[2] + sum(counts[3:]))
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
