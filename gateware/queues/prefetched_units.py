"""The units of rings that are on chip, as their consumer sees them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.queues.ports import EntryPort
from stagecoach.gateware.queues.prefetch_memory import LANE_UNITS, PrefetchMemory
from stagecoach.gateware.queues.unit_arrivals import COUNT_BITS


class PrefetchedUnits(wiring.Component):
    """Keeps the units and hands them to the consumer; knows which unit of each QP is the oldest.

    Parameters
    ----------
    memory: where the units stand.
    words: of a unit, a power of two.
    entry_units: units of the longest entry, 1 or 2.

    Members
    -------
    entries: the consumer; `EntryPort`, seen from the fetcher.
    store, store_address, store_data: a word for the memory.
    arrived: In, running number after the units of QP `entries.select` of a cycle ago; failed:
        In(1), whether none comes after them.
    qp: In, the QP to look at; `popped` and `home` are its rows a cycle later. A pop or a `settle`
        in the cycle in which `qp` is looked at, or in the one before, does not count yet.
    settle, settled: In, change a QP's oldest unit; without effect in a cycle with `entries.pop`,
        which must be of another QP.
    move, moved: In, change a QP's home.
    post, posted: In, change how many of its units are posted (running number after them).
    """

    def __init__(self, memory: PrefetchMemory, *, words: int, entry_units: int):
        config = memory.config
        self._memory = memory
        self._words = words
        self._entry_units = entry_units
        super().__init__(
            {
                "entries": In(EntryPort(config, entry_units * words)),
                "store": In(1),
                "store_address": In(memory.address_bits + exact_log2(words)),
                "store_data": In(64),
                "arrived": In(COUNT_BITS),
                "failed": In(1),
                "qp": In(config.qp_bits),
                "popped": Out(memory.popped),
                "home": Out(memory.home),
                "settle": In(1),
                "settled": In(memory.popped),
                "move": In(1),
                "moved": In(memory.home),
                "post": In(1),
                "posted": In(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports = self.entries

        def table(name: str, shape: data.StructLayout | int) -> Memory:
            # They are read while they are written, which block RAM does not bear.
            m.submodules[name] = it = Memory(
                shape=shape,
                depth=self._memory.config.qps,
                init=[],
                attrs={"ram_style": "distributed"},
            )
            return it

        popped = table("popped", self._memory.popped)
        homes = table("homes", self._memory.home)
        produced = table("produced", 16)

        popped_write, homes_write = popped.write_port(), homes.write_port()
        produced_write = produced.write_port()
        popped_read, homes_read = popped.read_port(), homes.read_port()
        m.d.comb += [
            popped_read.addr.eq(self.qp),
            self.popped.eq(popped_read.data),
            homes_read.addr.eq(self.qp),
            self.home.eq(homes_read.data),
            homes_write.addr.eq(self.qp),
            homes_write.data.eq(self.moved),
            homes_write.en.eq(self.move),
            produced_write.addr.eq(self.qp),
            produced_write.data.eq(self.posted),
            produced_write.en.eq(self.post),
        ]

        # Of the selected QP. Asked for a cycle earlier and from registers, because an address is
        # made of it.
        coming_popped = popped.read_port(domain="comb")
        coming_home = homes.read_port(domain="comb")
        # What is being changed is chosen after the registers: the memories are slow enough.
        oldest, oldest_read, oldest_new = (Signal(self._memory.popped) for _ in range(3))
        home, home_read, home_new = (Signal(self._memory.home) for _ in range(3))
        oldest_changed, home_changed = Signal(), Signal()
        m.d.comb += [
            oldest.eq(Mux(oldest_changed, oldest_new, oldest_read)),
            home.eq(Mux(home_changed, home_new, home_read)),
        ]
        m.d.comb += [coming_popped.addr.eq(ports.coming), coming_home.addr.eq(ports.coming)]
        # Who pops is far, so the row of a pop is written a cycle later.
        after_pop = Signal(self._memory.popped)
        settles = self.settle & ~ports.pop
        m.d.sync += [
            popped_write.en.eq(ports.pop | self.settle),
            popped_write.addr.eq(Mux(ports.pop, ports.select, self.qp)),
            popped_write.data.eq(Mux(ports.pop, after_pop, self.settled)),
        ]
        is_written = popped_write.en & (popped_write.addr == ports.coming)
        is_settled = settles & (self.qp == ports.coming)
        is_popped = ports.pop & (ports.select == ports.coming)
        m.d.sync += [
            oldest_read.eq(coming_popped.data),
            oldest_changed.eq(is_written | is_settled | is_popped),
            oldest_new.eq(Mux(is_settled, self.settled, popped_write.data)),
            home_read.eq(coming_home.data),
            home_changed.eq(self.move & (self.qp == ports.coming)),
            home_new.eq(self.moved),
        ]
        with m.If(is_popped):
            m.d.sync += oldest_new.eq(after_pop)

        # Both units that an entry may have; the second one out of a register.
        units_at = [
            self._memory.address(
                oldest.in_lane[unit],
                home.lane,
                ports.select,
                oldest.number[: exact_log2(LANE_UNITS)] + unit,
            )
            for unit in range(self._entry_units)
        ]
        second_at = Signal(self._memory.address_bits)
        m.d.sync += second_at.eq(units_at[-1])
        word_bits = exact_log2(self._words)
        second = ports.word_address[word_bits:] if self._entry_units > 1 else Const(0)
        word_at = Signal.like(self.store_address)
        selected_produced = produced.read_port()
        number = Signal(16)
        level = Signal(COUNT_BITS)
        m.d.comb += [
            word_at.eq(Cat(ports.word_address[:word_bits], Mux(second, second_at, units_at[0]))),
            selected_produced.addr.eq(ports.select),
            level.eq(self.arrived - number),
        ]
        m.d.sync += [
            number.eq(oldest.number),
            ports.index.eq(number),
            ports.posted.eq(selected_produced.data - number),
            ports.level.eq(level),
            ports.failed.eq(self.failed),
        ]

        # A memory for each part: their sizes are powers of two, so the word is chosen of two at
        # most after the block RAMs, which are slow. A unit is looked at only when it has arrived,
        # so no word is used that was read while it was written.
        words_read = []
        for which, units in enumerate(self._memory.parts):
            m.submodules[f"part_{which}"] = part = Memory(
                shape=64, depth=units * self._words, init=[], attrs=NO_COLLISION
            )
            write, read = part.write_port(), part.read_port()
            m.d.comb += [
                write.addr.eq(self.store_address[:-1]),
                write.data.eq(self.store_data),
                write.en.eq(self.store & (self.store_address[-1] == which)),
                read.addr.eq(word_at[:-1]),
            ]
            words_read.append(read.data)
        is_second = Signal()
        m.d.sync += [
            is_second.eq(word_at[-1]),
            ports.word.eq(Mux(is_second, words_read[1], words_read[0])),
        ]

        # Of the selected QP: nothing else pops it, so this is right although a cycle old, unless
        # it was settled in that cycle, which leaves the number as it is.
        in_lane = Signal.like(oldest.in_lane)
        has_lane = Signal()
        m.d.sync += [in_lane.eq(oldest.in_lane), has_lane.eq(home.in_lane)]
        with m.If(self.settle & (self.qp == ports.select)):
            m.d.sync += in_lane.eq(self.settled.in_lane)
        with m.If(self.move & (self.qp == ports.select)):
            m.d.sync += has_lane.eq(self.moved.in_lane)
        m.d.comb += [
            after_pop.number.eq(number + 1 + ports.pop_both),
            after_pop.in_lane.eq(
                Mux(
                    ports.pop_both, Cat(in_lane[2:], has_lane, has_lane), Cat(in_lane[1:], has_lane)
                )
            ),
        ]
        return m
