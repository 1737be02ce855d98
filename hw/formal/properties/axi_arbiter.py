"""The arbiters: masters take turns, and each has its own answers; no words keep the slave waiting.

Three masters. Of them and the slave it is assumed that what they show stays until it is taken (AMBA
AXI4, A3.2.1), and of the slave that it answers with an ID that it was given (A5.3).
The FIFOs are replaced by any that let out only what came in, and take nothing without room, as is
proved of them (`fifos`). Words have 8 bits: no block looks at them.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Mux, Signal, Value

from stagecoach.gateware.dma.axi import channel_names, channel_payload
from stagecoach.gateware.dma.axi_arbiter import (
    GRANTED_BURSTS,
    AxiReadArbiter,
    AxiWriteArbiter,
)
from stagecoach.hw.formal.axi import counted, moves, stays, valid
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, in_harness

MODULE = "stagecoach.gateware.dma.axi_arbiter"

WIDTH = 8
LONGEST = 4
MASTERS = 3


def _numbered(axi: Any, channel: str, number: int, bits: int) -> Value:
    """What a master shows, with its number as the ID."""
    return Cat(
        Const(number, bits) if name == f"{channel}id" else getattr(axi, name)
        for name in channel_names(axi, channel)
    )


def _addresses(h: Harness, inside: Inside, channel: str, asks: Any) -> tuple[Signal, Value]:
    """Masters take turns for one place, from which the slave is shown the address; that address."""
    masters, slave = inside.ports.axi, inside.ports.m_axi
    kept, full = Signal(len(channel_payload(slave, channel))), Signal(name="full")
    takes = [moves(axi, channel) for axi in masters]
    gone = moves(slave, channel)
    comes = Cat(takes).any()
    bits = len(getattr(slave, f"{channel}id"))
    for number, axi in enumerate(masters):
        with h.m.If(takes[number]):
            h.m.d.sync += kept.eq(_numbered(axi, channel, number, bits))
        others = Cat(takes[other] for other in range(MASTERS) if other != number)
        h.check("one of the masters", ~(takes[number] & others.any()))
    h.m.d.sync += full.eq((full & ~gone) | comes)
    h.check("there is room", ~comes | ~full | gone)
    h.check("slave is shown it", ~valid(slave, channel) | full)
    h.check("as it was", ~full | (channel_payload(slave, channel) == kept))
    h.check("held", stays(h, slave, channel))
    h.invariant("place", inside.child("merge").ports.o.valid == full)
    latest = inside.child("merge").signal("latest")
    h.invariant("latest", latest < MASTERS)

    def turns_until(number: int) -> Value:
        """How many come before it."""
        return Mux(latest < number, number - 1 - latest, number + MASTERS - 1 - latest)

    for number, axi in enumerate(masters):
        h.assume(stays(h, axi, channel))
        waits = asks[number] & ~takes[number]
        for other in range(MASTERS):
            if other != number:
                passed = Signal(2, name=f"passed_{number}_{other}")  # by the other one
                h.m.d.sync += passed.eq(Mux(waits, passed + takes[other], 0))
                h.check("passed once at most", passed <= 1)
                h.invariant("next", (passed == 0) | (turns_until(number) < turns_until(other)))
                h.cover(f"{number} after {other}", takes[number] & (passed == 1))
    return full, getattr(slave, f"{channel}id")


def _answers(h: Harness, inside: Inside, channel: str) -> None:
    """A master has the answers with its number, and no others."""
    slave = inside.ports.m_axi
    h.assume(stays(h, slave, channel))
    h.assume(getattr(slave, f"{channel}id") < MASTERS)
    for number, axi in enumerate(inside.ports.axi):
        its = getattr(slave, f"{channel}id") == number
        fields = [name for name in channel_names(axi, channel) if name != f"{channel}id"]
        same = Cat(getattr(axi, name) == getattr(slave, name) for name in fields).all()
        h.check(f"{channel} of its number", valid(axi, channel) == (valid(slave, channel) & its))
        h.check(f"{channel} as it is", ~valid(axi, channel) | same)
        h.check("its ID is 0", getattr(axi, f"{channel}id") == 0)
        h.check(f"{channel} is taken", moves(axi, channel) == (moves(slave, channel) & its))
        h.cover(f"answer for {number}", moves(axi, channel))


def _reads(h: Harness) -> None:
    dut = AxiReadArbiter(WIDTH, MASTERS)
    inside = h.block(dut)
    full, _ = _addresses(h, inside, "ar", [axi.arvalid for axi in dut.axi])
    h.check("offered at once", dut.m_axi.arvalid == full)
    _answers(h, inside, "r")


def _writes(h: Harness) -> None:
    dut = AxiWriteArbiter(WIDTH, LONGEST, MASTERS)
    inside = h.block(dut)
    slave = dut.m_axi
    fifos = [h.free_part(inside, f"words{number}") for number in range(MASTERS)]
    order = h.free_part(inside, "order")
    ends = [moves(axi, "w") & axi.wlast for axi in dut.axi]
    grants = [moves(axi, "aw") for axi in dut.axi]
    whole = [counted(h, f"whole_{n}", 5, ends[n], grants[n]) for n in range(MASTERS)]
    asks = [dut.axi[n].awvalid & (whole[n] != 0) for n in range(MASTERS)]
    full, number_of = _addresses(h, inside, "aw", asks)
    _answers(h, inside, "b")

    # Whose words are next is noted once for each address, when it is offered or before.
    told = Signal(name="told")
    notes = order.i.valid & order.i.ready
    h.m.d.sync += told.eq((told | notes) & ~moves(slave, "aw"))
    h.invariant("told", (inside.signal("noted") == told) & (~told | full))
    h.check("noted once", ~notes | (full & ~told & (order.i.payload == number_of)))
    h.check("noted before", ~slave.awvalid | told | notes)
    h.check("address waits for a place alone", ~(full & order.i.ready) | slave.awvalid)

    # W is that of the burst whose turn it is, until its last word.
    taken = moves(slave, "w")
    next_word = Array([fifo.o.payload for fifo in fifos])[order.o.payload]
    next_valid = Array([fifo.o.valid for fifo in fifos])[order.o.payload]
    h.check("words of the one whose turn it is", slave.wvalid == (order.o.valid & next_valid))
    h.check("as they were", ~slave.wvalid | (channel_payload(slave, "w") == next_word))
    over = order.o.valid & order.o.ready
    h.check("its turn ends with its last word", over == (taken & slave.wlast))
    h.check("w held", stays(h, slave, "w"))
    h.assume(h.held(order.o))

    queued = []
    for number, (axi, fifo) in enumerate(zip(dut.axi, fifos, strict=True)):
        its = order.o.payload == number
        comes, leaves = fifo.i.valid & fifo.i.ready, fifo.o.valid & fifo.o.ready
        last = fifo.o.payload[-1]
        h.check("word is kept", comes == moves(axi, "w"))
        h.check("as it came", ~comes | (fifo.i.payload == channel_payload(axi, "w")))
        h.check("word is taken in its turn", leaves == (taken & its))
        h.check("granted when it is whole", ~grants[number] | (whole[number] != 0))

        held = counted(h, f"held_{number}", 5, comes, leaves)
        lasts = counted(h, f"lasts_{number}", 5, ends[number], leaves & last)
        turns = counted(h, f"turns_{number}", 5, notes & (number_of == number), over & its)
        queued.append(turns)
        h.assume(h.held(fifo.o))
        h.assume(~fifo.i.ready | (held < 2 * LONGEST))
        h.assume(~fifo.o.valid | ((held != 0) & (~last | (lasts != 0)) & (last | (lasts < held))))
        h.assume(~(order.o.valid & its) | (turns != 0))
        waits = full & ~told & (number_of == number)
        h.check("no word is missing", ~(order.o.valid & its) | (lasts != 0))
        h.invariant("whole", inside.signal("whole", number) == whole[number])
        h.invariant("granted and here", lasts == whole[number] + turns + waits)
        h.invariant("here", (lasts <= held) & (held <= 2 * LONGEST))
    in_order = sum(queued)
    h.assume(~order.i.ready | (in_order < GRANTED_BURSTS))
    h.invariant("granted", in_order <= GRANTED_BURSTS)
    h.assume(~order.o.valid | (order.o.payload < MASTERS))
    h.cover("word of the last one", taken & (order.o.payload == MASTERS - 1) & slave.wlast)


def _property(block: str, name: str, build: Any, *changes: tuple[str, str]) -> Property:
    turn = Mutation("stagecoach.gateware.stream.merge", "latest.eq(choice)", "latest.eq(0)")
    return Property(
        f"dma.axi_arbiter.{block}",
        name,
        in_harness(build),
        mutations=(turn, *(Mutation(MODULE, *change) for change in changes)),
        covered=8,
    )


PROPERTIES = (
    _property(
        "AxiReadArbiter",
        "masters take turns; the slave has each burst once, as it was; a master has the answers "
        "with its number",
        _reads,
        ("merge.o.ready.eq(self.m_axi.arready)", "merge.o.ready.eq(1)"),
        ("Const(number, bits) if", "Const(0, bits) if"),
        ('getattr(slave, f"{channel}valid") & its', 'getattr(slave, f"{channel}valid")'),
    ),
    _property(
        "AxiWriteArbiter",
        "masters take turns; a burst is granted when its words are here, and the slave has them in "
        "the order of the bursts; a master has the answers with its number",
        _writes,
        ("address.valid.eq(axi.awvalid & (whole != 0))", "address.valid.eq(axi.awvalid)"),
        ("order.i.valid.eq(merge.o.valid & ~noted)", "order.i.valid.eq(merge.o.valid)"),
        ("whole.eq(whole + came - granted)", "whole.eq(whole + came)"),
        ("slave.wvalid & slave.wready & slave.wlast", "slave.wvalid & slave.wready"),
        ("order.o.valid & (order.o.payload == number)", "order.o.valid"),
    ),
)
