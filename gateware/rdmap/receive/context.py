"""What the receiver remembers of a QP between two of its segments."""

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.hw.interface.wire import FIRST_MSN

CONTEXT = data.StructLayout(
    {
        "started": 1,  # the first FPDU of the connection arrived
        "send_msn": 32,  # MSN of the Send in progress or next
        "send_mo": 32,  # MO of its next segment
        "send_begun": 1,  # it is in progress
        "send_opcode": 4,  # of the Send in progress
        "request_msn": 32,  # MSN of the next Read or Atomic Request
        "response_octets": 32,  # received of the oldest outstanding RDMA Read
        "atomic_msn": 32,  # MSN of the next Atomic Response, and its Request Identifier
    }
)
"""What is known of the receive direction of a connection."""

NEW_CONTEXT = CONTEXT.const(
    {"send_msn": FIRST_MSN, "request_msn": FIRST_MSN, "atomic_msn": FIRST_MSN}
)
"""That of a new connection."""


class ReceiveContexts(wiring.Component):
    """The context, the PD, the IRD and the opcodes of every QP.

    Members
    -------
    next_qp: In(qp); `found` is the context of QP `next_qp` two cycles ago, `rfc7306` whether QP
        `next_qp` of a cycle ago takes the messages of RFC 7306.
    qp: In(qp); `pd` and `ird` are those of QP `qp` two cycles ago.
    write_qp, context, write: In, keeps `context` for QP `write_qp`.
    command: In(qp_command); its PD is kept with `set_pd`, IRD and opcodes with `connect`.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        layouts = Layouts(config)
        self._ird = range(config.read_queue_depth + 1)
        super().__init__(
            {
                "next_qp": In(config.qp_bits),
                "found": Out(CONTEXT),
                "rfc7306": Out(1),
                "qp": In(config.qp_bits),
                "pd": Out(16),
                "ird": Out(self._ird),
                "write_qp": In(config.qp_bits),
                "context": In(CONTEXT),
                "write": In(1),
                "command": In(layouts.qp_command),
                "set_pd": In(1),
                "connect": In(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        m.submodules.contexts = contexts = Memory(shape=CONTEXT, depth=qps, init=[])
        m.submodules.pds = pds = Memory(shape=16, depth=qps, init=[])
        m.submodules.irds = irds = Memory(shape=self._ird, depth=qps, init=[])
        m.submodules.extended = extended = Memory(shape=1, depth=qps, init=[])
        context_read, context_write = contexts.read_port(), contexts.write_port()
        pd_read, pd_write = pds.read_port(), pds.write_port()
        ird_read, ird_write = irds.read_port(), irds.write_port()
        extended_read, extended_write = extended.read_port(domain="comb"), extended.write_port()
        m.d.comb += [
            context_read.addr.eq(self.next_qp),
            pd_read.addr.eq(self.qp),
            ird_read.addr.eq(self.qp),
            context_write.addr.eq(self.write_qp),
            context_write.data.eq(self.context),
            context_write.en.eq(self.write),
            pd_write.addr.eq(self.command.qp),
            pd_write.data.eq(self.command.pd),
            pd_write.en.eq(self.set_pd),
            ird_write.addr.eq(self.command.qp),
            ird_write.data.eq(self.command.ird),
            ird_write.en.eq(self.connect),
            extended_read.addr.eq(self.next_qp),
            extended_write.addr.eq(self.command.qp),
            extended_write.data.eq(self.command.rfc7306),
            extended_write.en.eq(self.connect),
        ]
        m.d.sync += [
            self.found.eq(context_read.data),
            self.pd.eq(pd_read.data),
            self.ird.eq(ird_read.data),
            self.rfc7306.eq(extended_read.data),
        ]
        return m
