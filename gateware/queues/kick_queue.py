"""The QPs that have something to do, each once, in the order in which they got it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe


class KickQueue(wiring.Component):
    """Queues every kicked QP once and offers the queued ones first in, first out.

    A kick of a QP that is queued changes nothing. One that comes two cycles before its QP appears
    at `pick`, or later, queues it again. Five cycles from kick to pick in an empty queue; a pick in
    every other cycle.

    A kick waits while there is one of a lower number, and an input is not kicked while its last one
    waits: `kicks[0]` never waits, `kicks[1]` only while there are kicks of that.

    Parameters
    ----------
    config: sizes of the device.
    kicks: number of kick inputs.

    Members
    -------
    kicks: each may pulse in any cycle.
    clear, clear_qp: after a reset, and before the first kick, a pulse for every QP.
    pick: Out(stream), the queued QPs.
    """

    def __init__(self, config: RnicConfig, kicks: int):
        self._config = config
        super().__init__(
            {
                "kicks": In(QpStrobe(config)).array(kicks),
                "clear": In(1),
                "clear_qp": In(config.qp_bits),
                "pick": Out(stream.Signature(Layouts(config).qp_number)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        qps = self._config.qps

        # One kick a cycle
        pending = Signal(len(self.kicks))
        qp = Signal(data.ArrayLayout(self._config.qp_bits, len(self.kicks)))
        kick = Signal(self._config.qp_bits)
        kicked = Signal()
        m.d.sync += kicked.eq(pending.any())
        for i, source in reversed(list(enumerate(self.kicks))):
            waits = Signal(name=f"waits_{i}")
            who = Signal.like(kick, name=f"who_{i}")
            m.d.comb += [
                pending[i].eq(source.valid | waits),
                qp[i].eq(Mux(waits, who, source.qp)),
            ]
            m.d.sync += [waits.eq(pending[i] & pending[:i].any()), who.eq(qp[i])]
            with m.If(pending[i]):
                m.d.sync += kick.eq(qp[i])

        # A QP is queued if it came and went unequally often (mod 2); what `came` says then stands
        # beside it in the queue.
        def memory(name: str) -> Memory:
            m.submodules[name] = it = Memory(
                shape=1, depth=qps, init=[], attrs={"ram_style": "distributed"}
            )
            return it

        queued = Signal()
        came, went = memory("came"), memory("went")
        came_write, went_write = came.write_port(), went.write_port()
        came_read, went_read = came.read_port(domain="comb"), went.read_port(domain="comb")
        item = data.StructLayout({"qp": self._config.qp_bits, "came": 1})
        m.submodules.queue = queue = SyncFIFO(width=item.size, depth=qps)
        entering, enters = Signal(item), Signal()
        leaving = data.View(item, queue.r_data)
        pick = self.pick
        m.d.comb += [
            came_read.addr.eq(kick),
            went_read.addr.eq(kick),
            queued.eq(came_read.data != went_read.data),
            queue.w_data.eq(entering),
            queue.w_en.eq(enters),
            queue.r_en.eq(~pick.valid & queue.r_rdy),
            came_write.addr.eq(Mux(self.clear, self.clear_qp, kick)),
            came_write.data.eq(~self.clear & ~came_read.data),
            came_write.en.eq(self.clear | (kicked & ~queued)),
            went_write.addr.eq(Mux(self.clear, self.clear_qp, leaving.qp)),
            went_write.data.eq(~self.clear & leaving.came),
            went_write.en.eq(self.clear | queue.r_en),
        ]
        m.d.sync += [
            enters.eq(kicked & ~queued),
            entering.qp.eq(kick),
            entering.came.eq(~came_read.data),
        ]
        with m.If(pick.ready):
            m.d.sync += pick.valid.eq(0)
        with m.If(queue.r_en):
            m.d.sync += [pick.valid.eq(1), pick.payload.qp.eq(leaving.qp)]
        return m
