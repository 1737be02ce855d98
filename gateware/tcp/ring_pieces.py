"""What is read out of a ring: one piece, or two if the end of the ring is among its octets."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.tcp.layouts import RING_ADDRESS_BITS

RING_READ = data.StructLayout(
    {
        "address": RING_ADDRESS_BITS,
        "octets": 17,
        "wrapped": 17,
        "ring": RING_ADDRESS_BITS,
        "inline": 1,
    }
)
"""`octets` from `address` on, the last `wrapped` of them from the beginning of the `ring` instead,
fewer than all; `inline`: as in `Gather`."""


class RingPieces(wiring.Component):
    """Makes pieces for `Gather` of each read, the last one with `last`.

    A piece in each cycle in which it is taken; a read is taken with its last piece, and its first
    one is offered in the cycle in which the read is. If `o` is not taken, the read waits.

    Members
    -------
    i: reads. o: pieces.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "i": In(stream.Signature(RING_READ)),
                "o": Out(stream.Signature(Layouts(config).gather_piece)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read: Any = self.i.p
        piece: Any = self.o.p
        wraps = read.wrapped != 0
        m.d.comb += [self.o.valid.eq(self.i.valid), piece.inline.eq(read.inline)]
        with m.FSM(init="FIRST"):
            with m.State("FIRST"):  # up to the end of the ring
                m.d.comb += [
                    piece.address.eq(read.address),
                    piece.octets.eq(read.octets - read.wrapped),
                    piece.last.eq(~wraps),
                    self.i.ready.eq(self.o.ready & ~wraps),
                ]
                with m.If(self.i.valid & self.o.ready & wraps):
                    m.next = "SECOND"
            with m.State("SECOND"):  # from its beginning
                m.d.comb += [
                    piece.address.eq(read.ring),
                    piece.octets.eq(read.wrapped),
                    piece.last.eq(1),
                    self.i.ready.eq(self.o.ready),
                ]
                with m.If(self.i.valid & self.o.ready):
                    m.next = "FIRST"
        return m
