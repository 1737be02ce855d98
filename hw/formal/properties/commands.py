"""Commands name what there is: the checks of the command processor hold when it gives them away.

The host's rule: no staging register is written while a command is under way, nor while one waits.
"""

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import QpCommandKind
from stagecoach.gateware.registers.commands import CommandProcessor, staging_registers
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.invariants import invariants
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4, cqs=4, read_queue_depth=4)
"""Fewer of all than the registers can name."""


def _names(h: Harness) -> None:
    commands = CommandProcessor(CONFIG)
    inside = h.block(commands)
    invariants(h, "registers.commands.CommandProcessor", inside)
    under_way = h.past(commands.busy | commands.opcode.valid) & commands.busy
    for name in staging_registers():
        register = getattr(commands, name).as_value()
        h.assume(~under_way | (register == h.past(register)))

    # What the registers name; the ports have as many bits as the numbers that there are.
    qp, most = commands.qp_number.qp, CONFIG.read_queue_depth
    cqs, reads, srq = commands.qp_cqs, commands.qp_reads, commands.qp_srq
    is_qp = qp < CONFIG.qps
    are_cqs = (cqs.send_cq < CONFIG.cqs) & (cqs.receive_cq < CONFIG.cqs)
    are_depths = (reads.ord <= most) & (reads.ird <= most)
    is_cq = commands.cq_number.cq <= CONFIG.cqs
    is_scope = (commands.stag_qp.qp < CONFIG.qps) | ~commands.stag_access.scoped
    is_ring = (srq.ring < CONFIG.qps) | ~srq.shared

    ring, stag = commands.cq_command, commands.stag_write
    of_ring = is_cq & (ring.p.cq == commands.cq_number.cq)
    h.check("a completion ring that there is", ~ring.valid | of_ring)
    h.check("the QP of an STag", ~stag.valid | is_scope)
    for name in ("qp_command", "state_command"):
        command = getattr(commands, name)
        h.check(f"{name} of a QP that there is", ~command.valid | (is_qp & (command.p.qp == qp)))
        creates = command.valid & (command.p.kind == QpCommandKind.CREATE)
        h.check(f"{name}: queues of a QP", ~creates | (are_cqs & is_ring))
        connects = command.valid & (command.p.kind == QpCommandKind.CONNECT)
        h.check(f"{name}: depths", ~connects | are_depths)
    h.cover("ring", ring.valid & (ring.p.cq == CONFIG.cqs))
    h.cover("QP", commands.qp_command.valid & (commands.qp_command.p.qp == CONFIG.qps - 1))

    # What was found of the registers in the cycle before the check
    checks = inside.in_state("CHECK")
    for number, right in enumerate((is_qp, are_cqs, are_depths, is_cq, is_scope)):
        h.invariant(f"found {number}", ~checks | (inside.signal("$signal", number) == right))
    h.invariant("found ring", ~checks | (inside.signal("ring_valid") == is_ring))
    h.invariant("ring", ~inside.in_state("CQ") | is_cq)
    h.invariant("STag", ~inside.in_state("STAG_WRITE") | is_scope)
    of_qp = inside.in_state("BLOCKS_FIRST", "STATE_LAST", "RING", "STATE_FIRST", "BLOCKS_LAST")
    destroys = inside.signal("after_fence_destroy")
    of_stag = ("STAG_INVALIDATE", "STAG_RESET", "STAG_SWEEP_BEGINS", "STAG_SWEEP")
    h.invariant("destroys a QP", ~inside.in_state(*of_stag) | ~destroys)
    after = inside.in_state("FENCE", "FENCE_WAIT") & destroys
    h.invariant("QP", ~(of_qp | after) | is_qp)
    kind = inside.signal("kind")
    creates = of_qp & (kind == QpCommandKind.CREATE)
    right = are_cqs & is_ring
    h.invariant("created", ~creates | inside.in_state("RING", "STATE_FIRST") | right)
    connects = of_qp & (kind == QpCommandKind.CONNECT)
    h.invariant("connected", ~connects | are_depths)
    only = {
        "RING": ("RING_CREATE", "RING_LIMIT"),
        "STATE_FIRST": ("STOP",),
        "BLOCKS_LAST": ("STOP", "RING_DESTROY"),
    }
    for state, kinds in only.items():
        is_one = sum((kind == getattr(QpCommandKind, each) for each in kinds), start=0) != 0
        h.invariant(f"kinds in {state}", ~inside.in_state(state) | is_one)


MODULE = "stagecoach.gateware.registers.commands"

PROPERTIES = (
    Property(
        "registers.commands.CommandProcessor",
        "commands name rings and QPs that there are",
        in_harness(_names),
        mutations=tuple(
            Mutation(MODULE, old, new)
            for old, new in (
                ("self.cq_number.cq <= config.cqs", "self.cq_number.cq <= config.cqs + 1"),
                ("valid.eq(qp_valid & cqs_valid & ring_valid)", "valid.eq(qp_valid & cqs_valid)"),
                ("valid.eq(qp_valid & reads_valid)", "valid.eq(qp_valid)"),
                ("valid.eq(scope_valid)", "valid.eq(qp_valid)"),
            )
        ),
        depth=1,
        covered=10,
    ),
)
