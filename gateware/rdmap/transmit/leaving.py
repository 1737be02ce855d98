"""Knows which QPs have Read Responses on their way to the LLP."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpStrobe

JOB_BITS = 7
"""Of a job's number: fewer than 128 are between the transmitter and the LLP."""


class LeavingResponses(wiring.Component):
    """Keeps a bit for each QP, from a job of a Read Response until the last of them has left.

    What they carry has been read from host memory then. `leaving` is that of QP `select` a cycle
    ago; `kick` comes with the end, when nothing else may call for a visit. A job counts for
    `select` three cycles after it began; four cycles after it has left it counts no more.

    Members
    -------
    begun: In(QpStrobe), a job of the QP was given away.
    is_response: In(1), and is of a Read Response.
    finished: In(QpStrobe), the jobs that have left, in their order.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "select": In(config.qp_bits),
                "begun": In(QpStrobe(config)),
                "is_response": In(1),
                "finished": In(QpStrobe(config)),
                "leaving": Out(1),
                "kick": Out(QpStrobe(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        m.submodules.latest = latest = Memory(shape=JOB_BITS, depth=qps, init=[])
        write, read = latest.write_port(), latest.read_port(domain="comb")
        begun, ended = Signal(JOB_BITS), Signal(JOB_BITS)
        job, response = Signal(), Signal()
        finished = Signal()
        number = Signal(JOB_BITS)
        m.d.sync += [
            begun.eq(begun + job),
            job.eq(self.begun.valid),
            response.eq(self.begun.valid & self.is_response),
            write.addr.eq(self.begun.qp),
            finished.eq(self.finished.valid),
            read.addr.eq(self.finished.qp),
            number.eq(ended),
            ended.eq(ended + self.finished.valid),
        ]
        follows = Signal()  # one more of the QP that is looked at begins
        last = Signal()
        last_qp = Signal(self._config.qp_bits)
        bits = Signal(qps)
        m.d.comb += [
            write.data.eq(begun),
            write.en.eq(response),
            follows.eq(write.en & (write.addr == read.addr)),
        ]
        m.d.sync += [
            last.eq(finished & (read.data == number) & bits.bit_select(read.addr, 1) & ~follows),
            last_qp.eq(read.addr),
        ]
        with m.If(last):
            m.d.sync += bits.bit_select(last_qp, 1).eq(0)
        with m.If(write.en):
            m.d.sync += bits.bit_select(write.addr, 1).eq(1)
        m.d.sync += [
            self.leaving.eq(bits.bit_select(self.select, 1)),
            self.kick.valid.eq(last),
            self.kick.qp.eq(last_qp),
        ]
        return m
