"""The visits under way: one that is requested, those that are answered, one in the deframer."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import MpaLayouts
from stagecoach.gateware.mpa.ports import VisitPort
from stagecoach.gateware.mpa.receive_requests import ReceiveRequests
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.slot import StreamSlot

VISITS_AHEAD = 128
"""Visits that may have been requested before the deframer turns to them, in block RAM."""


class ReceiveVisits(wiring.Component):
    """Leads the deframer from visit to visit, `VISITS_AHEAD` and some more of them on their way.

    The bytes of one after the other are requested from the LLP, and the deframer turns to them in
    that order; what each has come to is handed back in that order. A connection has one visit at a
    time.

    While the deframer takes no visit, or the LLP does not answer, as many are requested as there is
    room for, and no further ones begin. An `end` has to be taken before the next one, which comes
    four cycles later at the earliest.

    Members
    -------
    begin: visits; `begun` has told of each before.
    others: other connections wait: no visit may go on for ever.
    number: a connection. begun: a pulse, a visit to it begins. forget: a pulse, a command came for
        it: what its visit comes to does not count, its bytes are dropped from four cycles later
        on, and no more of them are requested. announce: a pulse, bytes of it up to `available`
        can be requested.
    end_waiting, end: a visit came to that; until the pulse `end_taken`.
    request: to the LLP.
    deframer: `VisitPort`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._mpa = mpa = MpaLayouts(config)
        super().__init__(
            {
                "begin": In(stream.Signature(mpa.begin)),
                "others": In(1),
                "number": In(config.qp_bits),
                "begun": In(1),
                "forget": In(1),
                "announce": In(1),
                "available": In(32),
                "end_waiting": Out(1),
                "end": Out(mpa.visit_end),
                "end_taken": In(1),
                "request": Out(stream.Signature(mpa.rx_request)),
                "deframer": Out(VisitPort(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        deframer = self.deframer
        m.submodules.requests = requests = ReceiveRequests(self._config)
        m.submodules.visits = visits = StreamFifo(self._mpa.visit, VISITS_AHEAD)
        m.submodules.next = next_ = StreamSlot(self._mpa.visit)
        wiring.connect(m, wiring.flipped(self.begin), requests.begin)
        wiring.connect(m, requests.visit, visits.i)
        wiring.connect(m, visits.o, next_.i)
        wiring.connect(m, next_.o, wiring.flipped(deframer.visit))
        wiring.connect(m, requests.request, wiring.flipped(self.request))
        wiring.connect(m, requests.answer, wiring.flipped(deframer.answer))

        # Whether no command came for a connection since its visit began
        m.submodules.held = held = memory.Memory(shape=1, depth=self._config.qps, init=[])
        write = held.write_port()
        newest, next_held = held.read_port(domain="comb"), held.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.number),
            write.data.eq(self.begun),
            write.en.eq(self.begun | self.forget),
            newest.addr.eq(requests.qp),
            next_held.addr.eq(next_.o.payload.qp),
            deframer.held.eq(next_held.data),
        ]

        # A command that comes when the deframer takes a visit is seen a cycle later.
        current = Signal(self._config.qp_bits)
        forgotten = Signal()
        number = Signal(self._config.qp_bits)
        takes = Signal()
        m.d.comb += [
            takes.eq(next_.o.valid & next_.o.ready),
            deframer.drop.eq(forgotten & (number == current)),
        ]
        m.d.sync += [forgotten.eq(self.forget), number.eq(self.number)]
        with m.If(takes):
            m.d.sync += current.eq(next_.o.payload.qp)

        ahead = Signal(range(VISITS_AHEAD + 4))  # visits before which the deframer stands
        m.d.sync += ahead.eq(ahead + (requests.visit.valid & requests.visit.ready) - takes)
        m.d.comb += [
            requests.held.eq(newest.data),
            requests.entered.eq(ahead == 0),
            requests.dropped.eq(deframer.dropped),
            requests.others.eq(self.others),
            requests.announce.eq(self.announce),
            requests.number.eq(self.number),
            requests.available.eq(self.available),
            requests.took.eq(deframer.took),
            requests.fpdu_octets.eq(deframer.fpdu_octets),
            requests.fpdu_end.eq(deframer.fpdu_end),
        ]

        with m.If(self.end_taken):
            m.d.sync += self.end_waiting.eq(0)
        with m.If(deframer.ended):
            m.d.sync += [self.end_waiting.eq(1), self.end.eq(deframer.end)]
        return m
