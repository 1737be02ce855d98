"""Drains: what has passed has ended, and nothing that begins later is waited for.

The environment, here and in the device: an operation ends a cycle after its begin at the earliest,
and fewer than 2^`count_bits` are under way.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from amaranth.hdl import Mux, Signal

from stagecoach.gateware.queues.drain import COUNT_BITS, Drain
from stagecoach.gateware.queues.queue_drain import QueueDrain
from stagecoach.hw.formal.harness import Harness, Inside
from stagecoach.hw.formal.property import Mutation, Property, Rebuilt, in_harness

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

    # Of a drain that stands in a block this is no more than what the block needs.
    rule = h.invariant if name else h.check
    rule(f"{name}passed when all have ended", ~drain.passed | (owed == 0))

    # Events of the two cycles before are on their way to the counts.
    one, two = h.past, lambda value: h.past(h.past(value))
    names = ("begin", "begun"), ("end", "ended"), ("cancel", "cancelled")
    for early, late in names:
        port = getattr(drain, early)
        h.invariant(f"{name}{early}", inside.signal(early) == one(port))
        h.invariant(f"{name}{late}", inside.signal(late) == two(port))
    (begin, begun), (end, ended), (cancel, cancelled) = (
        (inside.signal(early), inside.signal(late)) for early, late in names
    )
    counted = inside.signal("under_way")
    h.invariant(f"{name}under way", under_way == counted + begin - end - cancel)
    h.invariant(f"{name}owed", owed <= under_way)
    later = latest | cancelled_already | (owed == 0) | (owed < under_way)
    h.invariant(f"{name}the latest is not owed", later)
    h.invariant(f"{name}all are owed", ~latest | (owed == under_way))
    mark, take = inside.signal("marked_0"), inside.signal("take_0")
    latest_too, ahead = inside.signal("latest_too_0"), inside.signal("left_0")
    h.invariant(f"{name}marked", ~mark | latest)
    h.invariant(f"{name}take", mark | ~take | (latest == ~begin))
    rest = counted - end - cancel
    h.invariant(f"{name}taken", mark | ~take | (owed == Mux(rest >= 0, rest, 0)))
    h.invariant(f"{name}latest one", mark | take | (latest == (latest_too & ~begun & ~begin)))
    first = ahead - ended - (cancelled & latest_too)
    first = Mux(first >= 0, first, 0)
    second = first - end - (cancel & latest_too & ~begun)
    second = Mux(second >= 0, second, 0)
    h.invariant(f"{name}left", mark | take | (owed == second))
    h.invariant(f"{name}marks", mark == one(drain.mark))
    h.invariant(f"{name}takes", take == two(drain.mark))
    return under_way, owed


class Followed:
    """One operation, any, of those that a watched drain counts.

    `inside` is high while it is under way. It `begins` in a cycle in which one does, when none is
    followed, and is over after the cycle of `ends`. `owed` tells that the drain waits for it.
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
        h.invariant(f"{name}it is under way", ~self.inside | counted)


def _drain(h: Harness, count_bits: int) -> None:
    drain = Drain(count_bits)
    _, owed = watch(h, h.block(drain), count_bits)
    since = h.past(owed != 0)
    marked = h.past(drain.mark) | h.past(h.past(drain.mark))
    waits = since | h.past(since) | h.past(h.past(since))
    h.check("passed at once", drain.passed | (owed != 0) | waits | marked)


ENOUGH = ("all that is accounted", "of what is under way", "settled then", "share")
"""Names of what is asserted of the counts, and enough for what is said of the head."""


def _queue(
    h: Harness, depth: int, count_bits: int, counts: bool, known: tuple[str, ...] = ENOUGH
) -> None:
    """One item, any, is followed from its mark until it is at the head and the next one is loaded.

    The queue keeps the share of each item and loads them in their order. So when the followed one
    is loaded, the shares of those that came after it are left, and before that more.

    `counts`: what is asserted, the counts or what is said of the head. For that one, what is
    `known` of the counts is assumed.
    """
    m = h.m
    most = (1 << count_bits) - 1
    drain = QueueDrain(depth, count_bits)
    inside = h.block(drain)
    width = count_bits + depth.bit_length() + 1

    # Operations that began and did not end; what they began with is a free count.
    begin = h.free(1, "begin")
    under_way, begun = Signal(count_bits), Signal(count_bits)
    m.d.sync += [under_way.eq(under_way + begin - drain.end), begun.eq(begun + begin)]
    h.assume(~drain.end | (under_way != 0))
    h.assume(under_way + begin - drain.end <= most)
    h.assume(~drain.mark | (drain.begun == begun))

    # Items that are not loaded, and the sum of their shares
    items, shares = Signal(range(depth + 1)), Signal(width)
    loaded = Mux(drain.load, drain.loaded, 0)
    share = Mux(drain.mark, drain.share, 0)
    h.assume(~drain.mark | (items - drain.load < depth))
    h.assume(~drain.load | ((items != 0) & (drain.loaded <= shares)))
    if counts:
        h.assume((shares - loaded)[:width] <= ((items - drain.load)[: len(items)] * most))
    m.d.sync += [
        items.eq(items + drain.mark - drain.load),
        shares.eq(shares + share - loaded),
    ]

    def check(name: str, condition: Any) -> None:
        if counts:
            (h.check if name in known else h.invariant)(name, condition)
        elif name in known:
            h.assume(condition)

    missing, opened = drain.missing, Signal(count_bits)
    open_now = (inside.signal("accounted") - inside.signal("ended"))[:count_bits]
    ended, settled = inside.signal("ended"), inside.signal("settled")
    check("following", inside.signal("following") == (ended + 1)[:count_bits])
    check("settled", settled == (open_now == 0))
    check("settled then", settled == (opened == 0))
    check("all that is accounted", missing + shares == opened)
    check("of what is under way", opened <= under_way)
    started = begun - inside.signal("accounted")
    check("begun", started[:count_bits] == (under_way - open_now)[:count_bits])
    # What a cycle does to it, as a number and not modulo 2^count_bits
    over = drain.end & ~settled
    shared = under_way - opened - (drain.end & ~over)
    check("share", ~drain.mark | (drain.share == shared))
    forgotten = drain.end & settled
    then = Mux(drain.mark, drain.begun, inside.signal("accounted") + forgotten)
    then = (then - ended - drain.end)[:count_bits]
    m.d.sync += opened.eq(Mux(drain.mark, under_way - drain.end, opened - over))
    check("then", then == Mux(drain.mark, under_way - drain.end, open_now - over))
    check("opened", opened == open_now)
    check("items", items <= depth)
    check("shares", shares <= items * most)
    if counts:
        return

    # The followed one, the shares after it, and what it has to wait for
    follows = h.free(1, "follows")
    IDLE, WAITS, HEAD = range(3)
    state, owed, behind = Signal(range(3)), Signal(count_bits), Signal(width)
    its_load = h.free(1, "its_load") & drain.load & (state == WAITS)
    h.assume(~its_load | (shares - loaded == behind))
    h.assume((state != WAITS) | (shares - loaded >= behind))
    m.d.sync += [
        owed.eq(owed - (drain.end & (owed != 0))),
        behind.eq(behind + share - Mux(state == HEAD, loaded, 0)),
    ]
    with m.If(its_load):
        m.d.sync += state.eq(HEAD)
    with m.Elif(drain.load & (state == HEAD)):
        m.d.sync += state.eq(IDLE)
    with m.If(drain.mark & (state == IDLE) & follows):
        m.d.sync += [state.eq(WAITS), behind.eq(0), owed.eq(under_way - drain.end)]

    # What is missing at the head.
    exact = Mux(owed == 0, missing <= 0, missing == owed)
    h.check("what the head waits for", (state != HEAD) | exact)
    rest = opened - behind
    h.invariant("rest", (state == IDLE) | Mux(owed == 0, rest <= 0, rest == owed))
    h.invariant("behind", (state == IDLE) | (behind <= shares))
    h.invariant("all behind", (state != HEAD) | (behind == shares))
    h.invariant("states", state <= HEAD)
    h.invariant("owed", (state == IDLE) | (owed <= under_way))
    h.cover("one waits", (state == HEAD) & (owed == 2) & (behind == 1))


def _property(
    block: str, module: str, name: str, build: Build, *changes: tuple[str, str]
) -> Property:
    mutations = tuple(
        Mutation(f"stagecoach.gateware.queues.{module}", *change) for change in changes
    )
    return Property(
        f"queues.{module}.{block}",
        name,
        in_harness(build),
        mutations=mutations,
        depth=4 if block == "Drain" else 1,
    )


QUEUES = ((64, COUNT_BITS), (32, COUNT_BITS), (1, 2))
"""Items and bits of a share: those of `DeliveryGate` and `RequestGate`, and the smallest."""

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
    *(
        _property(
            "QueueDrain",
            "queue_drain",
            f"what is missing, and what waits, is what is accounted ({depth}, {count_bits} bits)",
            partial(_queue, depth=depth, count_bits=count_bits, counts=True),
            ("- accounted - forgotten", "- accounted"),
            ("Mux(self.load, self.loaded, 0) - owed", "Mux(self.load, self.loaded, 0) - self.end"),
            ("accounted + forgotten", "accounted"),
        )
        for depth, count_bits in QUEUES
    ),
    *(
        Property(
            "queues.queue_drain.QueueDrain",
            f"the head waits for what began before it came ({depth}, {count_bits} bits)",
            in_harness(partial(_queue, depth=depth, count_bits=count_bits, counts=False)),
            # What breaks the block breaks the counts, which are assumed here.
            mutations=tuple(
                Rebuilt(
                    f"not known: {name}",
                    in_harness(
                        partial(
                            _queue,
                            depth=depth,
                            count_bits=count_bits,
                            counts=False,
                            known=tuple(each for each in ENOUGH if each != name),
                        )
                    ),
                )
                for name in ENOUGH[:1]
            ),
            depth=1,
            covered=8,
        )
        for depth, count_bits in QUEUES
    ),
)
