"""Holds inbound requests until the completions before them are visible in host memory."""

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.queue_drain import QueueDrain

DEPTH = 32

MARGIN = 4
"""Requests that may still come when `room` has fallen."""


class RequestGate(wiring.Component):
    """Passes each release of a request on when what the ring writer had accepted has finished.

    So the answer to an RDMA Read or an atomic is not generated until the Sends and Immediate Data
    before it have been completed (RFC 5040, Appendix B; RFC 7306, 7): the host can see their
    entries. Entries of other QPs are waited for too; releases leave in their order. 5 cycles from a
    release, or 4 from the last pulse of `finished`, to the output; one release every 3 cycles.
    Nothing holds a release whose entries have finished; entries that begin and end while one waits
    do not count for it (`QueueDrain`).

    Parameters
    ----------
    config: sizes of the device.
    count_bits: fewer than 2^`count_bits` entries may be between `accepted` and `finished`: the
        `OUTSTANDING` of `entry_writer.py`, and the one that is being made.

    Members
    -------
    i, o: QpStrobe, requests that may be answered.
    room: Out(1), when it is low at most `MARGIN` more may come, one every 3 cycles.
    accepted, finished: In(1), of `RingWriter`. A completion before a request is accepted a cycle
        before the request comes, or earlier.
    """

    def __init__(self, config: RnicConfig, count_bits: int = COUNT_BITS):
        self._count_bits = count_bits
        self._layout = data.StructLayout({"qp": config.qp_bits, "share": count_bits})
        super().__init__(
            {
                "i": In(QpStrobe(config)),
                "o": Out(QpStrobe(config)),
                "room": Out(1),
                "accepted": In(1),
                "finished": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = self._layout
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=layout.size, depth=DEPTH)
        m.submodules.drain = drain = QueueDrain(DEPTH, self._count_bits)
        accepted = Signal(self._count_bits)
        request = Signal(layout)
        m.d.sync += [
            accepted.eq(accepted + self.accepted),
            drain.end.eq(self.finished),
            self.room.eq(fifo.level < DEPTH - MARGIN),
        ]
        m.d.comb += [
            drain.mark.eq(self.i.valid),
            drain.begun.eq(accepted),  # the one that was accepted a cycle ago counts
            request.qp.eq(self.i.qp),
            request.share.eq(drain.share),
            fifo.w_en.eq(self.i.valid),
            fifo.w_data.eq(request),
        ]

        head = data.View(layout, fifo.r_data)
        finished = Signal()
        m.d.comb += drain.loaded.eq(head.share)
        m.d.sync += [finished.eq(drain.missing[-1] | (drain.missing == 0)), self.o.valid.eq(0)]
        with m.FSM():
            # Waits for a request.
            with m.State("IDLE"):
                m.d.comb += [fifo.r_en.eq(1), drain.load.eq(fifo.r_rdy)]
                m.d.sync += self.o.qp.eq(head.qp)
                with m.If(fifo.r_rdy):
                    m.next = "COMPARE"
            # What is missing is looked at.
            with m.State("COMPARE"):
                m.next = "COMPLETED"
            # Waits until all entries before it are visible.
            with m.State("COMPLETED"):
                with m.If(finished):
                    m.d.sync += self.o.valid.eq(1)
                    m.next = "IDLE"
        return m
