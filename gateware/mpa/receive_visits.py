"""The visits under way: one that is requested, one in the deframer, one to be written back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.mpa.layouts import ANSWER, SMALLEST_FPDU_OCTETS, MpaLayouts
from stagecoach.gateware.mpa.receive_requests import ReceiveRequests


class ReceiveVisits(wiring.Component):
    """Leads the deframer from visit to visit.

    While one is in the deframer, the next one is requested from the LLP, so that its octets follow
    directly, and the one before is written back. The deframer turns from one to the next eight
    cycles after the last beat of the one, when all of it has left the pipeline, and takes the first
    beat of the other in the cycle after that. It does not turn before the one before was written
    back, and no visit begins before the deframer has turned to the one before.

    Members
    -------
    begin: begin `visit`, the next one. Only when `vacant`, which falls in the next cycle.
    number: a connection. held, in the same cycle: it is visited, and no command came for it since.
    command: a pulse, one came for it: what its visits come to does not count any more.
    announce: a pulse, octets of it up to `available` can be requested.
    others: other connections wait: no visit may go on for ever.
    ended: there is an `end` to be written back, if `held`; until the pulse `written`.
    request: to the LLP. answer: the same to the deframer, before the answer can be there.
    The rest: to and from the deframer, see there.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._mpa = mpa = MpaLayouts(config)
        super().__init__(
            {
                "begin": In(1),
                "visit": In(mpa.visit),
                "vacant": Out(1),
                "number": In(config.qp_bits),
                "held": Out(1),
                "command": In(1),
                "announce": In(1),
                "available": In(32),
                "others": In(1),
                "ended": Out(1),
                "end": Out(mpa.visit_end),
                "written": In(1),
                "request": Out(stream.Signature(mpa.rx_request)),
                "answer": Out(stream.Signature(ANSWER)),
                "took": In(1),
                "start": Out(1),
                "position": Out(32),
                "qp": Out(config.qp_bits),
                "crc": Out(1),
                "markers": Out(1),
                "kill": Out(1),
                "failed": In(1),
                "inside": In(1),
                "fpdu_octets": In(17),
                "fpdu_end": In(32),
                "consumed": In(32),
                "idle": In(1),
                "left": In(1),
                "leave": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The newest visit: it is requested while `open_`, and `ahead` of the deframer at first.
        newest = Signal(self._mpa.visit)
        newest_held = Signal()
        open_ = Signal()
        ahead = Signal()
        # The deframer's
        visiting = Signal()
        held = Signal()

        turn = Signal()  # the deframer leaves its visit, or has none and gets one
        newest_here, here, ended_here = Signal(), Signal(), Signal()
        m.d.comb += [
            newest_here.eq(newest_held & (newest.qp == self.number)),
            here.eq(held & (self.qp == self.number)),
            ended_here.eq(self.end.held & (self.end.qp == self.number)),
            self.held.eq(newest_here | here | ended_here),
            self.vacant.eq(~open_),
            self.position.eq(newest.position),
            turn.eq(Mux(visiting, self.left & ~self.ended, ahead) & ~self.command),
        ]

        with m.If(self.failed):
            m.d.sync += self.kill.eq(1)
        with m.If(self.written):
            m.d.sync += [self.ended.eq(0), self.end.held.eq(0)]
        m.d.sync += [self.start.eq(turn & ahead), self.leave.eq(turn & visiting)]
        with m.If(turn):
            m.d.sync += [
                self.qp.eq(newest.qp),
                self.crc.eq(newest.crc),
                self.markers.eq(newest.markers),
                visiting.eq(ahead),
                ahead.eq(0),
                held.eq(newest_held & ahead),
                self.kill.eq(~newest_held),
            ]
        with m.If(turn & visiting):
            m.d.sync += [
                self.ended.eq(1),
                self.end.qp.eq(self.qp),
                self.end.held.eq(held),
                self.end.dead.eq(self.kill),
                self.end.consumed.eq(self.consumed),
                self.end.needed.eq(Mux(self.inside, self.fpdu_octets, SMALLEST_FPDU_OCTETS)),
            ]
        with m.If(self.command):
            with m.If(newest_here):
                m.d.sync += newest_held.eq(0)
            with m.If(here):
                m.d.sync += [held.eq(0), self.kill.eq(1)]
            with m.If(ended_here):
                m.d.sync += self.end.held.eq(0)
        with m.If(self.announce & newest_here):
            m.d.sync += newest.available.eq(self.available & ~3)

        m.submodules.requests = requests = ReceiveRequests(self._config)
        wiring.connect(m, requests.request, wiring.flipped(self.request))
        wiring.connect(m, requests.answer, wiring.flipped(self.answer))
        m.d.comb += [
            requests.visit.eq(newest),
            requests.open.eq(open_),
            requests.entered.eq(~ahead & ~self.start),
            requests.dead.eq(~newest_held | (self.kill & ~ahead)),
            requests.others.eq(self.others),
            requests.took.eq(self.took),
            requests.inside.eq(self.inside),
            requests.fpdu_end.eq(self.fpdu_end),
            requests.idle.eq(self.idle),
        ]
        with m.If(requests.ended):
            m.d.sync += [open_.eq(0), newest_held.eq(0)]
        with m.If(self.begin):
            m.d.sync += [
                newest.eq(self.visit),
                newest.available.eq(self.visit.available & ~3),
                newest_held.eq(1),
                open_.eq(1),
                ahead.eq(1),
            ]
        return m
