"""Does a QP command: a connection starts anew, or a QP sends nothing any more."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpCommandKind
from stagecoach.gateware.rdmap.transmit.limits import connect_layout

CONTEXT_CYCLES = 3
"""Until the number of retired sends of the QP stands in its register, and one more."""


class TransmitCommand(wiring.Component):
    """Stores what a command says; no visit happens meanwhile.

    CREATE stores the PD. CONNECT stores the settings and starts window and MULPDU; all others halt
    the QP. With each its progress starts anew: a message begins nowhere, and no send is in flight,
    whatever the counters say.

    Latency: `command` is taken after 6 cycles, a CONNECT when `connect` has been taken, which it
    offers from then on; while it is not, `command` stands. Throughput: one at a time.

    Members
    -------
    command: In(stream qp_command). connect: Out(stream connect_layout).
    restart: Out(1), a pulse: the progress to be stored next is that of a new connection.
    store: Out(1), a pulse: progress and halt of the QP are stored, `set_pd`, Out(1), and
        `set_settings`, Out(1), with it.
    halted: Out(1), with `store`: the QP sends nothing.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "command": In(stream.Signature(Layouts(config).qp_command)),
                "connect": Out(stream.Signature(connect_layout(config))),
                "restart": Out(1),
                "store": Out(1),
                "set_pd": Out(1),
                "set_settings": Out(1),
                "halted": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        command = self.command.payload
        is_connect = command.kind == QpCommandKind.CONNECT
        waited = Signal(range(CONTEXT_CYCLES))
        m.d.comb += [
            self.connect.p.qp.eq(command.qp),
            self.connect.p.emss.eq(command.emss),
            self.connect.p.markers.eq(command.transmit_markers),
            self.halted.eq(~is_connect),
        ]

        with m.FSM():
            # Wait for a command, and until it is known how many sends of the QP were retired ever.
            with m.State("CONTEXT"), m.If(self.command.valid):
                m.d.sync += waited.eq(waited + 1)
                with m.If(waited == CONTEXT_CYCLES - 1):
                    m.d.sync += waited.eq(0)
                    m.next = "RESTART"

            # The progress of a new connection goes to the register before the memory.
            with m.State("RESTART"):
                m.d.comb += self.restart.eq(1)
                m.next = "STORE"

            # Store what the command says.
            with m.State("STORE"):
                m.d.comb += [
                    self.store.eq(1),
                    self.set_pd.eq(command.kind == QpCommandKind.CREATE),
                    self.set_settings.eq(is_connect),
                ]
                m.next = "LIMITS"

            # Wait until window and MULPDU start anew.
            with m.State("LIMITS"):
                m.d.comb += self.connect.valid.eq(is_connect)
                with m.If(~is_connect | self.connect.ready):
                    m.d.comb += self.command.ready.eq(1)
                    m.next = "CONTEXT"
        return m
