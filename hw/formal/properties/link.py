"""Frames stay whole whatever the link does, and every link begins with a reset of the MAC."""

from amaranth.hdl import Cat, Signal

from stagecoach.gateware.ethernet.link_watch import GIGABIT, LinkWatch
from stagecoach.gateware.ethernet.mac_streams import MacStreams
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness


def _to_the_mac(h: Harness) -> None:
    m = h.m
    streams = MacStreams()
    inside = h.block(streams)
    tx, mac = streams.tx, streams.mac_tx
    open_ = Signal()  # the device is in a frame
    sent = Signal()  # the MAC is in one, with a link since its first word
    with m.If(tx.tvalid & tx.tready):
        m.d.sync += open_.eq(~tx.tlast)
    with m.If(mac.valid & mac.ready):
        m.d.sync += sent.eq(~mac.last)
    with m.If(~streams.up):
        m.d.sync += sent.eq(0)
    h.check("only with a link", ~mac.valid | streams.up)
    h.check("from its first word", ~mac.valid | (sent == open_))
    h.check("to its last word", ~(sent & streams.up & tx.tvalid) | mac.valid)
    h.check("nothing waits for a link", streams.up | tx.tready)
    h.check("a word is taken once", ~mac.valid | (tx.tready == mac.ready))
    h.cover("goes on without a link", open_ & ~sent & streams.up & tx.tvalid)
    h.invariant("open", inside.signal("was_open") == open_)
    h.invariant("cut", inside.signal("cut") == (open_ & ~sent))
    h.invariant("sent", ~sent | open_)


def _to_the_device(h: Harness) -> None:
    m = h.m
    streams = MacStreams()
    inside = h.block(streams)
    rx, mac, up = streams.rx, streams.mac_rx, streams.up
    h.assume(~(up & streams.mac_reset))
    within = Signal()  # the MAC is in a frame
    with m.If(mac.valid):
        m.d.sync += within.eq(~mac.last)
    with m.If(streams.mac_reset):
        m.d.sync += within.eq(0)
    open_ = Signal()  # the device is in one
    with m.If(rx.tvalid):
        m.d.sync += open_.eq(~rx.tlast)

    arrived, was_up = h.past(mac.valid), h.past(up)
    began = arrived & ~h.past(within)
    h.check("from its first word", ~rx.tvalid | open_ | began)
    h.check("all words", ~(arrived & was_up & (open_ | began)) | rx.tvalid)
    ends = Cat(rx.tvalid, rx.tlast, rx.tuser).all()
    h.check("ends without a link", was_up | (~rx.tvalid & ~open_) | ends)
    same = (rx.tdata == h.past(mac.data)) & (rx.tlast == h.past(mac.last))
    h.check("what arrived", ~(rx.tvalid & was_up) | (arrived & same))
    h.cover("cut", ends & open_ & ~was_up)
    after = Signal()  # the device is in a frame after this cycle
    m.d.comb += after.eq((rx.tvalid & ~rx.tlast) | (~rx.tvalid & open_))
    h.invariant("within", inside.signal("within") == within)
    h.invariant("handed", inside.signal("handed") == after)
    h.invariant("in a frame of both", ~after | within)


def _reset(h: Harness) -> None:
    watch = LinkWatch(4)
    inside = h.block(watch)
    up, reset, link = watch.up, watch.mac_reset, watch.link
    good = (link.speed == GIGABIT) & link.full_duplex & link.up
    h.check("not both", ~(up & reset))
    h.check("the link that it says", ~up | good)
    h.check("lost with a reset", up | ~h.past(up) | reset)
    h.check("the same link", ~(up & h.past(up)) | (link.as_value() == h.past(link.as_value())))
    h.check("silent in reset", ~reset | ~link.as_value().any())
    h.cover("up", up)
    in_reset = inside.in_state("Reset")
    known, heard = (inside.view(name, watch.link.shape()) for name in ("known", "heard"))
    h.invariant("legal", inside.legal_state())
    h.invariant("reset", in_reset == reset)
    h.invariant("nothing", ~reset | ~(up | heard.as_value().any()))
    h.invariant("known", ~up | (known == link))
    h.invariant("link", (link == known) | ~link.up)


PROPERTIES = (
    Property(
        "ethernet.mac_streams.MacStreams",
        "what the MAC sends is frames from their first word on, and nothing waits for a link",
        in_harness(_to_the_mac),
        mutations=tuple(
            Mutation("stagecoach.gateware.ethernet.mac_streams", *change)
            for change in (
                ("cut | ~self.up)", "cut)"),
                ("tx.tready.eq(mac.ready | ~passes)", "tx.tready.eq(mac.ready)"),
                ("tx.tvalid & passes", "tx.tvalid"),
            )
        ),
        depth=1,
        reached=4,
    ),
    Property(
        "ethernet.mac_streams.MacStreams",
        "what the device receives is whole frames of the MAC, or a beginning, which is bad",
        in_harness(_to_the_device),
        mutations=tuple(
            Mutation("stagecoach.gateware.ethernet.mac_streams", *change)
            for change in (
                ("(handed | ~within)", "1"),
                ("with m.If(handed):", "with m.If(0):"),
                ("with m.If(self.mac_reset):", "with m.If(0):"),
            )
        ),
        depth=1,
        reached=4,
    ),
    Property(
        "ethernet.link_watch.LinkWatch",
        "a link is up as long as the PHY says the same, and ends with a reset",
        in_harness(_reset),
        mutations=tuple(
            Mutation("stagecoach.gateware.ethernet.link_watch", *change)
            for change in (
                ("lost | found | ~runs", "found | ~runs"),
                ("[up.eq(0), link.eq(0), heard.eq(0)]", "[link.eq(0), heard.eq(0)]"),
                ("heard.up & useful", "heard.up"),
            )
        ),
        depth=1,
        reached=80,
    ),
)
