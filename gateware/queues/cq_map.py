"""Which CQ the receive queue of a QP completes to."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind


class CqMap(wiring.Component):
    """Keeps the receive CQ of each QP as CREATE named it.

    Parameters
    ----------
    config: sizes of the device.

    Members
    -------
    taken, command: a `qp_command` is taken in this cycle; other kinds than CREATE are ignored.
    qp: a QP. cq: the CQ of the QP of a cycle ago; out of a memory.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "taken": In(1),
                "command": In(Layouts(config).qp_command),
                "qp": In(config.qp_bits),
                "cq": Out(config.cq_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.memory = cqs = Memory(shape=config.cq_bits, depth=config.qps, init=[])
        write, read = cqs.write_port(), cqs.read_port()
        create = Signal()
        m.d.comb += [
            create.eq(self.taken & (self.command.kind == QpCommandKind.CREATE)),
            write.en.eq(create),
            write.addr.eq(self.command.qp),
            write.data.eq(self.command.receive_cq),
            read.addr.eq(self.qp),
            self.cq.eq(read.data),
        ]
        return m
