"""The reference TCP as the sending side of a connection, with segments as the engine keeps them."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from stagecoach.gateware.tcp.layouts import Due
from stagecoach.gateware.tcp.segment_list import PLACES
from stagecoach.gateware.tcp.transmit_grant import GRANTED_SEGMENTS, RESERVED_PLACES
from stagecoach.gateware.tcp.transmit_state import CHALLENGE_PERIOD_US, CHALLENGES
from stagecoach.sim.model.tcp import closing, timers
from stagecoach.sim.model.tcp.adoption import Adoption, adopt
from stagecoach.sim.model.tcp.record import RECEIVING, Record
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.sender import Sender
from stagecoach.sim.model.tcp.state import Cause, Settings, State
from stagecoach.sim.model.tcp.window import receiver_edge
from tests.tcp.receive_reference import LOCAL, REMOTE, SPACE

ENDS = {
    Cause.CLOSED: "CLOSED",
    Cause.ABORTED: "ABORTED",
    Cause.RESET: "RESET",
    Cause.TIMED_OUT: "TIMED_OUT",
    Cause.DATA_LOST: "DATA_LOST",
}
"""Of a connection, as a notice names them."""


class ListedSender(Sender):
    """Segments are those of the list of the engine, also when they are sent again.

    The reference packs what it sends again anew. A smaller segment size is the restart window;
    what limited transmit lends is as many segments of the new size.
    """

    segments: deque[list[int]]  # start, end, whether it consists of FPDUs
    crowded = 0  # how often the last one had to wait for others

    def free(self) -> int:
        """Places of the list."""
        while self.segments and self.segments[0][1] <= self.una:
            self.segments.popleft()
        return PLACES - 1 - len(self.segments)

    def queue(self, octets: bytes, *, whole: bool = False) -> None:
        self.free()
        start, end = self.end, self.end + len(octets)
        last = self.segments[-1] if self.segments else [0, 0, 0]
        untouched = bool(self.segments) and self.max <= last[0]
        if whole and last[2] and untouched and end - last[0] <= self.smss:
            last[1] = end
        else:
            self.segments.append([start, end, int(whole)])
        self._queue += octets

    def _full(self, position: int) -> int:
        found = (end for start, end, _ in self.segments if start <= position < end)
        return min(next(found, position) - position, self.smss)

    def _holds_back(self, count: int, full: int, waiting: int) -> bool:
        crowded = self.free() < RESERVED_PLACES and count == waiting
        if crowded and self.outstanding and not self.closing:
            self.crowded += 1
            return True
        return super()._holds_back(count, full, waiting)

    def probe(self, now: int) -> None:
        count = min(self._full(self.next), self.window)
        if count:
            self._transmit(now, self.next, count, False)
            self.next += count
            return
        super().probe(now)

    def resize(self, now: int, smss: int) -> None:
        smaller = smss < self.smss
        self.congestion.extra = self.congestion.extra // self.smss * smss
        self.smss = self.congestion.smss = smss
        if smaller:
            self.congestion.idle()
            self.congestion.recover = self.max - 1
            if self.outstanding:
                self.next = self._resend(now)
        self.push(now)


class Challenges:
    """A few, in a period that begins with the first of them."""

    def __init__(self) -> None:
        self._since = self._sent = 0

    def allow(self, now: int) -> bool:
        if not self._sent or now - self._since >= CHALLENGE_PERIOD_US:
            self._since, self._sent = now, 0
        self._sent += self._sent < CHALLENGES + 1
        return self._sent <= CHALLENGES


@dataclass
class Setup:
    """How a connection begins; numbers as on the wire."""

    number: int
    following: int = 1000
    window: int = 65_535
    shift: int = 0
    smss: int = 1460
    round_trip: int | None = 10_000
    settings: Settings = field(default_factory=lambda: Settings(rto_minimum=1000))


class Reference:
    """A connection after its handshake; what happens to it, and what it says then."""

    def __init__(self, now: int, setup: Setup) -> None:
        settings = setup.settings
        self.mss, self.buffer, self.shift = settings.mss, settings.receive_buffer, 2
        self.output: list[Segment] = []
        self.reports: list[Any] = []
        self.record = record = Record(LOCAL, REMOTE, settings, self.output, self.reports)
        self.sender = record.sender = ListedSender(settings, record.emit)
        self.sender.segments = deque()
        record.challenges = Challenges()  # type: ignore[assignment]
        adoption = Adoption(
            remote=REMOTE,
            next_sent=setup.number,
            next_received=setup.following,
            window=setup.window,
            window_from=setup.following,
            send_shift=setup.shift,
            receive_shift=self.shift,
            receive_window=self.buffer,
            smss=setup.smss,
            sack=True,
            round_trip=setup.round_trip,
            syn_losses=0,
        )
        adopt(record, now, adoption)
        self.receiver = record.receiver
        self.edge = self.receiver._edge  # as the receive processor moves it
        self.gap = 0
        self.ended = ""
        self.attached = False
        self.granted = self.base = 0
        self.grants: list[int] = []
        self.seen: Counter[str] = Counter()

    # What is there.

    def number(self, position: int) -> int:
        return self.sender.number(position)

    @property
    def limits(self) -> dict[str, int]:
        """The copy for the receive processor."""
        sender = self.sender
        oldest = self.number(sender.una - sender._max_window)
        highest = self.number(sender.highest)
        return {"oldest": oldest, "highest": highest, "ended": int(bool(self.ended))}

    @property
    def deadlines(self) -> dict[str, int | None]:
        """When the timers have to come."""
        sender = self.sender
        assert sender.retransmit_at is None or sender.persist_at is None
        resend = sender.persist_at if sender.retransmit_at is None else sender.retransmit_at
        found = {"resend": resend, "acknowledge": self.receiver.ack_at}
        return {name: None if at is None else at % SPACE for name, at in found.items()}

    @property
    def rto(self) -> dict[str, int]:
        rto = self.sender.rto
        sampled = rto.srtt8 is not None
        return {
            "sampled": int(sampled),
            "srtt8": rto.srtt8 if rto.srtt8 is not None else 8 * rto.initial,
            "rttvar4": rto.rttvar4,
            "timeout": rto.microseconds,
        }

    def allowed(self) -> int:
        """Octets that the LLP may send."""
        return self.granted - self.sender.end

    def grant(self, ring: int) -> None:
        """The LLP is told of more, if it is."""
        sender = self.sender
        most = min(sender.una + ring, sender.end + GRANTED_SEGMENTS * sender.smss)
        roomy = self.attached and not self.ended and sender.free() >= RESERVED_PLACES
        if roomy and most - self.granted >= sender.smss:
            self.granted = most
            self.grants.append((most - self.base) % SPACE)

    # What happens.

    def _settle(self) -> None:
        """Whether the connection has ended."""
        self.seen["crowded"] += self.sender.crowded
        self.sender.crowded = 0
        state = self.record.state
        if state is State.TIME_WAIT:
            self.record.stop_timers()
            self.ended = "TIME_WAIT"
        elif state is State.CLOSED:
            assert self.record.cause
            self.ended = ENDS[self.record.cause]

    def acknowledge(
        self, now: int, segment: Segment, *, lost: bool = False, challenge: bool = False
    ) -> None:
        record, sender = self.record, self.sender
        was, extra = sender.congestion.recovering, sender.persist_at
        limited = sender.congestion.extra
        sender.take_ack(now, segment, sender.position(segment.acknowledgment))
        if sender.fin_acknowledged:
            closing.fin_acknowledged(record, now)
        self._settle()
        self.seen["recovery"] += sender.congestion.recovering and not was
        self.seen["partial"] += was and sender.congestion.recovering
        self.seen["recovered"] += was and not sender.congestion.recovering
        self.seen["limited"] += sender.congestion.extra > limited
        self.seen["reopened"] += extra is not None and sender.persist_at is None
        if self.ended:
            return
        if challenge:
            record.challenge(now)
        if lost:
            closing.lose_data(record, now)
            self._settle()
            return
        sender.push(now)

    def reset(self) -> None:
        self.record.end(Cause.RESET)
        self._settle()

    def challenge(self, now: int) -> None:
        self.record.challenge(now)
        self.sender.push(now)

    def send(self, now: int, octets: int, *, whole: bool) -> None:
        sender = self.sender
        segments = len(sender.segments)
        sender.queue(bytes(octets), whole=whole)
        self.seen["joined"] += len(sender.segments) == segments
        quiet = now - sender._sent_at > sender.rto.microseconds
        before = sender.congestion.cwnd
        sender.push(now)
        self.seen["idle"] += quiet and sender.congestion.cwnd < before

    def close(self, now: int) -> None:
        if not self.sender.closing:
            self.seen["fin"] += 1
            closing.close(self.record, now)

    def abort(self, now: int) -> None:
        if self.record.state in (*RECEIVING, State.CLOSE_WAIT):
            self.record.send_reset(now)
        self.record.end(Cause.ABORTED)
        self._settle()

    def expire(self, now: int) -> None:
        sender = self.sender
        self.seen["expired"] += sender.retransmit_at is not None and now >= sender.retransmit_at
        self.seen["go back"] += sender.max - sender.una > 3 * sender.smss
        self.seen["probed"] += sender.persist_at is not None and now >= sender.persist_at
        timers.expire(self.record, now)
        self._settle()

    # The peer's data.

    def receive(self, now: int, kind: str) -> dict[str, int]:
        """A segment of it is stored: in order, out of order, or FIN; the note that says so."""
        receiver = self.receiver
        due = Due.NOW
        octets = bytes(self.mss)
        if kind == "fin":
            if receiver.take(now, receiver.next, b"", True):
                closing.fin_arrived(self.record, now)
        elif kind == "ahead":
            receiver.take(now, receiver.next + self.mss, octets, False)
            self.gap = 1
        else:
            due = Due.NOW if self.gap else Due.LATER
            receiver.take(now, receiver.next, octets, False)
            self.gap = 0
        # What its ACK allows to send is another event.
        if receiver.ack_now:
            self.record.send_ack(now)
        if kind == "fin":
            self._settle()
        return self._note(due)

    def read(self, now: int, octets: int) -> dict[str, int] | None:
        """The ring may forget octets; the note, if the edge moved."""
        self.receiver.read(octets)
        if self.record.state in RECEIVING and self.receiver.update_due:
            self.record.send_ack(now)
        before = self.edge
        note = self._note(Due.NONE)
        return note if self.edge != before else None

    def _note(self, due: Due) -> dict[str, int]:
        receiver = self.receiver
        known = self.edge, receiver.next, self.buffer - len(receiver.unread)
        if not receiver.fin_taken:
            self.edge = receiver_edge(*known, self.buffer, self.mss, self.shift)
        return {
            "number": receiver.next_sequence,
            "edge": (receiver.initial + 1 + self.edge) % SPACE,
            "due": due.value,
            "fin": int(receiver.fin_taken),
        }


def expected_job(segment: Segment) -> dict[str, int]:
    """What is known of a segment that leaves."""
    return {
        "sequence": segment.sequence,
        "octets": len(segment.payload),
        "flags": int(segment.flags),
        "blocks": int(not segment.payload and segment.flags == Flags.ACK),
    }
