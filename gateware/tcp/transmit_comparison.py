"""How an event compares with what the sending side knows of its connection."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.tcp.layouts import ack_event, due_layout, settled_layout
from stagecoach.gateware.tcp.sequence import before, distance
from stagecoach.gateware.tcp.transmit_state import TRANSMIT_STATE

SEEN = data.StructLayout(
    {
        **dict.fromkeys(
            (
                *("newer", "same", "some", "all_acked", "beyond", "overtakes", "fresh", "sampled"),
                *("acks_fin", "shut", "resend_due", "ack_due"),
            ),
            1,
        ),
        **dict.fromkeys(("peer_window", "measured", "challenged", "grown", "waited"), 32),
    }
)
"""Comparisons.

SEG.ACK is `newer` than SND.UNA, or the `same`; for all that was sent, or `beyond` that; it
`overtakes` SND.NXT; it is for what was timed, or for our FIN. some: anything is outstanding. fresh:
SEG.SEQ is not before SND.WL1. shut: the window that was announced is zero. peer_window: scaled.
measured: the round trip. challenged, waited: microseconds since the first challenge, and since the
last progress. grown: how far the right edge of our window has moved since it was announced.
"""


class TransmitComparison(wiring.Component):
    """Compares what an event says with the state of its connection, and with the time.

    `start` for a cycle, in which the inputs are good; `seen` is so from the next one on, and stays
    until the next `start`. Of ack, note and due the one that is no event may say anything. Numbers
    and times are modulo 2^32.

    Parameters
    ----------
    bits: of a connection.

    Members
    -------
    ack, note, due: the event, in the payload of that kind. now: microseconds. state: what is known.
    seen: how they compare.
    """

    def __init__(self, bits: int):
        super().__init__(
            {
                "start": In(1),
                "now": In(32),
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
        with m.If(self.start):
            m.d.sync += [
                seen.newer.eq(before(numbers.una, acknowledged)),
                seen.same.eq(numbers.una == acknowledged),
                seen.some.eq(numbers.una != numbers.max),
                seen.all_acked.eq(~before(acknowledged, numbers.max)),
                seen.beyond.eq(before(numbers.max, acknowledged)),
                seen.overtakes.eq(before(numbers.next, acknowledged)),
                seen.fresh.eq(~before(ack.sequence, windows.window_from)),
                seen.sampled.eq(times.timed & ~before(acknowledged, times.timed_number)),
                seen.acks_fin.eq(numbers.closing & (distance(acknowledged, numbers.end) == 1)),
                seen.peer_window.eq(ack.window << path.shift),
                seen.measured.eq(distance(now, times.timed_at)),
                seen.challenged.eq(distance(now, times.challenged_at)),
                seen.grown.eq(distance(note.edge, windows.announced)),
                seen.shut.eq(windows.announced == note.number),
                seen.resend_due.eq(due.resend & resend.armed & ~before(now, resend.at)),
                seen.ack_due.eq(due.acknowledge & acknowledge.armed & ~before(now, acknowledge.at)),
                seen.waited.eq(distance(now, numbers.since)),
            ]
        return m
