"""The states that do a QP command."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from stagecoach.gateware.ddp.headers import FIRST_MSN
from stagecoach.gateware.interfaces import QpCommandKind
from stagecoach.gateware.rdmap.transmit.atomic import AtomicAnswers
from stagecoach.gateware.rdmap.transmit.context import TransmitContexts
from stagecoach.gateware.rdmap.transmit.limits import TransmitLimits
from stagecoach.gateware.rdmap.transmit.visit import TransmitVisit, go_idle

CONTEXT_CYCLES = 3
"""Until the number of retired sends of the QP stands in its register, and one more."""


def connect_command(
    m: Module, ports: wiring.Component, contexts: TransmitContexts, limits: TransmitLimits
) -> None:
    """What a command says, for those who keep it."""
    command = ports.qp_command.payload
    connect = limits.connect.payload
    m.d.comb += [
        contexts.command.eq(command),
        connect.qp.eq(command.qp),
        connect.emss.eq(command.emss),
        connect.markers.eq(command.transmit_markers),
    ]


def command_states(
    m: Module,
    ports: wiring.Component,
    visit: TransmitVisit,
    contexts: TransmitContexts,
    limits: TransmitLimits,
    answers: AtomicAnswers,
) -> None:
    """From a command to its `ready`; no visit happens meanwhile."""
    kind = ports.qp_command.payload.kind
    is_connect = kind == QpCommandKind.CONNECT
    waited = Signal(range(CONTEXT_CYCLES))

    # Read how many sends of the QP were retired ever.
    with m.State("COMMAND"):
        m.d.sync += waited.eq(waited + 1)
        with m.If(waited == CONTEXT_CYCLES - 1):
            m.d.sync += waited.eq(0)
            m.next = "COMMAND_CONTEXT"

    # A message begins nowhere; no send is in flight, whatever the counters say.
    with m.State("COMMAND_CONTEXT"):
        m.d.sync += [
            visit.followed.eq(0),
            visit.followed.send_msn.eq(FIRST_MSN),
            visit.followed.read_msn.eq(FIRST_MSN),
            visit.followed.response_msn.eq(FIRST_MSN),
            visit.followed.atomic_response_msn.eq(FIRST_MSN),
            visit.followed.atomic_identifier.eq(FIRST_MSN),
            visit.followed.issued.eq(visit.retired_count),
        ]
        m.next = "COMMAND_STORE"

    # Store what the command says.
    with m.State("COMMAND_STORE"):
        m.d.comb += [
            contexts.store.eq(1),
            contexts.set_halt.eq(1),
            contexts.halting.halted.eq(~is_connect),
            contexts.halting.units.eq(0),
            contexts.halting_qp.eq(visit.qp),
            contexts.set_pd.eq(kind == QpCommandKind.CREATE),
            contexts.set_settings.eq(is_connect),
            answers.clear.valid.eq(1),
        ]
        m.next = "COMMAND_LIMITS"

    # Wait until window and MULPDU start anew.
    with m.State("COMMAND_LIMITS"):
        m.d.comb += limits.connect.valid.eq(is_connect)
        with m.If(~is_connect | limits.connect.ready):
            m.d.comb += ports.qp_command.ready.eq(1)
            go_idle(m, visit)
