"""A QP runs only after a CONNECT, until a command ends that.

For one QP, any. Whether CONNECT comes in the right state does not matter: nothing else makes a QP
run. One that a command ends runs for one cycle more.
"""

from amaranth.hdl import Signal

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpCommandKind
from stagecoach.gateware.queues.qp_states import QpState, QpStates
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)
ERRORS = 3
BLOCK = "stagecoach.gateware.queues.qp_states"


def _runs(h: Harness) -> None:
    m = h.m
    states = QpStates(CONFIG, ERRORS)
    inside = h.block(states)
    qp = h.constant(CONFIG.qp_bits, "qp")
    command = states.qp_command
    kind = command.p.kind
    taken = command.valid & command.ready & (command.p.qp == qp)
    connects = kind == QpCommandKind.CONNECT
    ends = (
        (kind == QpCommandKind.CREATE)
        | (kind == QpCommandKind.STOP)
        | (kind == QpCommandKind.DESTROY)
    )
    connected, ended = Signal(), Signal()
    with m.If(taken):
        m.d.sync += connected.eq((connected | connects) & ~ends)
    m.d.sync += ended.eq(taken & ends)
    h.assume(h.held(command))
    invariants(h, "queues.qp_states.QpStates", inside)

    running = states.running.bit_select(qp, 1)
    h.check("only after CONNECT", ~running | connected | ended)
    h.cover("runs", running & connected)

    of_ours = inside.signal("last_qp") == qp
    started, stopped = inside.signal("started"), inside.signal("stopped")
    h.invariant("started", ~(started & of_ours) | connected)
    h.invariant("ends", ~(ended & running) | (stopped & of_ours))
    # The state that stands in the memory
    memory = inside.memory("states")
    stored, read = h.word(memory, qp).state, memory.read_ports[0].data.state
    state = inside.view("state", memory.shape).state
    of_qp = inside.signal("qp") == qp
    h.invariant("none yet", ~inside.in_state("FORGET_ALL") | ~(running | started))
    h.invariant("as stored", ~(running & ~(stopped & of_ours)) | (stored == QpState.RTS))
    h.invariant("will be", ~(started & of_ours) | (stored == QpState.RTS))
    h.invariant("read", ~(inside.in_state("LOAD") & of_qp) | (read == stored))
    looked = inside.in_state("MOVE") & of_qp
    h.invariant("looked up", ~looked | (state == stored))
    is_alive = (state == QpState.INIT) | (state == QpState.RTS)
    h.invariant("alive", ~inside.in_state("MOVE") | (inside.signal("alive") == is_alive))
    is_command = inside.signal("is_command")
    h.invariant("an error", ~inside.in_state("TAKE") | ~is_command)
    looks = inside.in_state("LOOK_UP", "LOAD", "MOVE") & is_command
    h.invariant("of its QP", ~looks | (command.valid & (inside.signal("qp") == command.p.qp)))


PROPERTIES = (
    Property(
        "queues.qp_states.QpStates",
        "a QP runs only after CONNECT, until a command ends that",
        in_harness(_runs),
        mutations=tuple(
            Mutation(BLOCK, old, new)
            for old, new in (
                ("with m.If(started):", "with m.If(started | looked_up_valid):"),
                ("with m.If(stopped):", "with m.If(stopped & ~looked_up_valid):"),
                (
                    "m.d.sync += self.running.bit_select(last_qp, 1).eq(1)",
                    "m.d.sync += self.running.bit_select(qp_before, 1).eq(1)",
                ),
            )
        ),
        depth=1,
        reached=12,
        mutant_cycles=20,
    ),
)
