"""The MULPDU of a QP that was connected since the reset is 128 to 64,768 bytes."""

from amaranth.hdl import Signal

from stagecoach.gateware.config import MAX_ULPDU_LENGTH, RnicConfig
from stagecoach.gateware.mpa.mulpdu import MIN_MULPDU, Mulpdu
from stagecoach.gateware.rdmap.transmit.limits import TransmitLimits
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(qps=4)


def _mulpdu(h: Harness) -> None:
    m = h.m
    limits = TransmitLimits(CONFIG)
    inside = h.block(limits)
    qp = h.constant(CONFIG.qp_bits, "qp")
    h.assume(h.held(limits.connect))
    connect = limits.connect
    connected = Signal()
    with m.If(connect.valid & connect.ready & (connect.p.qp == qp)):
        m.d.sync += connected.eq(1)
    stored = inside.memory("mulpdus")
    (port,) = stored.read_ports
    kept = h.word(stored, qp)
    computed = inside.child("compute").ports.mulpdu
    seen = connected & h.past(connected) & (h.past(limits.select) == qp)
    good = (limits.mulpdu >= MIN_MULPDU) & (limits.mulpdu <= MAX_ULPDU_LENGTH)
    h.check("from 128 to 64,768 bytes", ~seen | good)
    h.cover("another one", seen & (limits.mulpdu > MIN_MULPDU))
    h.invariant("legal", inside.legal_state())
    known = (kept >= MIN_MULPDU) & (kept <= MAX_ULPDU_LENGTH)
    h.invariant("kept", ~connected | known)
    h.invariant("read", ~seen | (port.data >= MIN_MULPDU) & (port.data <= MAX_ULPDU_LENGTH))
    made = (computed >= MIN_MULPDU) & (computed <= MAX_ULPDU_LENGTH)
    begun, step = inside.in_state("MULPDU"), inside.signal("step")
    h.invariant("computed", ~(begun & (step != 0)) | made)
    h.invariant("steps", ~begun | (step <= Mulpdu.LATENCY))
    h.invariant("not yet", begun | (step == 0) | inside.in_state("IDLE", "KICK"))
    is_connect = inside.signal("is_connect")
    connects = inside.in_state("CONNECT") | (begun & is_connect)
    its = connect.valid & (inside.signal("qp") == connect.p.qp)
    h.invariant("its QP", ~connects | (its & is_connect))
    h.invariant("no CONNECT", ~inside.in_state("WINDOW", "MARKERS", "MARKERS_DATA") | ~is_connect)


PROPERTIES = (
    Property(
        "rdmap.transmit.limits.TransmitLimits",
        "the MULPDU of a QP that was connected is 128 to 64,768 bytes",
        in_harness(_mulpdu),
        mutations=(
            Mutation(
                "stagecoach.gateware.mpa.mulpdu", "negative | (difference < MIN_MULPDU)", "negative"
            ),
            Mutation(
                "stagecoach.gateware.rdmap.transmit.limits",
                "with m.If(step == Mulpdu.LATENCY):",
                "with m.If(1):",
            ),
        ),
        depth=1,
        reached=8,
    ),
)
