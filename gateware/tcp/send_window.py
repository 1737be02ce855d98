"""How much of a segment may be sent (RFC 9293, 3.8.6.2.1; RFC 5681, 2)."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.sequence import distance


class SendMode(enum.Enum, shape=2):
    """Why something is sent."""

    NEW = 0  # what follows SND.NXT, as the windows allow
    AGAIN = 1  # what follows SND.UNA, whatever they are
    PROBE = 2  # what follows SND.NXT, as far as the peer's window goes


class SendWindow(wiring.Component):
    """Decides how many bytes a segment has, and whether it is sent.

    New data is sent if its segment fits in the windows, or if half of the peer's largest window
    does. FIN goes with the last bytes, or alone; congestion control does not count it, the peer's
    window does. A probe is sent if the peer's window has room for a byte.

    The caller holds all inputs for five cycles, `full` counts in the fourth one alone; the outputs
    are good in the sixth one, and stay as long as the inputs do. No handshake. Numbers are compared
    modulo 2^32; windows have at most 2^31 - 1 bytes.

    Members
    -------
    mode: as said. una, number, highest, end: SND.UNA, where the segment begins, the number after
        all that was sent, and after all that was queued. closing: FIN follows it. limit, window,
        max_window: bytes that may be outstanding, SND.WND, and the largest there was.
        full: bytes of the whole segment. held: of new data, not without another one after it.
    sends: it is sent. octets: of it. fin: with FIN. whole: no byte of the segment is left out.
        last: nor is there one after it. following: the number after it. advances: that is after
        `highest`. some, one: bytes wait from `number` on, and exactly one does.
    """

    mode: In(SendMode)
    una: In(32)
    number: In(32)
    highest: In(32)
    end: In(32)
    closing: In(1)
    limit: In(32)
    window: In(32)
    max_window: In(32)
    full: In(OCTETS_BITS)
    held: In(1)
    sends: Out(1)
    octets: Out(OCTETS_BITS)
    fin: Out(1)
    whole: Out(1)
    last: Out(1)
    following: Out(32)
    advances: Out(1)
    some: Out(1)
    one: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        news = self.mode == SendMode.NEW
        again = self.mode == SendMode.AGAIN
        probes = self.mode == SendMode.PROBE

        # First cycle: what may be outstanding, and is; what waits, and what was sent before.
        allowed, flight, waiting, sent = (Signal(32) for _ in range(4))
        less = news & (self.limit < self.window)
        m.d.sync += [
            allowed.eq(Mux(less, self.limit, self.window)),
            flight.eq(distance(self.number, self.una)),
            waiting.eq(distance(self.end, self.number)),
            sent.eq(distance(self.highest, self.number)),
        ]
        # Second cycle: what is left of the windows, below 0 if they shrank.
        usable, opened = Signal(33), Signal(33)
        m.d.sync += [usable.eq(allowed - flight), opened.eq(self.window - flight)]
        # Third cycle: as numbers of bytes of a segment, or one that is larger than those.
        usable_octets, opened_octets, waiting_octets, sent_octets = (
            Signal(OCTETS_BITS + 1) for _ in range(4)
        )
        left, half = Signal(), Signal()
        m.d.sync += [
            usable_octets.eq(_bounded(usable)),
            opened_octets.eq(_bounded(opened)),
            waiting_octets.eq(_bounded(waiting)),
            sent_octets.eq(_bounded(sent)),
            left.eq(~usable[-1]),
            half.eq(Cat(C(0, 1), usable) >= self.max_window),
        ]
        # Fourth cycle: the whole segment is there.
        full = Signal(OCTETS_BITS)
        m.d.sync += full.eq(self.full)
        # Fifth cycle: what is sent of it.
        fits, last, fin, some = Signal(), Signal(), Signal(), Signal()
        octets = Signal(OCTETS_BITS)
        m.d.comb += [
            fits.eq(again | (left & (full <= usable_octets))),
            last.eq(fits & (full == waiting_octets)),
            octets.eq(Mux(fits, full, Mux(left, usable_octets, 0))),
            some.eq(Mux(fits, full.any(), left & usable_octets.any())),
        ]
        with m.Switch(self.mode):
            with m.Case(SendMode.NEW):
                m.d.comb += fin.eq(self.closing & last & (full < opened_octets))
            with m.Case(SendMode.AGAIN):
                # If it was sent before.
                m.d.comb += fin.eq(self.closing & last & (full < sent_octets))
        advance = Mux(fin, full >= sent_octets, full > sent_octets)
        m.d.sync += [
            self.octets.eq(octets),
            self.fin.eq(fin),
            self.whole.eq(fits),
            self.last.eq(last),
            self.sends.eq(
                again | ((fin | (some & (probes | fits | half))) & ~(news & self.held & last))
            ),
            self.advances.eq(Mux(fits, advance, left & (usable_octets > sent_octets))),
            self.some.eq(waiting_octets.any()),
            self.one.eq(waiting_octets == 1),
        ]
        # Sixth cycle. One sum: FIN is its carry.
        m.d.comb += self.following.eq((Cat(1, self.number) + Cat(self.fin, self.octets))[1:])
        return m


def _bounded(value: Value) -> Value:
    """Return the bytes, with 2^14 for all that are more."""
    return Mux(value[OCTETS_BITS:].any(), 1 << OCTETS_BITS, value[:OCTETS_BITS])
