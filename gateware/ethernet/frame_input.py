"""Where frames come in: AXI4-Stream becomes words with a place."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import INDEX_BITS, AxiStreamSignature, FrameBus

_LAST_INDEX = (1 << INDEX_BITS) - 1


class FrameInput(wiring.Component):
    """Numbers the words of each frame and counts their bytes.

    One word per cycle, always ready, latency one cycle. A frame has `error` if the MAC said so with
    any of its words, if a word before the last is not full, or if the bytes of one are not
    contiguous from lane 0. A frame that never ends holds up nobody but its own port.

    Members
    -------
    rx: frames of the MAC. o: their words.
    """

    rx: In(AxiStreamSignature())
    o: Out(FrameBus())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rx, word = self.rx, self.o.p
        begins = Signal(init=1)  # the next word is the first of a frame
        spoiled = Signal()  # an earlier word of the frame was wrong
        octets = Signal(4)
        wrong = Signal()
        index = Signal(INDEX_BITS)
        m.d.comb += [
            rx.tready.eq(1),
            octets.eq(sum(rx.tkeep[lane] for lane in range(8))),
            wrong.eq(
                rx.tuser
                | ~rx.tkeep[0]
                | (rx.tkeep & (rx.tkeep + 1)[:8]).any()
                | (~rx.tlast & ~rx.tkeep.all())
            ),
        ]
        m.d.sync += self.o.valid.eq(rx.tvalid)
        with m.If(rx.tvalid):
            m.d.sync += [
                begins.eq(rx.tlast),
                spoiled.eq(~rx.tlast & (wrong | spoiled)),
                index.eq(Mux(rx.tlast, 0, Mux(index == _LAST_INDEX, index, index + 1))),
                word.data.eq(rx.tdata),
                word.octets.eq(octets),
                word.index.eq(index),
                word.first.eq(begins),
                word.last.eq(rx.tlast),
                word.error.eq(wrong | spoiled),
            ]
        return m
