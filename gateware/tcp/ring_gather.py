"""What is read out of a ring: the bytes of each read leave packed, from lane 0 on."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.dma.bursts import WORD_BITS
from stagecoach.gateware.dma.lanes import choose_lanes, lanes_below, rotate_lanes
from stagecoach.gateware.host_memory import PAYLOAD_BEAT, ReadClient
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.tcp.layouts import RING_ADDRESS_BITS

OCTETS_BITS = 16
"""Of a read: memory has no longer one."""


def ring_read(tag_bits: int) -> data.StructLayout:
    """Return the layout of a read of a ring.

    `octets` from `address` on, the last `wrapped` of them from the beginning of the `ring` instead,
    fewer than all. inline: nothing is read, and all bytes are 0. tag: goes along.
    """
    return data.StructLayout(
        {
            "address": RING_ADDRESS_BITS,
            "octets": OCTETS_BITS,
            "wrapped": OCTETS_BITS,
            "ring": RING_ADDRESS_BITS,
            "inline": 1,
            "tag": tag_bits,
        }
    )


def ring_beat(tag_bits: int) -> data.StructLayout:
    """Return the layout of a beat: `PAYLOAD_BEAT`, and the tag of its read."""
    return data.StructLayout({**PAYLOAD_BEAT.members, "tag": tag_bits})


class RingGather(wiring.Component):
    """Reads bytes of rings, in order, by one command each, or two where the ring ends.

    Rings begin and end at a multiple of 8: from the second command on, bytes are in the lanes in
    which they would be without the end. So each read has one rotation, and `Gather`, which takes
    pieces of any address, is twice as large.

    The bytes of a read leave `o` from lane 0 on; lanes after the last one mean nothing. The last
    beat has `error` if any of its words had. A read in each cycle, or two with two commands; 1
    cycle from a read to its command. One word per cycle, and one cycle more if the bytes of the
    last word fill two beats; 2 cycles from a word to its beat. Commands go out for `reads` reads
    ahead of the one whose words come. If `o` is not taken, words wait in the read engine; while
    that takes no command, or answers nothing, reads wait. No counter wraps.

    Parameters
    ----------
    reads: as said, 2 or more. tag_bits: of the tag.

    Members
    -------
    i: reads. read: of memory. o: beats; `ready` goes to `read.data` in the same cycle.
    """

    def __init__(self, reads: int, tag_bits: int = 0):
        self._reads = reads
        self._tag_bits = tag_bits
        super().__init__(
            {
                "i": In(stream.Signature(ring_read(tag_bits))),
                "read": Out(ReadClient()),
                "o": Out(stream.Signature(ring_beat(tag_bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        planned = data.StructLayout(
            {
                "lane": WORD_BITS,
                "octets": OCTETS_BITS,
                "inline": 1,
                "tag": self._tag_bits,
            }
        )
        m.submodules.plans = plans = StreamFifo(planned, self._reads)
        self._command(m, plans)
        self._pack(m, plans)
        return m

    def _command(self, m: Module, plans: StreamFifo) -> None:
        """Command what is read, and note how it is packed, with the first command."""
        asked, command = self.i.p, self.read.command
        second, wraps = Signal(), Signal()  # the command is the second one; there are two
        free, goes = Signal(), Signal()
        m.d.comb += [
            wraps.eq((asked.wrapped != 0) & ~asked.inline),
            free.eq(~command.valid | command.ready),
            goes.eq(self.i.valid & free & (second | plans.i.ready)),
            self.i.ready.eq(free & Mux(second, 1, plans.i.ready & ~wraps)),
            plans.i.valid.eq(self.i.valid & free & ~second),
            plans.i.p.lane.eq(Mux(asked.inline, 0, asked.address[:WORD_BITS])),
            plans.i.p.octets.eq(asked.octets),
            plans.i.p.inline.eq(asked.inline),
            plans.i.p.tag.eq(asked.tag),
        ]
        with m.If(free):
            m.d.sync += [
                command.valid.eq(goes & ~asked.inline),
                command.p.address.eq(Mux(second, asked.ring, asked.address)),
                command.p.octets.eq(
                    Mux(second, asked.wrapped, (asked.octets - asked.wrapped)[:OCTETS_BITS])
                ),
            ]
        with m.If(goes):
            m.d.sync += second.eq(wraps & ~second)

    def _pack(self, m: Module, plans: StreamFifo) -> None:
        """Rotate each word, and join it with what is left of the one before."""
        plan, words, o = plans.o.p, self.read.data, self.o
        # The read under way: its bytes are whole beats and some more. Bytes of a beat that stand
        # in one word are `held` when that is followed by another one.
        active = Signal()
        lane, some = Signal(WORD_BITS), Signal(WORD_BITS)
        beats = Signal(OCTETS_BITS - WORD_BITS)
        none, one = Signal(), Signal()  # of them; of the bytes that are left
        inline, tag = Signal(), Signal(self._tag_bits)
        fits = Signal()  # what is more stands in the lanes that are held
        held, flushes = Signal(), Signal()  # some are; and they are all that is left
        failed = Signal()

        step, moves, ends, emits = Signal(), Signal(), Signal(), Signal()
        next_octets = plan.octets[WORD_BITS:]
        keeps = Signal(WORD_BITS)
        m.d.comb += [
            step.eq(~o.valid | o.ready),
            keeps.eq(-lane),  # lanes that a word fills before the next one does
            fits.eq(some <= keeps),
            moves.eq(step & active & (flushes | inline | words.valid)),
            words.ready.eq(step & active & ~flushes & ~inline),
            emits.eq(held | (none & fits)),
            ends.eq(emits & (none | (one & (some == 0)))),
            plans.o.ready.eq(~active | (moves & ends)),
        ]
        with m.If(plans.o.ready):
            m.d.sync += [
                active.eq(plans.o.valid),
                lane.eq(plan.lane),
                some.eq(plan.octets[:WORD_BITS]),
                beats.eq(next_octets),
                none.eq(next_octets == 0),
                one.eq(next_octets == 1),
                inline.eq(plan.inline),
                tag.eq(plan.tag),
                held.eq(plan.lane == 0),
                flushes.eq(0),
            ]
        with m.Elif(moves):
            m.d.sync += [held.eq(1), flushes.eq(held & one & fits)]
            with m.If(emits):
                m.d.sync += [beats.eq(beats - 1), none.eq(one), one.eq(beats == 2)]

        # The word, rotated, and what becomes of it.
        rotated, rest = Signal(64), Signal(64)
        kept = Signal(WORD_OCTETS)  # lanes that the word before fills
        beat = Signal(o.p.shape())  # but for its bytes of memory
        comes, given = Signal(), Signal()  # a word, or what was held; with a beat
        error = Signal()
        m.d.comb += error.eq(failed | (words.p.error & ~flushes & ~inline))
        with m.If(step):
            m.d.sync += [
                comes.eq(moves),
                given.eq(moves & emits),
                rotated.eq(Mux(inline, 0, rotate_lanes(words.p.data, keeps))),
                kept.eq(lanes_below(Mux(held, keeps, 0))),
                beat.octets.eq(Mux(none, some, WORD_OCTETS)),
                beat.last.eq(ends),
                beat.error.eq(ends & error),
                beat.tag.eq(tag),
            ]
        with m.If(moves):
            m.d.sync += failed.eq(error & ~ends)

        with m.If(step):
            m.d.sync += [
                o.valid.eq(given),
                o.payload.eq(beat),
                o.p.data.eq(choose_lanes(kept, rest, rotated)),
            ]
            with m.If(comes):
                m.d.sync += rest.eq(rotated)
