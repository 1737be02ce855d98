"""Whether the segments of a QP are dropped."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.queues.qp_choice import bit_of_qp


class ReceiveRunning(wiring.Component):
    """Knows the QPs of which a segment failed.

    Members
    -------
    running: In(config.qps), bit n for QP n.
    connect: In(QpStrobe), the QP begins anew. stop: In(QpStrobe), not in the same cycle.
    coming: In, what `qp` will be in the next cycle.
    qp: In; `drops`: Out(1), a cycle later: it did not run two cycles ago, or was stopped then or
        earlier. `stopped`: Out(1), the latter.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._qps = config.qps
        super().__init__(
            {
                "running": In(config.qps),
                "connect": In(QpStrobe(config)),
                "stop": In(QpStrobe(config)),
                "coming": In(config.qp_bits),
                "qp": In(config.qp_bits),
                "drops": Out(1),
                "stopped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.stopped = stopped = Memory(shape=1, depth=self._qps, init=[])
        read, write = stopped.read_port(domain="comb"), stopped.write_port()
        is_running = bit_of_qp(m, self.running, self.qp, self.coming)
        is_stopped = Signal()
        m.d.sync += is_stopped.eq(read.data)
        m.d.comb += [
            read.addr.eq(self.qp),
            write.addr.eq(Mux(self.stop.valid, self.stop.qp, self.connect.qp)),
            write.data.eq(self.stop.valid),
            write.en.eq(self.stop.valid | self.connect.valid),
            self.drops.eq(~is_running | is_stopped),
            self.stopped.eq(is_stopped),
        ]
        return m
