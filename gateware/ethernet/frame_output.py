"""Where frames leave: those of several sources by turns, padded, as AXI4-Stream."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.dma.lanes import lanes_below
from stagecoach.gateware.ethernet.layouts import FRAME_BEAT, AxiStreamSignature
from stagecoach.gateware.stream.buffer import StreamBuffer
from stagecoach.gateware.stream.round_robin import choose_round_robin

LEAST_OCTETS = 60
"""Of a frame without FCS (IEEE 802.3, 4.4.2: `minFrameSize` is 512 bits with it)."""

_LAST_PADDED = (LEAST_OCTETS - 1) // 8
"""Number of the word with the last byte of the shortest frame."""


class FrameOutput(wiring.Component):
    """Takes whole frames from its sources by turns, and fills short ones up with zeros.

    One word per cycle, latency one cycle, no cycle between frames. After a frame the next source in
    circular order that has one goes on. A frame below 60 bytes takes 8 words. Bytes after the
    end of a frame are 0. `tuser` is always 0.

    While the MAC takes nothing nothing is taken, and no frame is broken off or changed. A source
    that does not go on with its frame holds the port: sources have a frame whole before they offer
    its first word, because a MAC wants all words of one without a gap. Words of a frame are counted
    up to 8, and no further.

    Parameters
    ----------
    sources: their number, from 1 on.

    Members
    -------
    frames: of each source. The bytes of a beat are 8, or 1 to 8 of the last one.
    tx: to the MAC.
    """

    def __init__(self, sources: int = 2):
        if sources < 1:
            raise ValueError(f"FrameOutput sources is {sources!r}; allowed: 1 and more")
        self._sources = sources
        super().__init__(
            {
                "frames": In(stream.Signature(FRAME_BEAT)).array(sources),
                "tx": Out(AxiStreamSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tx = self.tx
        m.submodules.output = output = StreamBuffer(FRAME_BEAT)
        word = output.i.p

        # Whose frame: the one under way, else the next in order
        latest = Signal(range(self._sources))
        choice, source = Signal.like(latest), Signal.like(latest)
        under_way = Signal()
        choose_round_robin(m, [each.valid for each in self.frames], latest, choice)
        m.d.comb += source.eq(Mux(under_way, latest, choice))
        offered = Signal()
        beat = Signal(FRAME_BEAT)
        m.d.comb += [
            offered.eq(Array([each.valid for each in self.frames])[source]),
            beat.eq(Array([each.payload for each in self.frames])[source]),
        ]

        # Its words, and those that it is filled up with
        number = Signal(range(_LAST_PADDED + 2))
        is_least, is_long = Signal(), Signal()  # the last one of the shortest frame; that, or later
        pads = Signal()  # the frame has ended, and is not
        moves = Signal()
        m.d.comb += [
            is_least.eq(number == _LAST_PADDED),
            is_long.eq(number >= _LAST_PADDED),
            output.i.valid.eq(offered | pads),
            word.last.eq(is_long & (beat.last | pads)),
            word.octets.eq(beat.octets),
            moves.eq(output.i.valid & output.i.ready),
        ]
        for lane in range(8):
            here = ~pads & lanes_below(beat.octets)[lane]
            octet = beat.data.word_select(lane, 8)
            m.d.comb += word.data.word_select(lane, 8).eq(Mux(here, octet, 0))
        with m.If(pads | (beat.last & ~is_long)):
            m.d.comb += word.octets.eq(8)
        least = LEAST_OCTETS - 8 * _LAST_PADDED
        with m.If(is_least & (pads | (beat.octets < least))):
            m.d.comb += word.octets.eq(least)
        for index, each in enumerate(self.frames):
            m.d.comb += each.ready.eq(output.i.ready & ~pads & (source == index))
        with m.If(moves):
            m.d.sync += [
                number.eq(Mux(word.last, 0, Mux(number > _LAST_PADDED, number, number + 1))),
                pads.eq(~word.last & (pads | beat.last)),
            ]
            with m.If(~pads):
                m.d.sync += [latest.eq(source), under_way.eq(~beat.last)]

        m.d.comb += [
            tx.tvalid.eq(output.o.valid),
            output.o.ready.eq(tx.tready),
            tx.tdata.eq(output.o.p.data),
            tx.tkeep.eq(lanes_below(output.o.p.octets)),
            tx.tlast.eq(output.o.p.last),
        ]
        return m
