"""Tells of units that could not be read, and of doorbells that are wrong."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.fetch.visit import found_layout, refused_layout
from stagecoach.gateware.queues.prefetch_memory import PrefetchMemory
from stagecoach.gateware.queues.unit_arrivals import COUNT_BITS
from stagecoach.hw.interface.causes import Cause


class FetchFailure(wiring.Component):
    """Makes the errors of a ring: HOST_READ_ERROR once for each QP, LOCAL_BAD_ENTRY when refused.

    Index of an error is the running number, mod 2^16, of the first unit that is not there, or what
    the doorbell claimed.

    Latency: 3 cycles from `failed` to `error`, one from `refused`. `failed` is taken in any case,
    in the cycle before or the one before that: if the error before was not taken, or a unit is
    counted or was popped, the QP is to be visited `again`. `refused` waits until the error before
    was taken.

    Members
    -------
    failed: In(stream found_layout), a QP of which a read failed.
    refused: In(stream refused_layout).
    error: Out(stream qp_error).
    popped_since: In(1), the QP was popped since it was looked up.
    counting: In(1), a unit is being counted, which prevents a change of the row.
    tell: Out(1), a pulse: an error tells of QP `failed.qp`, of which `count`, Out, units arrived.
    again: Out(1), a pulse: visit the QP again.
    """

    def __init__(self, memory: PrefetchMemory):
        super().__init__(
            {
                "failed": In(stream.Signature(found_layout(memory))),
                "refused": In(stream.Signature(refused_layout(memory.config))),
                "error": Out(stream.Signature(Layouts(memory.config).qp_error)),
                "popped_since": In(1),
                "counting": In(1),
                "tell": Out(1),
                "count": Out(COUNT_BITS),
                "again": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        found, refused, error = self.failed.payload, self.refused.payload, self.error
        telling = Signal()
        missing = Signal(16)  # running number of the first unit that is not there
        m.d.comb += [self.refused.ready.eq(~error.valid & ~telling), self.count.eq(missing)]
        with m.If(error.ready):
            m.d.sync += error.valid.eq(0)
        with m.If(~error.valid):
            m.d.sync += [
                error.valid.eq(self.tell | (self.refused.valid & ~telling)),
                error.payload.qp.eq(Mux(telling, found.qp, refused.qp)),
                error.payload.index.eq(Mux(telling, missing, refused.index)),
                error.payload.cause.eq(Mux(telling, Cause.HOST_READ_ERROR, Cause.LOCAL_BAD_ENTRY)),
            ]

        with m.FSM():
            # Wait for a QP of which a read failed. Which unit is the first one that is not there?
            with m.State("FAILED"):
                m.d.sync += missing.eq(found.popped.number + found.on_chip)
                with m.If(self.failed.valid):
                    m.next = "TOLD"

            # Was it told already?
            with m.State("TOLD"):
                m.next = "TELL"
                with m.If(found.told | self.popped_since):
                    m.d.comb += [self.again.eq(~found.told), self.failed.ready.eq(1)]
                    m.next = "FAILED"

            # Tell of it, once; others are visited while the error before waits.
            with m.State("TELL"):
                m.d.comb += [telling.eq(1), self.failed.ready.eq(1)]
                with m.If(error.valid | self.counting):
                    m.d.comb += self.again.eq(1)
                with m.Else():
                    m.d.comb += self.tell.eq(1)
                m.next = "FAILED"
        return m
