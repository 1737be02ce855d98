"""What a connection sends: queue, windows, acknowledgments, loss recovery (RFC 9293, 3.8)."""

from bisect import bisect_right
from collections.abc import Callable

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.congestion import Congestion
from stagecoach.sim.model.tcp.loss_probe import LossProbe
from stagecoach.sim.model.tcp.path_mtu import MSS_DEFAULT
from stagecoach.sim.model.tcp.rto import AFTER_LOST_SYN_US, RetransmissionTimeout
from stagecoach.sim.model.tcp.segment import NO_FLAGS, Flags, Segment
from stagecoach.sim.model.tcp.state import Settings

# The position before all data: RFC 6582 begins with the SYN itself, which would keep the first
# segment of a connection from being retransmitted fast.
_NOTHING_TO_RECOVER = -2

Emit = Callable[[int, int, Flags, bytes], None]
"""Puts out a segment: time, position, flags, data."""


class Sender:
    """Positions are bytes since the first byte of data: SYN at -1, FIN after the last byte."""

    def __init__(self, settings: Settings, emit: Emit) -> None:
        self._settings = settings
        self._emit = emit
        # ISS.
        self.initial = 0
        self.una = self.next = self.max = -1
        # SND.WL1, the number of the segment that the window is from. SND.WL2 is not needed: it is
        # never past SND.UNA, and older ACKs change no window.
        self._wl1 = 0
        self.window = self._max_window = self.shift = 0
        self.smss = MSS_DEFAULT
        self.closing = False
        self.retries = 0
        self.rto = RetransmissionTimeout(minimum=settings.rto_minimum, maximum=settings.rto_maximum)
        self.congestion = self._new_congestion()
        self.retransmit_at: int | None = None
        self.persist_at: int | None = None
        self.loss_probe = LossProbe()
        self._queue = bytearray()
        # Positions where bytes that belong together begin or end, of those not acknowledged.
        self._bounds: list[int] = []
        # Position of the first byte of the queue; of a probe's byte, once it was sent.
        self._base = 0
        self._probe = -1
        # Time of the last progress, of the last segment with data; a measurement.
        self._since = 0
        self._sent_at = 0
        self._timed: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        """Position after the last byte queued, which FIN will have."""
        return self._base + len(self._queue)

    @property
    def queued(self) -> int:
        """Bytes that are not acknowledged, whether they were sent or not."""
        return len(self._queue)

    @property
    def highest(self) -> int:
        """Position up to which the peer may acknowledge."""
        return max(self.max, self._probe)

    @property
    def outstanding(self) -> bool:
        """Whether anything waits for its acknowledgment."""
        return self.una < self.max

    @property
    def fin_acknowledged(self) -> bool:
        """Whether our FIN was acknowledged."""
        return self.closing and self.una == self.end + 1

    def number(self, position: int) -> int:
        """The sequence number of a position."""
        return sequence.add(self.initial, position + 1)

    def position(self, number: int) -> int:
        """The position of a sequence number of ours."""
        return self.una + sequence.distance(number, self.number(self.una))

    def is_stale(self, ack: int) -> bool:
        """Whether an ACK field is too old or too new to come from the peer (RFC 5961, 5.2)."""
        return ack > self.highest or ack < self.una - self._max_window

    # The beginning.

    def set_window(self, segment: Segment, shift: int) -> None:
        """Take the window of a segment as it is."""
        self.window = segment.window << shift
        self._max_window = max(self._max_window, self.window)
        self._wl1 = segment.sequence

    def adopt_window(self, window: int, number: int, shift: int) -> None:
        """The window that a handshake made elsewhere ended with, from the segment ``number``."""
        self.window = self._max_window = window
        self._wl1, self.shift = number, shift

    def establish(self, now: int, measured: int | None, syn_losses: int) -> None:
        """Our SYN was acknowledged, after a round trip of ``measured`` if that is known."""
        self.una = 0
        self._sent_at = self._since = now
        if measured is not None:
            self.rto.sample(measured)
            self.loss_probe.measured = True
        lost = syn_losses > self._settings.forgiven_syns
        # RFC 5681, 3.1 and RFC 6928, 2.
        self.congestion = self._new_congestion(self.smss if lost else 0)
        if syn_losses:
            # RFC 6298, 5.7.
            self.rto.initial = max(AFTER_LOST_SYN_US, self.rto.initial)
            self.rto.backoff = 0

    def _new_congestion(self, cwnd: int = 0) -> Congestion:
        large = self._settings.large_initial_window
        return Congestion(self.smss, cwnd, recover=_NOTHING_TO_RECOVER, large=large)

    # Acknowledgments.

    def permit_sack(self, permitted: bool) -> None:
        """Whether both ends permit SACK: a probe of the tail needs it (RFC 8985, 3)."""
        self.loss_probe.permitted = permitted and self._settings.loss_probe

    def take_ack(self, now: int, segment: Segment, ack: int) -> None:
        """The ACK field, at position ``ack``, and the window of a segment."""
        una, flight, probe = self.una, self.max - self.una, self.loss_probe
        repeats = ack == una and self._is_duplicate(segment)
        if ack > una:
            self._acknowledged(now, ack)
        elif repeats and una < self.max:
            # RFC 8985, 7.4.1: what the probe overtook is lost. Without RACK the ACK that says so
            # is a third duplicate.
            told = probe.again and probe.end is not None and una < probe.end
            if self.congestion.duplicate(una, self.next, self.max, told=told).retransmit:
                self._resend(now)
        blocks = tuple(
            (self.position(first), self.position(end)) for first, end in segment.options.sack
        )
        if probe.repaired(ack, duplicate=repeats, blocks=blocks):
            self.congestion.repaired(flight)
        if ack > una:
            self._schedule_probe(now)
        if ack >= self.una:
            self._update_window(now, segment)

    def _is_duplicate(self, segment: Segment) -> bool:
        """RFC 5681, 2; that data is outstanding and the ACK field is SND.UNA is known."""
        plain = not segment.payload and not segment.flags & (Flags.SYN | Flags.FIN)
        return plain and segment.window << self.shift == self.window

    def _acknowledged(self, now: int, ack: int) -> None:
        """New data was acknowledged."""
        self.max = max(self.max, ack)
        verdict = self.congestion.acknowledged(self.una, ack, self.max)
        if self._timed and ack >= self._timed[0]:
            self.rto.sample(now - self._timed[1])
            self._timed = None
            self.loss_probe.measured = True
        data = min(ack, self.end)
        del self._queue[: data - self._base]
        self._base = data
        del self._bounds[: bisect_right(self._bounds, ack)]
        self.una = ack
        self.next = max(self.next, ack)
        self._since, self.retries, self._probe = now, 0, -1
        if not self.outstanding:
            self.retransmit_at = self.loss_probe.at = None
        elif verdict.restart_timer:
            self.retransmit_at = now + self.rto.microseconds
        if verdict.retransmit:
            self._resend(now)

    def _update_window(self, now: int, segment: Segment) -> None:
        """Only a segment that is not older than the last update changes SND.WND."""
        if sequence.before(segment.sequence, self._wl1):
            return
        self.set_window(segment, self.shift)
        if self.persist_at is not None and self.window:
            # What backed off were probes that were answered, not retransmissions.
            self.rto.backoff = 0
        self.persist_at = None
        if not self.window:
            # A peer that answers may keep its window at zero (MUST-37, SHLD-17).
            self._since = now

    # Sending.

    def queue(self, octets: bytes, *, whole: bool = False) -> None:
        """Add bytes to the end of the stream; those that are whole begin a segment."""
        if whole and self.end > self.una and self.end not in self._bounds[-1:]:
            self._bounds.append(self.end)
        self._queue += octets
        if whole:
            self._bounds.append(self.end)

    def _full(self, position: int) -> int:
        """Bytes of the longest segment that begins at a position: SMSS, or up to a bound."""
        index = bisect_right(self._bounds, position + self.smss) - 1
        if index >= 0 and self._bounds[index] > position:
            return self._bounds[index] - position
        return self.smss

    def push(self, now: int) -> None:
        """Send what the windows allow."""
        if self.una < 0:
            return
        if not self.outstanding and now - self._sent_at > self.rto.microseconds:
            self.congestion.idle()
        while self.next <= self.end:
            usable = self.una + min(self.congestion.limit, self.window) - self.next
            waiting = self.end - self.next
            full = self._full(self.next)
            count = min(waiting, full, usable)
            # cwnd counts data, which FIN is none of (RFC 5681, 2); the peer's window counts both.
            fin = self.closing and waiting == count < self.una + self.window - self.next
            if (count <= 0 and not fin) or (not fin and self._holds_back(count, full, waiting)):
                break
            self._transmit(now, self.next, count, fin)
            self.next += count + fin
        if self.next < self.end + self.closing and not self.outstanding:
            if self.persist_at is None:
                self.persist_at, self._since = now + self.rto.microseconds, now

    def _holds_back(self, count: int, full: int, waiting: int) -> bool:
        """RFC 9293, 3.8.6.2.1: neither full, nor all, nor half of the largest window."""
        if count == full:
            return False
        if self._settings.nagle and self.outstanding:
            return True
        return count < waiting and 2 * count < self._max_window

    def _transmit(self, now: int, position: int, count: int, fin: bool) -> None:
        """Send data at ``position``; old data stops the measurement (Karn)."""
        end, new = position + count + fin, position >= self.highest
        if not new:
            self._timed = None
        else:
            self.congestion.sent_new(count)
            if self._timed is None:
                self._timed = end, now
        if not self.outstanding:
            self._since, self.retries = now, 0
        self.max = max(self.max, end)
        self.persist_at = None
        if self.retransmit_at is None:
            self.retransmit_at = now + self.rto.microseconds
        self._emit_data(now, position, count, fin)
        if new:
            self._schedule_probe(now)

    def _emit_data(self, now: int, position: int, count: int, fin: bool) -> None:
        start = position - self._base
        payload = bytes(self._queue[start : start + count])
        last = position + count == self.end
        flags = Flags.ACK | (Flags.PSH if count and last else NO_FLAGS)
        self._emit(now, position, flags | (Flags.FIN if fin else NO_FLAGS), payload)
        self._sent_at = now

    # The tail (RFC 8985, 7).

    def _schedule_probe(self, now: int) -> None:
        """Restart the timer of the probe (7.2), if one may be sent."""
        probe = self.loss_probe
        if not probe.ready or not self.outstanding or self.rto.srtt8 is None:
            return
        if self.congestion.duplicates:
            return  # something after a gap was taken
        at = now + (self.rto.srtt8 >> 2)
        if self._is_one_segment():
            at += self._settings.delayed_ack
        probe.at = min(at, self._expiry())

    def _is_one_segment(self) -> bool:
        """Whether no more is outstanding, so that its ACK may be delayed."""
        return self.max - self.una <= self.smss

    def _expiry(self) -> int:
        """When the retransmission timer would expire."""
        assert self.retransmit_at is not None
        return self.retransmit_at

    def probe_tail(self, now: int) -> None:
        """The timer of the probe (7.3): what was not sent, or the last segment again."""
        probe = self.loss_probe
        probe.at = None
        if probe.ready:
            following = self._tail_is_new(now)
            again = following is None
            if following is None:
                position = self._last_segment()
                fin = self.closing and self.max == self.end + 1
                self._transmit(now, position, self.max - position - fin, fin)
            else:
                self.next = following
            probe.sent(self.max, again=again)
        self.retransmit_at = now + self.rto.microseconds

    def _tail_is_new(self, now: int) -> int | None:
        """Send what follows, as far as the peer's window goes, and measure it; where it ends."""
        room = self.una + self.window - self.next
        count = min(self._full(self.next), self.end - self.next, room)
        if count <= 0 or self.next != self.max:
            return None
        self._timed = None
        self._transmit(now, self.next, count, False)
        return self.next + count

    def _last_segment(self) -> int:
        """Where the segment before SND.MAX begins."""
        position = self.una
        while position + self._full(position) < min(self.max, self.end):
            position += self._full(position)
        return position

    # Loss.

    def _resend(self, now: int) -> int:
        """The first segment that is not acknowledged, whatever the windows are; its end."""
        self.loss_probe.lost()
        count = min(self._full(self.una), self.end - self.una, self.max - self.una)
        fin = self.closing and self.una + count == self.end < self.max
        self._transmit(now, self.una, count, fin)
        return self.una + count + fin

    def is_given_up(self, now: int) -> bool:
        """Whether R2 passed without an acknowledgment, or answer to probes (MUST-20)."""
        return now - self._since >= self._settings.r2

    def expire(self, now: int) -> None:
        """The retransmission timer (RFC 6298, 5.4 to 5.6)."""
        self.rto.expire()
        self.retries += 1
        self.retransmit_at = now + self.rto.microseconds
        self.loss_probe.at = None
        self.congestion.expire(self.una, self.max)
        self.next = self._resend(now)

    def probe(self, now: int) -> None:
        """The persist timer: what fits, or one byte, or FIN, past a zero window (MUST-36)."""
        count = min(self.end - self.next, self.smss, self.window)
        if count > 0:
            self._transmit(now, self.next, count, False)
            self.next += count
            return
        self.rto.expire()
        fin = self.next == self.end
        self._probe = self.next + 1
        self._emit_data(now, self.next, 0 if fin else 1, fin)
        self.persist_at = now + self.rto.microseconds

    def resize(self, now: int, smss: int) -> None:
        """Another segment size. If it is smaller, what is outstanding is sent anew: that is no
        sign of congestion (RFC 1191, 6.4), but cwnd keeps its segments (RFC 5681, 3.1).
        """
        smaller = smss < self.smss
        self.congestion.resize(smss, self.max)
        self.smss = smss
        if smaller and self.outstanding and self.una >= 0:
            self.next = self._resend(now)
            self.push(now)

    def stop(self) -> None:
        """No timer runs any more."""
        self.retransmit_at = self.persist_at = self.loss_probe.at = None
