"""Drains: what has passed has ended, and nothing that begins later is waited for.

The environment, here and in the device: an operation ends a cycle after its begin at the earliest,
and fewer than 2^`count_bits` are under way.
"""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Mux, Signal, signed

from gateware.queues.drain import COUNT_BITS, Drain
from gateware.queues.queue_drain import QueueDrain
from hw.formal.harness import Harness, Inside
from hw.formal.property import Mutation, Property, in_harness

Build = Callable[[Harness], None]


def watch(h: Harness, inside: Inside, count_bits: int, name: str = "") -> tuple[Signal, Signal]:
    """What a drain, alone or in a block, says about the operations that it counts.

    Returns those under way, and those of them that began before the latest mark or with it. Its
    state is tied to them, and `passed` is high only if there are none of the latter.
    """
    m = h.m
    most = (1 << count_bits) - 1
    drain = inside.ports

    # And whether the latest one is among those, so that it is one of them that may be cancelled.
    under_way = Signal(count_bits + 1, name=f"{name}under_way")
    owed = Signal(count_bits + 1, name=f"{name}owed")
    latest = Signal(name=f"{name}latest")
    left = under_way - drain.end - drain.cancel
    h.assume(left >= 0)
    h.assume(left + drain.begin <= most)
    m.d.sync += under_way.eq(left + drain.begin)
    # Only the latest one is cancelled, and only once.
    cancelled_already = Signal(name=f"{name}cancelled_already")
    m.d.sync += cancelled_already.eq(~drain.begin & (drain.cancel | cancelled_already))
    h.assume(~(drain.cancel & cancelled_already))
    with m.If(drain.mark):
        m.d.sync += [owed.eq(left + drain.begin), latest.eq(1)]
    with m.Else():
        over = (drain.end & (owed != 0)) + (drain.cancel & latest)
        m.d.sync += owed.eq(owed - over)
        with m.If(drain.begin):
            m.d.sync += latest.eq(0)

    h.check(f"{name}passed when all have ended", ~drain.passed | (owed == 0))

    # Events of the two cycles before are on their way to the counts.
    one, two = h.past, lambda value: h.past(h.past(value))
    names = ("begin", "begun"), ("end", "ended"), ("cancel", "cancelled")
    for early, late in names:
        port = getattr(drain, early)
        h.check(f"{name}{early}", inside.signal(early) == one(port))
        h.check(f"{name}{late}", inside.signal(late) == two(port))
    (begin, begun), (end, ended), (cancel, cancelled) = (
        (inside.signal(early), inside.signal(late)) for early, late in names
    )
    counted = inside.signal("under_way")
    h.check(f"{name}under way", under_way == counted + begin - end - cancel)
    h.check(f"{name}owed", owed <= under_way)
    later = latest | cancelled_already | (owed == 0) | (owed < under_way)
    h.check(f"{name}the latest is not owed", later)
    h.check(f"{name}all are owed", ~latest | (owed == under_way))
    mark, take = inside.signal("marked_0"), inside.signal("take_0")
    latest_too, ahead = inside.signal("latest_too_0"), inside.signal("left_0")
    h.check(f"{name}marked", ~mark | latest)
    h.check(f"{name}take", mark | ~take | (latest == ~begin))
    rest = counted - end - cancel
    h.check(f"{name}taken", mark | ~take | (owed == Mux(rest >= 0, rest, 0)))
    h.check(f"{name}latest one", mark | take | (latest == (latest_too & ~begun & ~begin)))
    first = ahead - ended - (cancelled & latest_too)
    first = Mux(first >= 0, first, 0)
    second = first - end - (cancel & latest_too & ~begun)
    second = Mux(second >= 0, second, 0)
    h.check(f"{name}left", mark | take | (owed == second))
    h.check(f"{name}marks", mark == one(drain.mark))
    h.check(f"{name}takes", take == two(drain.mark))
    return under_way, owed


class Followed:
    """One operation, any, of those that a watched drain counts.

    `inside` is high while it is under way. It `begins` in a cycle in which one does, when none is
    followed, and is over behind the cycle of `ends`. `owed` tells that the drain waits for it.
    """

    def __init__(
        self, h: Harness, drain: Inside, count_bits: int, begins: Any, name: str = ""
    ) -> None:
        ports = drain.ports
        under_way, owed = watch(h, drain, count_bits, name)
        self.inside = Signal(name=f"{name}inside")
        ahead = Signal(count_bits + 1, name=f"{name}ahead")  # up to it, with it
        self.begins = begins & ports.begin & ~self.inside
        self.ends = self.inside & ports.end & (ahead == 1)
        with h.m.If(self.begins):
            h.m.d.sync += [self.inside.eq(1), ahead.eq(under_way - ports.end + 1)]
        with h.m.Elif(self.inside):
            h.m.d.sync += [self.inside.eq(~self.ends), ahead.eq(ahead - ports.end)]
        self.owed = self.inside & (ahead <= owed)
        counted = (ahead > 0) & (ahead <= under_way)
        h.check(f"{name}it is under way", ~self.inside | counted)


def _drain(h: Harness, count_bits: int) -> None:
    drain = Drain(count_bits)
    _, owed = watch(h, h.block(drain), count_bits)
    since = h.past(owed != 0)
    marked = h.past(drain.mark) | h.past(h.past(drain.mark))
    waits = since | h.past(since) | h.past(h.past(since))
    h.check("passed at once", drain.passed | (owed != 0) | waits | marked)


def _queue(h: Harness, depth: int, count_bits: int) -> None:
    """One item, any, is followed from its mark until it is at the head and the next one is loaded.

    The queue keeps the share of each item and loads them in their order.
    """
    m = h.m
    most = (1 << count_bits) - 1
    drain = QueueDrain(depth, count_bits)
    inside = h.block(drain)
    width = count_bits + depth.bit_length() + 2

    # Operations that began and did not end; what they began with is a free count.
    begin = h.free(1, "begin")
    under_way, begun = Signal(count_bits + 1), Signal(count_bits)
    m.d.sync += [under_way.eq(under_way + begin - drain.end), begun.eq(begun + begin)]
    h.assume(~drain.end | (under_way != 0))
    h.assume(under_way + begin <= most)
    h.assume(~drain.mark | (drain.begun == begun))

    # Items that are not loaded, and their shares; the followed one, what is before it, and what it
    # has to wait for.
    items, shares = Signal(range(depth + 1)), Signal(width)
    follows = h.free(1, "follows")
    IDLE, WAITS, HEAD = range(3)
    state = Signal(range(3))
    before, shares_before, own = Signal(range(depth + 1)), Signal(width), Signal(count_bits)
    owed = Signal(count_bits + 1)
    h.assume(~drain.mark | (items < depth))
    h.assume(~drain.load | ((items > 0) & (drain.loaded <= shares)))
    loaded = Mux(drain.load, drain.loaded, 0)
    share = Mux(drain.mark, drain.share, 0)
    m.d.sync += [
        items.eq(items + drain.mark - drain.load),
        shares.eq(shares + share - loaded),
        owed.eq(owed - (drain.end & (owed != 0))),
    ]
    h.assume(~(drain.load & (items == 1)) | (drain.loaded == shares))
    h.assume(~drain.load | (shares - drain.loaded <= ((items - 1) << count_bits)))
    with m.If(drain.load & (state == WAITS)):
        m.d.sync += [before.eq(before - 1), shares_before.eq(shares_before - loaded)]
        with m.If(before == 0):
            m.d.sync += state.eq(HEAD)
    with m.If(drain.load & (state == HEAD)):
        m.d.sync += state.eq(IDLE)
    with m.If(drain.mark & (state == IDLE) & follows):
        m.d.sync += [
            state.eq(WAITS),
            before.eq(items - drain.load),
            shares_before.eq(shares - loaded),
            own.eq(drain.share),
            owed.eq(under_way - drain.end),
        ]
    waits = (state == WAITS) & drain.load
    h.assume(~(waits & (before == 0)) | (drain.loaded == own))
    h.assume(~(waits & (before != 0)) | (drain.loaded <= shares_before))
    h.assume(~(waits & (before == 1)) | (drain.loaded == shares_before))
    h.assume(
        ~(waits & (before != 0)) | (shares_before - drain.loaded <= ((before - 1) << count_bits))
    )
    behind = items - before - 1
    shares_behind = shares - shares_before - own
    h.assume(~(waits & (before == 0) & (behind == 0)) | (shares_behind == 0))

    # What is missing at the head.
    missing = drain.missing
    exact = Mux(owed == 0, missing <= 0, missing == owed)
    h.check("what the head waits for", (state != HEAD) | exact)

    accounted = Signal(signed(width + 1))
    m.d.comb += accounted.eq(missing + shares)
    open_now = (inside.signal("accounted") - inside.signal("ended"))[:count_bits]
    ended, settled = inside.signal("ended"), inside.signal("settled")
    h.check("following", inside.signal("following") == (ended + 1)[:count_bits])
    h.check("settled", settled == (open_now == 0))
    h.check("all that is accounted", accounted == open_now)
    h.check("of what is under way", open_now <= under_way)
    h.check("begun", (begun - inside.signal("accounted"))[:count_bits] == under_way - open_now)
    h.check("most", under_way <= most)
    h.check("items", items <= depth)
    h.check("shares", shares <= (items << count_bits))
    h.check("before", (state != WAITS) | ((before < items) & (shares_before + own <= shares)))
    h.check("no share before", (state != WAITS) | (before != 0) | (shares_before == 0))
    h.check("shares behind", (state != WAITS) | (shares_behind <= (behind << count_bits)))
    h.check("nothing behind", (state != WAITS) | (behind != 0) | (shares_behind == 0))
    h.check("shares before", (state != WAITS) | (shares_before <= (before << count_bits)))
    then = missing + shares_before + own
    h.check("then", (state != WAITS) | Mux(owed == 0, then <= 0, then == owed))
    h.check("states", state <= HEAD)
    h.check("owed", (state == IDLE) | (owed <= under_way))
    h.check("no items", (items != 0) | (shares == 0))


def _property(
    block: str, module: str, name: str, build: Build, *changes: tuple[str, str]
) -> Property:
    mutations = tuple(Mutation(f"gateware.queues.{module}", *change) for change in changes)
    return Property(
        f"queues.{module}.{block}",
        name,
        in_harness(build),
        mutations=mutations,
        depth=4 if block == "Drain" else 1,
    )


PROPERTIES = (
    _property(
        "Drain",
        "drain",
        f"passed is high when all that began before the mark has ended ({COUNT_BITS} bits)",
        lambda h: _drain(h, COUNT_BITS),
        ("left.eq(under_way), latest_too.eq(1)", "left.eq(under_way - 1), latest_too.eq(1)"),
        ("with m.If(left != 0):", "with m.If(1):"),
        ("(cancelled & latest_too)", "cancelled"),
        ("begin ^ end ^ cancel", "begin ^ end"),
    ),
    _property(
        "Drain",
        "drain",
        "passed is high when all that began before the mark has ended (1 bit)",
        lambda h: _drain(h, 1),
        ("~marked & ~take & (left == 0)", "~take & (left == 0)"),
    ),
    _property(
        "QueueDrain",
        "queue_drain",
        "the head waits for what began before it came (2 items)",
        lambda h: _queue(h, 2, 2),
        ("- accounted - forgotten", "- accounted"),
        ("Mux(self.load, self.loaded, 0) - owed", "Mux(self.load, self.loaded, 0) - self.end"),
    ),
    _property(
        "QueueDrain",
        "queue_drain",
        "the head waits for what began before it came (1 item)",
        lambda h: _queue(h, 1, 2),
        ("accounted + forgotten", "accounted"),
    ),
)
