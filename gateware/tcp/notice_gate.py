"""Keeps frames of the driver until it has been told what came before them."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import RAW_WORD


class NoticeGate(wiring.Component):
    """Lets a frame begin while no notice waits, or while one is offered where frames are taken.

    `RawReceive` takes no frame that comes after a notice was offered to it before that notice. So
    each frame that comes here after a notice began to wait is in the queue after it. If that
    notice has no place there, the frame passes, and is dropped: a driver that takes nothing holds
    up no frame here.

    No latency, and no cycle between frames. A frame that has begun passes whatever waits.

    Members
    -------
    i, o: frames. waits: notices do, those that are offered among them. offered: one is, to who
        takes `o`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(RAW_WORD)),
                "o": Out(stream.Signature(RAW_WORD)),
                "waits": In(1),
                "offered": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = Signal()  # the first word of a frame was offered, its last one not taken
        opens = Signal()
        m.d.comb += [
            opens.eq(inside | ~self.waits | self.offered),
            self.o.valid.eq(self.i.valid & opens),
            self.o.payload.eq(self.i.payload),
            self.i.ready.eq(self.o.ready & opens),
        ]
        with m.If(self.o.valid):
            m.d.sync += inside.eq(~(self.o.ready & self.o.p.last))
        return m
