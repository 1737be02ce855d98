"""Commands name what there is, and come in an order in which nothing under way is forgotten.

The host's rule: no staging register is written while a command is under way, nor while one waits.
"""

from amaranth.hdl import Signal

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


def _order(h: Harness) -> None:
    """A QP runs when all know it; it is stopped before, and forgotten after what it had has ended.

    `fence` says how far the fence of the command is.
    """
    commands = CommandProcessor(CONFIG)
    inside = h.block(commands)
    invariants(h, "registers.commands.CommandProcessor", inside)
    m = h.m
    told, command = commands.qp_command, commands.state_command
    passes = told.valid & told.ready
    state_passes = command.valid & command.ready
    takes = commands.opcode.valid & commands.opcode.ready
    known, stopped, removed = Signal(), Signal(), Signal()
    started, fenced = Signal(), Signal()
    with m.If(passes):
        m.d.sync += known.eq(1)
    with m.If(state_passes & (command.p.kind == QpCommandKind.STOP)):
        m.d.sync += stopped.eq(1)
    stops = passes & (told.p.kind == QpCommandKind.STOP)
    unsafe = passes & (told.p.kind == QpCommandKind.RING_DESTROY)
    unsafe |= commands.stag_invalidate.valid & commands.stag_invalidate.ready
    with m.If(stops | unsafe | commands.stag_clear):
        m.d.sync += [removed.eq(1), started.eq(0), fenced.eq(0)]
    with m.If(commands.fence_start):
        m.d.sync += started.eq(1)
    with m.Elif(started & ~commands.fence_busy):
        m.d.sync += fenced.eq(1)
    with m.If(takes):
        m.d.sync += [each.eq(0) for each in (known, stopped, removed, started, fenced)]

    runs = (command.p.kind == QpCommandKind.CREATE) | (command.p.kind == QpCommandKind.CONNECT)
    h.check("known before it runs", ~(command.valid & runs) | known)
    h.check("stopped before it is told", ~stops | stopped)
    destroys = told.valid & (told.p.kind == QpCommandKind.DESTROY)
    h.check("forgotten after the fence", ~destroys | (removed & fenced))
    ends = h.past(commands.busy) & ~commands.busy
    h.check("over after the fence", ~ends | ~removed | fenced)
    h.check("the fence comes after it", ~commands.fence_start | removed)
    h.cover("destroyed", destroys & passes)

    kind = inside.signal("kind")
    at = inside.in_state
    destroying = at("BLOCKS_FIRST", "STATE_LAST") & (kind == QpCommandKind.DESTROY)
    h.invariant("in order", removed | ~(started | fenced))
    h.invariant("busy", ~at("FENCE_WAIT") | started)
    h.invariant("removed", ~at("FENCE", "FENCE_WAIT") | removed)
    h.invariant("not yet", ~at("FENCE") | ~(started | fenced))
    h.invariant("waits", ~at("FENCE_WAIT") | ~fenced)
    h.invariant("fenced", ~destroying | (removed & fenced))
    fresh = at("BLOCKS_FIRST", "STATE_LAST") & ~destroying
    h.invariant("fresh", ~(fresh | at("CHECK", "STATE_FIRST", "RING", "CQ")) | ~removed)
    others = at("STAG_WRITE", "STAG_INVALIDATE", "STAG_RESET", "BLOCKS_LAST")
    h.invariant("others", ~others | ~removed)
    h.invariant("swept", ~at("STAG_SWEEP_BEGINS", "STAG_SWEEP") | (removed & ~started & ~fenced))
    h.invariant("runs", ~at("STATE_LAST") | known)
    h.invariant("stops", ~at("STATE_FIRST") | (kind == QpCommandKind.STOP))
    last = (kind == QpCommandKind.RING_DESTROY) | ((kind == QpCommandKind.STOP) & stopped)
    h.invariant("last", ~at("BLOCKS_LAST") | last)
    first = kind <= QpCommandKind.DESTROY
    h.invariant("kinds", ~at("BLOCKS_FIRST", "STATE_LAST") | (first & (kind != QpCommandKind.STOP)))
    rings = (kind == QpCommandKind.RING_CREATE) | (kind == QpCommandKind.RING_LIMIT)
    h.invariant("rings", ~at("RING") | rings)
    h.invariant("done", ~at("IDLE") | ~removed | fenced)


def waits(signal: str, state: str) -> str:
    """How the source waits for a signal and goes to a state."""
    return f'with m.If(self.{signal}):\n{" " * 20}m.next = "{state}"'


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
    Property(
        "registers.commands.CommandProcessor",
        "a QP is stopped before, and forgotten after all that it had under way has ended",
        in_harness(_order),
        mutations=tuple(
            Mutation(MODULE, old, new)
            for old, new in (
                ("with m.If(~self.fence_busy):", "with m.If(1):"),
                (waits("qp_command.ready", "STATE_LAST"), waits("busy", "STATE_LAST")),
                (waits("state_command.ready", "BLOCKS_LAST"), waits("busy", "BLOCKS_LAST")),
                (waits("stag_invalidate.ready", "FENCE"), waits("stag_invalidate.ready", "IDLE")),
            )
        ),
        depth=1,
        covered=20,
    ),
)
