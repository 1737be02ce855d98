"""Decides what to request from the LLP in a visit to a connection."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import ANSWER, CHUNK_OCTETS, MpaLayouts
from stagecoach.gateware.stream.fifo import StreamFifo
from stagecoach.gateware.stream.slot import StreamSlot

VISIT_OCTETS = 16384
"""Bytes requested in a visit before the next connection gets its turn at the end of an FPDU."""

ANSWERS_AHEAD = 256
"""Requests that may be unanswered: as many as a block RAM has room for."""

BEATS_AHEAD = 384
"""A further request is made while no more beats than this are to come, which hides an LLP latency
of 320 cycles."""

REST_BITS = 18
"""Of a signed number of bytes of the longest FPDU, with its Markers."""


class ReceiveRequests(wiring.Component):
    """Requests the bytes of one visit after the other, ahead of the deframer.

    At most one request every four cycles, `CHUNK_OCTETS` each; the first one is offered four cycles
    after the visit was taken. While nobody else waits, a visit goes on until all that is available
    was requested and has come; more may be announced until then. If others wait, it ends with the
    last bytes that are available, or after `VISIT_OCTETS`: then at the end of an FPDU, which is
    known if the deframer is in that FPDU, else supposed, as if all FPDUs were as long as the last
    one. A visit may thus end inside an FPDU; that one is requested again.

    While the LLP takes no request, or does not answer, the visits to all connections wait. While
    the visit cannot be handed on, or `ANSWERS_AHEAD` answers wait, no request is made.

    Members
    -------
    begin: visits. visit: the same for the deframer, in the cycle in which it is taken here.
    qp: the connection of the visit. held: a command has not come for it.
    entered: the deframer is in it. dropped: it takes nothing more of it then.
    others: other connections wait.
    announce: a pulse, bytes of the connection `number` can be requested, up to `available`.
    request: to the LLP. answer: the same to the deframer, before the answer can be there.
    took, fpdu_octets, fpdu_end: from the deframer, see `VisitPort`.
    """

    def __init__(self, config: RnicConfig):
        self._mpa = mpa = MpaLayouts(config)
        super().__init__(
            {
                "begin": In(stream.Signature(mpa.begin)),
                "visit": Out(stream.Signature(mpa.visit)),
                "qp": Out(config.qp_bits),
                "held": In(1),
                "entered": In(1),
                "dropped": In(1),
                "others": In(1),
                "announce": In(1),
                "number": In(config.qp_bits),
                "available": In(32),
                "request": Out(stream.Signature(mpa.rx_request)),
                "answer": Out(stream.Signature(ANSWER)),
                "took": In(1),
                "fpdu_octets": In(17),
                "fpdu_end": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.answers = answers = StreamFifo(ANSWER, ANSWERS_AHEAD)
        m.submodules.slot = slot = StreamSlot(self._mpa.rx_request)
        wiring.connect(m, answers.o, wiring.flipped(self.answer))
        wiring.connect(m, slot.o, wiring.flipped(self.request))

        begin, visit, request = self.begin, self.visit, slot.i
        available = Signal(32)
        requested = Signal(32)  # position after the last request
        budget = Signal(range(-CHUNK_OCTETS, VISIT_OCTETS + 1))
        outstanding = Signal(range(2 * (BEATS_AHEAD + CHUNK_OCTETS // 8)))
        goal = Signal(32)  # the end of an FPDU, as far as is known

        # As they are measured
        entered, others, dead, stop = Signal(), Signal(), Signal(), Signal()
        room = Signal()  # for a request
        idle = Signal()  # everything requested was answered
        unrequested = Signal(32)  # that is available
        beyond = Signal()  # not all up to `goal` is available
        rest = Signal(signed(REST_BITS))  # up to `goal`

        # What follows
        octets = Signal(range(CHUNK_OCTETS + 1))
        ends = Signal()  # with this request
        beats = Signal(range(CHUNK_OCTETS // 8 + 1))
        added = Signal()
        answer = answers.i.payload
        m.d.comb += [
            beats.eq((octets + 4) >> 3),  # bytes is a multiple of 4
            answer.last_beat.eq(beats - 1),
            answer.half.eq(octets[2]),
            request.payload.connection.eq(self.qp),
            request.payload.position.eq(requested),
            request.payload.octets.eq(octets),
            visit.payload.qp.eq(begin.payload.qp),
            visit.payload.crc.eq(begin.payload.crc),
            visit.payload.markers.eq(begin.payload.markers),
            visit.payload.position.eq(begin.payload.position),
        ]
        m.d.sync += outstanding.eq(outstanding + Mux(added, beats, 0) - self.took)
        with m.If(self.announce & (self.number == self.qp)):
            m.d.sync += available.eq(self.available)

        with m.FSM():
            # Wait for a visit.
            with m.State("IDLE"):
                m.d.comb += [visit.valid.eq(begin.valid), begin.ready.eq(visit.ready)]
                with m.If(visit.ready):
                    m.d.sync += [
                        self.qp.eq(begin.payload.qp),
                        available.eq(begin.payload.available),
                        requested.eq(begin.payload.position),
                        budget.eq(VISIT_OCTETS),
                    ]
                    with m.If(begin.valid):
                        m.next = "MEASURE"
            # Take everything as it is now.
            with m.State("MEASURE"):
                m.d.sync += [
                    entered.eq(self.entered),
                    others.eq(self.others),
                    dead.eq(~self.held | (self.entered & self.dropped)),
                    stop.eq(self.others & (budget <= 0)),
                    room.eq((outstanding <= BEATS_AHEAD) & answers.i.ready & request.ready),
                    idle.eq(outstanding == 0),
                    unrequested.eq(available - requested),
                    beyond.eq((available - goal)[31]),
                    rest.eq(goal - requested),
                ]
                m.next = "CHOOSE"
            # How far to go: one chunk at most.
            with m.State("CHOOSE"):
                m.next = "MEASURE"
                left = Mux(stop, rest.as_unsigned(), unrequested)
                m.d.sync += [
                    octets.eq(_one_chunk(left)),
                    ends.eq(others & (left <= CHUNK_OCTETS)),
                ]
                with m.If(~(stop & entered)):
                    m.d.sync += goal.eq(self.fpdu_end)
                with m.Elif(rest[-1]):
                    m.d.sync += goal.eq(goal + self.fpdu_octets)

                with m.If(dead):
                    m.next = "END"
                with m.Elif(stop):
                    with m.If(entered & ~rest[-1]):
                        with m.If(beyond | (rest == 0)):
                            m.next = "END"
                        with m.Elif(room):
                            m.next = "REQUEST"
                with m.Elif(unrequested == 0):
                    with m.If(others | idle):
                        m.next = "END"
                with m.Elif(room):
                    m.next = "REQUEST"
            # The request leaves.
            with m.State("REQUEST"):
                m.d.comb += [
                    request.valid.eq(1),
                    added.eq(1),
                    answer.end.eq(ends),
                    answers.i.valid.eq(1),
                ]
                m.d.sync += [
                    requested.eq(requested + octets),
                    budget.eq(Mux(budget[-1], budget, budget - octets)),
                ]
                m.next = "MEASURE"
                with m.If(ends):
                    m.next = "IDLE"
            # Nothing is left to do: it is only said where the visit ends.
            with m.State("END"):
                m.d.comb += [answer.end.eq(1), answer.empty.eq(1), answers.i.valid.eq(1)]
                with m.If(answers.i.ready):
                    m.next = "IDLE"
        return m


def _one_chunk(octets: Value) -> Value:
    """Return a number of bytes, but no more than a chunk has."""
    bits = exact_log2(CHUNK_OCTETS)
    return Mux(octets[bits:].any(), CHUNK_OCTETS, octets[:bits])
