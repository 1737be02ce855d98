"""No frame is broken off, changed while the MAC waits, or shorter than Ethernet allows."""

from amaranth.hdl import Cat, Signal

from stagecoach.gateware.ethernet.frame_output import FrameOutput
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

SOURCES = 3


def _whole(h: Harness) -> None:
    m = h.m
    output = FrameOutput(SOURCES)
    inside = h.block(output)
    tx = output.tx
    number = h.constant(range(SOURCES), "source_followed")
    h.assume(number < SOURCES)
    for source in output.frames:
        h.assume(h.held(source))
        h.assume((source.p.octets > 0) & (source.p.octets <= 8))
        h.assume(source.p.last | (source.p.octets == 8))

    # Which source has begun a frame that has not ended
    taken = [each.valid & each.ready for each in output.frames]
    begun = Signal(SOURCES)
    for index, (source, take) in enumerate(zip(output.frames, taken, strict=True)):
        with m.If(take):
            m.d.sync += begun[index].eq(~source.p.last)
    others = Cat(taken) & ~(1 << number)
    h.check("one frame at a time", ~begun.bit_select(number, 1) | ~others.any())

    # What the MAC sees
    beat = Cat(tx.tdata, tx.tkeep, tx.tlast)
    waits = h.past(tx.tvalid & ~tx.tready)
    h.check("held", ~waits | (tx.tvalid & (beat == h.past(beat))))
    octets = Signal(7)  # of the frame at the port so far, up to 64 and no further
    with m.If(tx.tvalid & tx.tready):
        m.d.sync += octets.eq(0)
        with m.If(~tx.tlast):
            m.d.sync += octets.eq(octets + 8 - 8 * (octets == 64))
    last = sum(tx.tkeep[lane] for lane in range(8))
    h.check("long enough", ~(tx.tvalid & tx.tlast) | (octets + last >= 60))
    h.check("full words", ~tx.tvalid | tx.tlast | tx.tkeep.all())
    h.check("from lane 0", ~tx.tvalid | (tx.tkeep[0] & ~(tx.tkeep & (tx.tkeep + 1)[:8]).any()))
    h.cover("padded", tx.tvalid & tx.tlast & h.past(inside.signal("pads")))

    # Who goes on, and how many words are in the buffer
    latest, under_way = inside.signal("latest"), inside.signal("under_way")
    h.invariant("latest", latest < SOURCES)
    begins = Cat((latest == index) & under_way for index in range(SOURCES))
    h.invariant("begun", begun == begins)
    ahead = inside.child("output")
    spare, full = ahead.view("spare", ahead.ports.o.payload.shape()), ahead.signal("spare_full")
    kept = ahead.ports.o
    h.invariant("buffer", (ahead.signal("vacant") == ~kept.valid) & (~full | kept.valid))
    h.invariant("spare", ahead.signal("spare_empty") == ~full)
    words = inside.signal("number")
    h.invariant("number", words <= 8)
    h.invariant("pads", ~inside.signal("pads") | (~under_way & (words > 0) & (words < 8)))
    h.invariant("between", under_way | inside.signal("pads") | (words == 0))
    h.invariant("inside", ~under_way | (words > 0))
    at = octets >> 3
    for name, there, word in (("kept", kept.valid, kept.p), ("spare word", full, spare)):
        number_of = at if name == "kept" else Signal(4, name="number_of_spare")
        if name != "kept":
            follows = (at + (at != 8))[:4]
            m.d.comb += number_of.eq(follows)
            with m.If(kept.p.last):
                m.d.comb += number_of.eq(0)
        h.invariant(f"{name} bytes", ~there | ((word.octets > 0) & (word.octets <= 8)))
        h.invariant(f"{name} full", ~there | word.last | (word.octets == 8))
        end = (number_of << 3) + word.octets
        h.invariant(f"{name} end", ~there | ~word.last | (end >= 60))
    after = Signal(4)  # number of the next word of the frame after what is in the buffer
    m.d.comb += after.eq(at)
    with m.If(kept.valid):
        m.d.comb += after.eq((at + (at != 8))[:4])
        with m.If(kept.p.last):
            m.d.comb += after.eq(0)
    with m.If(full):
        m.d.comb += after.eq((at + 2 - (at == 7) - 2 * (at == 8))[:4])
        with m.If(kept.p.last):
            m.d.comb += after.eq(1)
        with m.If(spare.last):
            m.d.comb += after.eq(0)
    h.invariant("next word", words == after)
    h.invariant("bytes", (octets[:3] == 0) & (octets <= 64))


PROPERTIES = (
    Property(
        "ethernet.frame_output.FrameOutput",
        "frames leave one at a time, whole and held, with 60 bytes at least",
        in_harness(_whole),
        mutations=tuple(
            Mutation("stagecoach.gateware.ethernet.frame_output", *change)
            for change in (
                ("Mux(under_way, latest, choice)", "choice"),
                ("is_long & (beat.last | pads)", "beat.last | pads"),
                ("is_least & (pads | (beat.octets < least))", "is_least & pads"),
                ("pads | (beat.last & ~is_long)", "pads"),
            )
        ),
        depth=1,
        reached=8,
    ),
)
