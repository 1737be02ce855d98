"""A ring of what is sent: no byte in it is written over before it was acknowledged.

One connection, any, is followed. Its jobs come in the order of their numbers, and what is not
acknowledged fits in the ring: the sending side grants no more, and the device sends no more than
it was granted.
"""

from amaranth.hdl import C, Mux, Signal, Value

from stagecoach.gateware.tcp.layouts import (
    RING_ADDRESS_BITS,
    RING_MOST_BITS,
    ring_masks,
)
from stagecoach.gateware.tcp.sequence import distance
from stagecoach.gateware.tcp.transmit_ring import TransmitRing
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

SIZE = 0
"""Of the ring: the smallest one. With any size z3 did not come to an end in 90 s."""


def _kept(h: Harness) -> None:
    m = h.m
    dut = TransmitRing(2)
    inside = h.block(dut)
    store = inside.child("ring")
    job, command = dut.job.p, dut.write.command
    h.assume(h.held(dut.job))

    # The connection, and its ring.
    followed = h.constant(1, "followed")
    base = h.constant(RING_ADDRESS_BITS, "base")
    size = C(SIZE, 4)
    ring, mask = ring_masks(size)
    h.assume(base < (1 << RING_ADDRESS_BITS) - (1 << RING_MOST_BITS))
    una, end = Signal(32), Signal(32)
    moves = h.free(32, "moves")
    outstanding = distance(end, una)
    h.assume(moves <= outstanding)
    mine = job.connection == followed
    right = (job.number == end) & (job.ring == base) & (job.size == size)
    begins = job.begin & ~job.fpdu & (job.octets == 0) & (job.ring == base) & (job.size == size)
    fits = ~job.begin & right & (job.octets <= ring - outstanding)
    h.assume(~dut.job.valid | ~mine | begins | fits)

    # What the job that was taken last writes: bytes of the followed connection.
    taken = dut.job.valid & dut.job.ready
    writes = Signal()
    number, octets = Signal(32), Signal.like(job.octets)
    m.d.sync += una.eq(una + moves)
    with m.If(taken):
        m.d.sync += [
            writes.eq(mine & job.fpdu & (job.octets != 0)),
            number.eq(job.number),
            octets.eq(job.octets),
        ]
        with m.If(mine & job.begin):
            m.d.sync += [una.eq(job.number), end.eq(job.number)]
        with m.Elif(mine):
            m.d.sync += end.eq(job.number + job.octets)

    # Any byte that was queued before and is not acknowledged.
    other = h.constant(32, "other")
    waits = (distance(other, una) < outstanding) & (distance(other, number) >= octets)
    written = writes & command.valid
    place = Signal(64)  # in the ring
    m.d.comb += place.eq(command.p.address - base)
    away = Signal(64)
    m.d.comb += away.eq((other & mask) - place)
    h.check("in the ring", ~written | ((place < ring) & (place + command.p.octets <= ring)))
    h.check("over nothing that waits", ~written | ~waits | (away >= command.p.octets))

    # The job while it is placed, and its commands.
    after = end & mask
    first = place == (number & mask)
    h.invariant("outstanding", outstanding <= ring)
    h.invariant("last", ~writes | (end == (number + octets)[:32]))
    h.invariant("some", ~writes | (octets != 0))
    placed = inside.in_state("PLACE", "HAND")
    h.invariant("held", ~placed | dut.job.valid)
    h.invariant("number", ~placed | (inside.signal("following") == (job.number + job.octets)[:32]))
    at_place, wrapped = inside.signal("place"), inside.signal("wrapped")
    job_mask = ring_masks(job.size)[1]
    h.invariant("place", ~placed | (at_place == (job.number & job_mask)))
    hands = inside.in_state("HAND")
    h.invariant("address", ~hands | (inside.signal("address") == _low(job.ring + at_place)))
    job_after = inside.signal("following") & job_mask
    wraps = Mux(job.fpdu & (job_after < job.octets), job_after, 0)
    h.invariant("wrapped", ~hands | (wrapped == wraps))
    rest = store.signal("rest")
    h.invariant("rest", ~rest | command.valid)
    held = store.signal("wrapped")
    two = (held == after) & (held != 0) & (held < octets) & (store.signal("ring") == base)
    begun = first & two & (command.p.octets == octets - held)
    h.invariant("two commands", ~written | ~rest | begun)
    one = first & (command.p.octets == octets) & ((after == 0) | (after >= octets))
    second = (place == 0) & (command.p.octets == after) & (after != 0) & (after < octets)
    h.invariant("one command", ~written | rest | one | second)


def _low(address: Value) -> Value:
    return address[:RING_ADDRESS_BITS]


PROPERTIES = (
    Property(
        "tcp.transmit_ring.TransmitRing",
        "no byte is written outside the ring, or over one that is not acknowledged",
        in_harness(_kept),
        mutations=(
            Mutation(
                "stagecoach.gateware.tcp.transmit_ring",
                "Mux(job.fpdu & less_than(after, job.octets), after, 0)",
                "0",
            ),
            Mutation(
                "stagecoach.gateware.tcp.receive_ring",
                "command.p.octets.eq(job.octets - job.wrapped)",
                "command.p.octets.eq(job.octets)",
            ),
        ),
        depth=1,
    ),
)
