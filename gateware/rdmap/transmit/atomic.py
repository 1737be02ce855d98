"""The Responder's side of atomics: what the atomic unit found."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe
from stagecoach.gateware.rdmap.atomic.operations import AtomicStatus, response_layout

FOUND = data.StructLayout({"original": 64, "status": AtomicStatus})


class AtomicAnswers(wiring.Component):
    """Keeps the unit's answer for each QP until its visit.

    Members
    -------
    response: In(stream) from the atomic unit; always ready.
    select: In(qp); `answered`, `original` and `status` are those of QP `select` a cycle ago.
    clear: In(QpStrobe), the QP has no answer, from two cycles later on.
    kick: Out(QpStrobe), the QP has one.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "response": In(stream.Signature(response_layout(config))),
                "select": In(config.qp_bits),
                "answered": Out(1),
                "original": Out(64),
                "status": Out(AtomicStatus),
                "clear": In(QpStrobe(config)),
                "kick": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        m.submodules.found = found = Memory(shape=FOUND, depth=qps, init=[])
        write, read = found.write_port(), found.read_port()
        m.d.sync += [
            write.addr.eq(self.response.p.qp),
            write.data.original.eq(self.response.p.original),
            write.data.status.eq(self.response.p.status),
            write.en.eq(self.response.valid),
        ]
        m.d.comb += [
            self.response.ready.eq(1),
            read.addr.eq(self.select),
            self.original.eq(read.data.original),
            self.status.eq(read.data.status),
        ]
        bits = Signal(qps)
        clear = QpStrobe(self._config).create(path=("clear_late",))
        m.d.sync += [clear.valid.eq(self.clear.valid), clear.qp.eq(self.clear.qp)]
        with m.If(clear.valid):
            m.d.sync += bits.bit_select(clear.qp, 1).eq(0)
        with m.If(write.en):
            m.d.sync += bits.bit_select(write.addr, 1).eq(1)
        m.d.sync += [
            self.answered.eq(bits.bit_select(self.select, 1)),
            self.kick.valid.eq(write.en),
            self.kick.qp.eq(write.addr),
        ]
        return m
