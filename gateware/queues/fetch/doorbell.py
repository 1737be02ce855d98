"""Checks the doorbell of a ring."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.queues.fetch.visit import Visit, found_layout, refused_layout
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory


class FetchDoorbell(wiring.Component):
    """Takes the new producer number of a ring, then has its units fetched in the same visit.

    A number is right if the ring has room for all units that are not popped, and takes none back;
    differences are mod 2^16, so a ring has 2^15 units at most. What is not a doorbell passes, with
    valid, ready and payload as they are.

    Latency: a cycle; none for what passes. A doorbell of a QP without a ring, of one of which a
    read failed, or while there is no room for a read, is over a cycle after it came. One that is
    wrong is over when `refused` was taken, and stands until then.

    Members
    -------
    i: In(stream found_layout). o: Out(stream found_layout), to be fetched; `i` is taken with it.
    refused: Out(stream refused_layout), a number that is wrong.
    may_fetch: In(1), there is room for a read. It stays high until one was requested.
    post: Out(1), a pulse: the QP has `posted` units.
    again: Out(1), a pulse: visit the QP again.
    """

    def __init__(self, memory: PrefetchMemory):
        found = stream.Signature(found_layout(memory))
        super().__init__(
            {
                "i": In(found),
                "o": Out(found),
                "refused": Out(stream.Signature(refused_layout(memory.config))),
                "may_fetch": In(1),
                "post": Out(1),
                "again": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        found = self.i.payload
        fits = Signal()
        m.d.comb += [
            self.o.payload.eq(found),
            self.refused.payload.qp.eq(found.qp),
            self.refused.payload.index.eq(found.posted),
        ]

        with m.FSM():
            # Wait for a doorbell. Has the ring room for what it claims?
            with m.State("PASS"):
                m.d.sync += fits.eq(
                    (found.claim <= 1 << found.ring.log2) & (found.claim >= found.known)
                )
                with m.If(found.kind != Visit.DOORBELL):
                    m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
                with m.Elif(self.i.valid):
                    m.next = "DOORBELL"

            # Take the new producer number.
            with m.State("DOORBELL"):
                with m.If(~found.ring.exists):
                    m.d.comb += self.i.ready.eq(1)
                    m.next = "PASS"
                with m.Elif(fits):
                    m.d.comb += self.post.eq(1)
                    with m.If(found.failed | ~self.may_fetch):
                        m.d.comb += [self.again.eq(1), self.i.ready.eq(1)]
                        m.next = "PASS"
                    with m.Else():
                        m.d.comb += [self.o.valid.eq(1), self.i.ready.eq(self.o.ready)]
                        m.next = "FETCH"
                        with m.If(self.o.ready):
                            m.next = "PASS"
                with m.Else():
                    m.d.comb += [self.refused.valid.eq(1), self.i.ready.eq(self.refused.ready)]
                    with m.If(self.refused.ready):
                        m.next = "PASS"

            # Wait until its units are fetched.
            with m.State("FETCH"):
                m.d.comb += [self.o.valid.eq(1), self.i.ready.eq(self.o.ready)]
                with m.If(self.o.ready):
                    m.next = "PASS"
        return m
