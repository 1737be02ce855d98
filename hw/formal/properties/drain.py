"""Drains: what has passed has ended, and nothing that begins later is waited for.

The environment, here and in the device: an operation ends a cycle after its begin at the earliest,
and fewer than 2^`count_bits` are under way.
"""

from collections.abc import Callable

from amaranth.hdl import Mux, Signal, signed

from gateware.queues.drain import COUNT_BITS, Drain
from gateware.queues.queue_drain import QueueDrain
from hw.formal.harness import Harness
from hw.formal.property import Mutation, Property, in_harness

Build = Callable[[Harness], None]


def _drain(h: Harness, count_bits: int) -> None:
    m = h.m
    most = (1 << count_bits) - 1
    drain = Drain(count_bits)
    inside = h.block(drain)

    # Operations under way; those of them that began before the mark or with it; and whether the
    # latest one is among these, so that it is one of them that may be cancelled.
    under_way, owed, latest = Signal(count_bits + 1), Signal(count_bits + 1), Signal()
    left = under_way - drain.end - drain.cancel
    h.assume(left >= 0)
    h.assume(left + drain.begin <= most)
    m.d.sync += under_way.eq(left + drain.begin)
    # Only the latest one is cancelled, and only once.
    cancelled_already = Signal()
    m.d.sync += cancelled_already.eq(~drain.begin & (drain.cancel | cancelled_already))
    h.assume(~(drain.cancel & cancelled_already))
    with m.If(drain.mark):
        m.d.sync += [owed.eq(left + drain.begin), latest.eq(1)]
    with m.Else():
        over = (drain.end & (owed != 0)) + (drain.cancel & latest)
        m.d.sync += owed.eq(owed - over)
        with m.If(drain.begin):
            m.d.sync += latest.eq(0)

    h.check("passed when all have ended", ~drain.passed | (owed == 0))
    since = h.past(owed != 0), h.past(h.past(owed != 0)), h.past(h.past(h.past(owed != 0)))
    marked = h.past(drain.mark) | h.past(h.past(drain.mark))
    waits = since[0] | since[1] | since[2]
    h.check("passed at once", drain.passed | (owed != 0) | waits | marked)

    # Events of the two cycles before are on their way to the counts.
    one, two = h.past, lambda value: h.past(h.past(value))
    names = ("begin", "begun"), ("end", "ended"), ("cancel", "cancelled")
    for early, late in names:
        port = getattr(drain, early)
        h.check(early, inside.signal(early) == one(port))
        h.check(late, inside.signal(late) == two(port))
    (begin, begun), (end, ended), (cancel, cancelled) = (
        (inside.signal(early), inside.signal(late)) for early, late in names
    )
    counted = inside.signal("under_way")
    h.check("under way", under_way == counted + begin - end - cancel)
    h.check("owed", owed <= under_way)
    later = latest | cancelled_already | (owed == 0) | (owed < under_way)
    h.check("the latest is not owed", later)
    h.check("all are owed", ~latest | (owed == under_way))
    mark, take = inside.signal("marked_0"), inside.signal("take_0")
    latest_too, ahead = inside.signal("latest_too_0"), inside.signal("left_0")
    h.check("marked", ~mark | latest)
    h.check("take", mark | ~take | (latest == ~begin))
    rest = counted - end - cancel
    h.check("taken", mark | ~take | (owed == Mux(rest >= 0, rest, 0)))
    h.check("latest", mark | take | (latest == (latest_too & ~begun & ~begin)))
    first = ahead - ended - (cancelled & latest_too)
    first = Mux(first >= 0, first, 0)
    second = first - end - (cancel & latest_too & ~begun)
    second = Mux(second >= 0, second, 0)
    h.check("left", mark | take | (owed == second))
    h.check("marks", mark == one(drain.mark))
    h.check("takes", take == two(drain.mark))


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
