"""Ring units that come back from host memory."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.host_memory import READ_WORD
from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.stream.fifo import StreamFifo

RUN = 4
"""Units that one read may have."""

COUNT_BITS = 6
"""Of a running number, enough to compare those on chip."""

ARRIVED = data.StructLayout({"count": COUNT_BITS, "failed": 1, "told": 1})
"""Running number after the last unit of a QP that arrived, whether a read failed since, and
whether an error told of that."""


def arrival_tag(config: RnicConfig, address_bits: int) -> data.StructLayout:
    """What is known of a read on its way."""
    return data.StructLayout(
        {
            "qp": config.qp_bits,
            "address": address_bits,  # of its first unit in the prefetch memory
            "copies": 1,  # its units have arrived before
        }
    )


class UnitArrivals(wiring.Component):
    """Stores the words of reads and counts the units of each QP that arrived.

    Takes a word in every cycle, whatever happens. A unit that comes after a failed one of its QP is
    not counted. Five cycles from the last word of a unit to `filled`; `selected` and `looked` can
    show it then.

    Parameters
    ----------
    config: sizes of the device.
    address_bits: of a unit in the prefetch memory.
    words: of a unit, a power of two from 2 on: a row is written two cycles after it was looked up.
    outstanding: reads that may be on their way.

    Members
    -------
    tag: In(stream), the reads in the order of their data; pushed at the latest with the command.
    word: In(stream READ_WORD), always ready.
    store, store_address, store_data: Out, a word for the prefetch memory.
    filled: Out(QpStrobe), a unit became available.
    failed: Out(QpStrobe), one could not be read, the first one of its QP.
    ended, ended_tag, ended_failed: Out, a pulse for each read that has ended.
    select: In(qp); `selected` is its row one cycle later. look, looked: as these.
    set, set_qp, set_row: In, change a row. It can be looked at two cycles later. A change in a
        cycle with `busy` may be lost.
    busy: Out(1), a unit that ended is being counted.
    """

    def __init__(self, config: RnicConfig, *, address_bits: int, words: int, outstanding: int):
        if words < 2 or words & (words - 1):
            raise ValueError(f"words is {words}; allowed: a power of two from 2 on")
        self._config = config
        self._words = words
        self._outstanding = outstanding
        self._tag = tag = arrival_tag(config, address_bits)
        super().__init__(
            {
                "tag": In(stream.Signature(tag)),
                "word": In(stream.Signature(READ_WORD)),
                "store": Out(1),
                "store_address": Out(address_bits + exact_log2(words)),
                "store_data": Out(64),
                "filled": Out(QpStrobe(config)),
                "failed": Out(QpStrobe(config)),
                "ended": Out(1),
                "ended_tag": Out(tag),
                "ended_failed": Out(1),
                "select": In(config.qp_bits),
                "selected": Out(ARRIVED),
                "look": In(config.qp_bits),
                "looked": Out(ARRIVED),
                "set": In(1),
                "set_qp": In(config.qp_bits),
                "set_row": In(ARRIVED),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.tags = tags = StreamFifo(self._tag, self._outstanding)
        m.submodules.arrived = arrived = Memory(shape=ARRIVED, depth=self._config.qps, init=[])
        write = arrived.write_port()
        now = arrived.read_port(domain="comb")
        selected, looked = arrived.read_port(), arrived.read_port()
        wiring.connect(m, wiring.flipped(self.tag), tags.i)
        m.d.comb += [
            selected.addr.eq(self.select),
            self.selected.eq(selected.data),
            looked.addr.eq(self.look),
            self.looked.eq(looked.data),
        ]

        word = Signal(READ_WORD)
        word_valid = Signal()
        tag = Signal(self._tag)
        tag_valid = Signal()
        number = Signal(range(self._words))  # of the word in its unit
        spoiled = Signal()  # a word of the unit could not be read
        any_spoiled = Signal()  # or of the read
        unit_ends = Signal()
        read_ends = Signal()
        bad = Signal()
        m.d.comb += [
            self.word.ready.eq(1),
            unit_ends.eq(word_valid & (number == self._words - 1)),
            read_ends.eq(word_valid & word.last),
            bad.eq(spoiled | word.error),
            tags.o.ready.eq(~tag_valid | read_ends),
        ]
        m.d.sync += [word_valid.eq(self.word.valid), word.eq(self.word.payload)]
        with m.If(word_valid):
            m.d.sync += [
                number.eq(number + 1),
                spoiled.eq(bad & ~unit_ends),
                any_spoiled.eq((any_spoiled | bad) & ~read_ends),
            ]
        with m.If(unit_ends):
            m.d.sync += tag.address[: exact_log2(RUN)].eq(tag.address[: exact_log2(RUN)] + 1)
        with m.If(tags.o.ready):
            m.d.sync += [tag.eq(tags.o.payload), tag_valid.eq(tags.o.valid)]

        m.d.sync += [
            self.store.eq(word_valid),
            self.store_address.eq((tag.address << exact_log2(self._words)) | number),
            self.store_data.eq(word.data),
        ]

        # Counted when its last word is stored: a cycle to look up the row, one to change it, one to
        # write it.
        ends = Signal()
        ended = Signal(self._tag)
        ended_bad = Signal()
        counts = Signal()
        counted = Signal(self._tag)
        counted_bad = Signal()
        row = Signal(ARRIVED)
        failed = Signal()
        m.d.sync += [
            ends.eq(unit_ends),
            ended.eq(tag),
            ended_bad.eq(bad),
            counts.eq(ends),
            counted.eq(ended),
            counted_bad.eq(ended_bad),
            row.eq(now.data),
            self.ended.eq(read_ends),
            self.ended_failed.eq(any_spoiled | bad),
        ]
        m.d.comb += [
            now.addr.eq(ended.qp),
            failed.eq(row.failed | counted_bad),
            self.ended_tag.eq(ended),
            self.busy.eq(ends | counts),
        ]
        m.d.sync += [
            write.en.eq(counts | self.set),
            write.addr.eq(self.set_qp),
            write.data.eq(self.set_row),
        ]
        with m.If(counts):
            m.d.sync += [
                write.addr.eq(counted.qp),
                write.data.count.eq(row.count + ~(failed | counted.copies)),
                write.data.failed.eq(failed),
                write.data.told.eq(row.told),
            ]
        with m.If(write.en & (write.addr == ended.qp)):
            m.d.sync += row.eq(write.data)
        filled, fails = Signal(), Signal()
        m.d.sync += [
            filled.eq(counts & ~failed & ~counted.copies),
            fails.eq(counts & counted_bad & ~row.failed),
            self.filled.valid.eq(filled),
            self.filled.qp.eq(write.addr),
            self.failed.valid.eq(fails),
            self.failed.qp.eq(write.addr),
        ]
        return m
