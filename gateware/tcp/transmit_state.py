"""What the sending side knows of a connection, in the rows of its table."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.ethernet.layouts import OCTETS_BITS
from stagecoach.gateware.tcp.congestion import CONGESTION, CWND_MOST
from stagecoach.gateware.tcp.layouts import DEADLINES, RING_ADDRESS_BITS
from stagecoach.gateware.tcp.rto import RTO
from stagecoach.gateware.tcp.segment_list import SEGMENTS

SUSPECT_RETRIES = 3
"""R1 of RFC 9293, 3.8.3, in retransmissions."""

CHALLENGES = 5
"""ACKs that are challenges, at most, in `CHALLENGE_PERIOD_US` from the first one on: so there are
no more than 10 in any such period (RFC 5961, 7)."""

CHALLENGE_PERIOD_US = 5_000_000

NUMBERS = data.StructLayout(
    {
        "una": 32,
        "next": 32,
        "max": 32,
        "end": 32,
        "granted": 32,
        "base": 32,
        "sent_at": 32,
        "since": 32,
        "emss": OCTETS_BITS,
        "size": 4,
        "retries": range(SUSPECT_RETRIES + 1),
        "unacknowledged": 1,
        "alive": 1,
        "attached": 1,
        "closing": 1,
        "passive": 1,
        "peer_fin": 1,
        "fin_acknowledged": 1,
        "probed": 1,
        "persists": 1,
        "visiting": 1,
    }
)
"""Numbers of what is sent, times, sizes, and flags.

una, next, max: SND.UNA, SND.NXT, and the number after all that was sent; our FIN counts. end: after
all bytes that were queued. granted: the LLP may send up to there. base: number of its position 0.
sent_at: time of the last segment with data. since: of the last progress. emss: bytes of the
longest segment. size: of the ring, as in `receive_command`. retries: retransmissions
since then, R1 stands for all that are more. unacknowledged: a segment of the peer is. closing: FIN
follows `end`. passive: the peer's FIN was there before. probed: the byte at SND.UNA was sent by
the persist timer. persists: `resend` is that timer. visiting: the connection is in the queue of
visits.
"""

PATH = data.StructLayout(
    {
        "congestion": CONGESTION,
        "segments": SEGMENTS,
        "shift": 4,
        "challenges": range(CHALLENGES + 1),
    }
)
"""challenges: since `challenged_at`."""

TIMES = data.StructLayout(
    {
        "rto": RTO,
        "deadlines": DEADLINES,
        "timed": 1,
        "timed_number": 32,
        "timed_at": 32,
        "challenged_at": 32,
    }
)
"""timed: the acknowledgment of `timed_number` is a sample of the round trip that began at
`timed_at`."""

WINDOWS = data.StructLayout(
    {
        "window": 32,
        "max_window": 32,
        "window_from": 32,
        "edge": 32,
        "announced": 32,
        "ring": RING_ADDRESS_BITS,
    }
)
"""window: SND.WND. max_window: the largest there was. window_from: SND.WL1. edge: right edge of our
window. announced: what the peer knows of it. ring: as in `receive_command`."""

TRANSMIT_STATE = data.StructLayout(
    {"numbers": NUMBERS, "path": PATH, "times": TIMES, "windows": WINDOWS}
)
"""All of it. Each part is a row of the table."""


def begun(m: Module, command: data.View, now: Signal, visiting: Value) -> data.View:
    """Return the state of a connection that a BEGIN begins at a time."""
    state = Signal(TRANSMIT_STATE)
    numbers, path, times, windows = state.numbers, state.path, state.times, state.windows
    m.d.comb += [
        *(numbers[name].eq(command.number) for name in ("una", "next", "max", "end")),
        *(numbers[name].eq(now) for name in ("sent_at", "since")),
        numbers.emss.eq(command.emss),
        numbers.size.eq(command.size),
        numbers.alive.eq(1),
        numbers.visiting.eq(visiting),
        path.congestion.cwnd.eq(command.cwnd),
        path.congestion.ssthresh.eq(CWND_MOST),
        path.congestion.recover.eq(command.number - 2),
        path.segments.first_start.eq(command.number),
        path.segments.current_start.eq(command.number),
        path.shift.eq(command.shift),
        times.rto.eq(command.rto),
        windows.window.eq(command.window),
        windows.max_window.eq(command.window),
        windows.window_from.eq(command.window_from),
        windows.edge.eq(command.edge),
        windows.announced.eq(command.announced),
        windows.ring.eq(command.ring),
    ]
    return state
