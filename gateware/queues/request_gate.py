"""Holds inbound requests until the completions before them are visible in host memory."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gateware.config import RnicConfig
from gateware.interfaces import QpStrobe

DEPTH = 32

MARGIN = 4
"""Requests that may still come when `room` has fallen."""


class RequestGate(wiring.Component):
    """Passes each release of a request on when what the ring writer had accepted has finished.

    So the answer to an RDMA Read or an atomic is not generated until the Sends and Immediate Data
    before it have been completed (RFC 5040, Appendix B; RFC 7306, 7): the host can see their
    entries. Entries of other QPs are waited for too; releases leave in their order. 5 cycles from a
    release, or 4 from the last pulse of `finished`, to the output; one release every 3 cycles.
    Counts run mod 2^16; at most 2^15 entries may be between `accepted` and `finished`.

    Members
    -------
    i, o: QpStrobe, requests that may be answered.
    room: Out(1), when it is low at most `MARGIN` more may come, one every 3 cycles.
    accepted, finished: In(1), of `RingWriter`. A completion before a request is accepted a cycle
        before the request comes, or earlier.
    """

    def __init__(self, config: RnicConfig):
        self._layout = data.StructLayout({"qp": config.qp_bits, "goal": 16})
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
        accept, finish = Signal(), Signal()
        accepted, finished = Signal(16), Signal(16)
        m.d.sync += [
            accept.eq(self.accepted),
            finish.eq(self.finished),
            accepted.eq(accepted + accept),
            finished.eq(finished + finish),
            self.room.eq(fifo.level < DEPTH - MARGIN),
        ]
        m.d.comb += [
            fifo.w_en.eq(self.i.valid),
            # The one that was accepted a cycle ago counts.
            fifo.w_data.eq(Cat(self.i.qp, (accepted + accept)[:16])),
        ]

        head = Signal(layout)
        beyond = Signal(16)  # negative: entries are missing
        m.d.sync += [
            beyond.eq(finished - head.goal),
            self.o.valid.eq(0),
            self.o.qp.eq(head.qp),
        ]
        with m.FSM():
            # Waits for a request.
            with m.State("IDLE"):
                m.d.comb += fifo.r_en.eq(1)
                m.d.sync += head.eq(fifo.r_data)
                with m.If(fifo.r_rdy):
                    m.next = "COMPARE"
            # The difference is taken.
            with m.State("COMPARE"):
                m.next = "COMPLETED"
            # Waits until all entries before it are visible.
            with m.State("COMPLETED"):
                with m.If(~beyond[-1]):
                    m.d.sync += self.o.valid.eq(1)
                    m.next = "IDLE"
        return m
