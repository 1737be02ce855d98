"""How an event compares with what the sending side knows of its connection."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.layouts import (
    TRANSMIT_SETTINGS,
    ack_event,
    due_layout,
    settled_layout,
)
from stagecoach.gateware.tcp.sequence import before, distance
from stagecoach.gateware.tcp.transmit_state import CHALLENGE_PERIOD_US, TRANSMIT_STATE

SEEN = data.StructLayout(
    {
        **dict.fromkeys(
            (
                *("newer", "same", "some", "all_acked", "beyond", "overtakes", "fresh", "sampled"),
                *("acks_fin", "unchanged", "larger", "shut", "resend_due", "ack_due", "renews"),
                "gives_up",
            ),
            1,
        ),
        **dict.fromkeys(("peer_window", "measured", "delayed", "grown"), 32),
    }
)
"""Comparisons.

SEG.ACK is `newer` than SND.UNA, or the `same`; for all that was sent, or `beyond` that; it
`overtakes` SND.NXT; it is for what was timed, or for our FIN. some: anything is outstanding. fresh:
SEG.SEQ is not before SND.WL1. peer_window: scaled; SND.WND is `unchanged`, or it is `larger` than
the largest there was. measured: the round trip. renews: the first challenge is long ago. gives_up:
so is the last progress. shut: the window that was announced is zero. grown: how far the right edge
of our window has moved since then. delayed: when an ACK is due that waits from now on.
"""


class TransmitComparison(wiring.Component):
    """Compares what an event says with the state of its connection, and with the time.

    While it `compares`, `seen` follows the inputs by a cycle; what comes of `times`, and of the
    scaled window, by two. Otherwise it stays. Of ack, note and due the one that is no event may say
    anything. Numbers and times are modulo 2^32.

    Parameters
    ----------
    bits: of a connection.

    Members
    -------
    compares: as said. ack, note, due: the event, in the payload of that kind. now: microseconds.
    settings: of all connections. state: what is known. seen: how they compare.
    """

    def __init__(self, bits: int):
        super().__init__(
            {
                "compares": In(1),
                "now": In(32),
                "settings": In(TRANSMIT_SETTINGS),
                "ack": In(ack_event(bits)),
                "note": In(settled_layout(bits)),
                "due": In(due_layout(bits)),
                "state": In(TRANSMIT_STATE),
                "seen": Out(SEEN),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        numbers, path = self.state.numbers, self.state.path
        times, windows = self.state.times, self.state.windows
        resend, acknowledge = times.deadlines.resend, times.deadlines.acknowledge
        ack, note, due, now, seen = self.ack, self.note.note, self.due, self.now, self.seen
        acknowledged = ack.acknowledgment
        challenged, waited = Signal(32), Signal(32)
        with m.If(self.compares):
            m.d.sync += [
                seen.newer.eq(before(numbers.una, acknowledged)),
                seen.same.eq(numbers.una == acknowledged),
                seen.some.eq(numbers.una != numbers.max),
                seen.all_acked.eq(~before(acknowledged, numbers.max)),
                seen.beyond.eq(before(numbers.max, acknowledged)),
                seen.overtakes.eq(before(numbers.next, acknowledged)),
                seen.fresh.eq(~before(ack.sequence, windows.window_from)),
                seen.sampled.eq(times.timed & ~before(acknowledged, times.timed_number)),
                seen.acks_fin.eq(numbers.closing & before(numbers.end, acknowledged)),
                seen.peer_window.eq(ack.window << path.shift),
                seen.unchanged.eq(seen.peer_window == windows.window),
                seen.larger.eq(windows.max_window < seen.peer_window),
                seen.measured.eq(distance(now, times.timed_at)),
                challenged.eq(distance(now, times.challenged_at)),
                seen.renews.eq(challenged >= CHALLENGE_PERIOD_US),
                seen.grown.eq(distance(note.edge, windows.announced)),
                seen.shut.eq(windows.announced == note.number),
                seen.resend_due.eq(due.resend & resend.armed & ~before(now, resend.at)),
                seen.ack_due.eq(due.acknowledge & acknowledge.armed & ~before(now, acknowledge.at)),
                waited.eq(distance(now, numbers.since)),
                seen.gives_up.eq(waited >= self.settings.r2),
                seen.delayed.eq(now + self.settings.delayed_ack),
            ]
        return m
