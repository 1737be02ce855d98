"""Decides what to request from the LLP in a visit to a connection."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import ANSWER, CHUNK_OCTETS, MpaLayouts

VISIT_OCTETS = 16384
"""Octets requested in a visit before the next connection gets its turn at the end of an FPDU."""

ANSWERS_AHEAD = 8
"""Requests that may be unanswered."""

BEATS_AHEAD = CHUNK_OCTETS // 8
"""A further request is made while no more beats than this are to come: two chunks are on the way,
twice what an LLP latency of a hundred cycles needs."""

BEATS_AT_THE_END = BEATS_AHEAD // 2
"""A visit ends for the sake of others while no more beats than this are to come: in their time the
next visit begins, and its first octets come from the LLP."""

REST_BITS = 18
"""Of a signed number of octets of the longest FPDU, with its Markers."""


class ReceiveRequests(wiring.Component):
    """Requests octets ahead of the deframer for as long as a visit has any, and then ends it.

    At most one request every four cycles, `CHUNK_OCTETS` each. If no others wait, a visit ends when
    nothing is left to request and everything requested has left the deframer; more octets may be
    announced until then. If others wait, it ends when nothing is left and the deframer needs
    something soon: at the last octets of all that is available, in an FPDU that is not there
    completely, or after `VISIT_OCTETS` at the end of an FPDU.

    Members
    -------
    open: make requests for `visit`, which may change in `available`; until the pulse `ended`.
    entered: the deframer is in it: what it says is about this visit.
    dead: nothing more of it is worth a request.
    others: other connections wait: the visit may not go on for ever.
    ended: `answer` says the end of the visit.
    request: to the LLP. answer: the same to the deframer, before the answer can be there.
    took, inside, fpdu_end, idle: from the deframer, see there.
    """

    def __init__(self, config: RnicConfig):
        mpa = MpaLayouts(config)
        super().__init__(
            {
                "open": In(1),
                "visit": In(mpa.visit),
                "entered": In(1),
                "dead": In(1),
                "others": In(1),
                "ended": Out(1),
                "request": Out(stream.Signature(mpa.rx_request)),
                "answer": Out(stream.Signature(ANSWER)),
                "took": In(1),
                "inside": In(1),
                "fpdu_end": In(32),
                "idle": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.answers = answers = fifo.SyncFIFOBuffered(
            width=ANSWER.size, depth=ANSWERS_AHEAD
        )
        m.d.comb += [
            self.answer.valid.eq(answers.r_rdy),
            self.answer.payload.eq(answers.r_data),
            answers.r_en.eq(self.answer.ready),
        ]

        requested = Signal(32)  # position after the last request
        budget = Signal(range(-CHUNK_OCTETS, VISIT_OCTETS + 1))
        outstanding = Signal(range(4 * BEATS_AHEAD))
        entered = Signal()
        answered = Signal()  # everything requested was answered and has left the deframer
        beyond = Signal(32)  # from the end of the FPDU to what is available; negative: incomplete
        unrequested = Signal(32)  # that is available
        # Of the FPDU, not yet requested; negative: requested beyond its end, which is a few chunks
        rest = Signal(signed(REST_BITS))
        inside = Signal()
        stop = Signal()
        amount = Signal(range(CHUNK_OCTETS + 1))
        may_end = Signal()
        octets = Signal(range(CHUNK_OCTETS + 1))
        beats = Signal(range(CHUNK_OCTETS // 8 + 1))
        added = Signal()
        answer = Signal(ANSWER)

        m.d.comb += [
            beats.eq((octets + 4) >> 3),  # octets is a multiple of 4
            answer.last_beat.eq(beats - 1),
            answer.half.eq(octets[2]),
            answers.w_data.eq(answer),
            answers.w_en.eq(added | self.ended),
            answer.end.eq(self.ended),
            self.request.payload.connection.eq(self.visit.qp),
            self.request.payload.position.eq(requested),
            self.request.payload.octets.eq(octets),
        ]
        m.d.sync += outstanding.eq(outstanding + Mux(added, beats, 0) - self.took)

        with m.FSM():
            # Wait for a visit.
            with m.State("IDLE"):
                m.d.sync += [requested.eq(self.visit.position), budget.eq(VISIT_OCTETS)]
                with m.If(self.open):
                    m.next = "MEASURE"
            # Take the distances as they are now.
            with m.State("MEASURE"):
                m.d.sync += [
                    entered.eq(self.entered),
                    answered.eq((outstanding == 0) & self.idle),
                    inside.eq(self.inside & self.entered),
                    beyond.eq(self.visit.available - self.fpdu_end),
                    unrequested.eq(self.visit.available - requested),
                    rest.eq(self.fpdu_end - requested),
                    stop.eq(self.others & (budget <= 0)),
                ]
                m.next = "CHOOSE"
            # How far to go: one chunk at most, and not into an FPDU that is incomplete or that
            # another visit will take.
            with m.State("CHOOSE"):
                m.d.sync += amount.eq(_one_chunk(unrequested))
                with m.If(stop):
                    m.d.sync += amount.eq(Mux(inside & ~rest[-1], _one_chunk(rest), 0))
                with m.If(self.dead | (inside & beyond[31])):
                    m.d.sync += amount.eq(0)
                # The end of the FPDU must be known where the visit is to stop.
                few = outstanding < BEATS_AT_THE_END
                known = ~stop | (inside & ~rest[-1])
                m.d.sync += may_end.eq(
                    entered & (answered | self.dead | (self.others & few & known))
                )
                m.next = "LIMIT"
            # Only if the deframer will soon need it.
            with m.State("LIMIT"):
                m.d.sync += octets.eq(amount)
                m.next = "MEASURE"
                with m.If(answers.w_rdy):
                    with m.If(amount != 0):
                        with m.If((outstanding <= BEATS_AHEAD) & ~self.dead):
                            m.next = "REQUEST"
                    with m.Elif(may_end):
                        m.next = "END"
            # The LLP takes the request.
            with m.State("REQUEST"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    m.d.comb += added.eq(1)
                    m.d.sync += [
                        requested.eq(requested + octets),
                        budget.eq(Mux(budget[-1], budget, budget - octets)),
                    ]
                    m.next = "MEASURE"
            # Nothing is left to do.
            with m.State("END"):
                m.d.comb += self.ended.eq(1)
                m.next = "IDLE"
        return m


def _one_chunk(octets: Value) -> Value:
    """Return a number of octets, but no more than a chunk has."""
    bits = exact_log2(CHUNK_OCTETS)
    return Mux(octets[bits:].any(), CHUNK_OCTETS, octets[:bits])
