"""A TCP connection (RFC 9293, 3.10): calls, segments and time go in, segments come out.

Positions are bytes since the first byte of data, in Python's integers, so that they do not wrap:
SYN stands at -1, FIN after the last byte. Time is an argument, integer microseconds.
"""

from ipaddress import IPv4Address

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.challenge import ChallengeLimit
from stagecoach.sim.model.tcp.congestion import Congestion
from stagecoach.sim.model.tcp.isn import initial_sequence
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.reassembly import Reassembly
from stagecoach.sim.model.tcp.rto import AFTER_LOST_SYN_US, RetransmissionTimeout
from stagecoach.sim.model.tcp.segment import NO_FLAGS, Flags, Segment
from stagecoach.sim.model.tcp.state import Cause, Settings, State, StateError
from stagecoach.sim.model.tcp.window import (
    WINDOW_FIELD_MAX,
    field_for,
    receiver_edge,
    shift_for,
)

Endpoint = tuple[IPv4Address, int]
# RFC 9293, MUST-15.
MSS_DEFAULT = 536
# The position before all data: RFC 6582 begins with the SYN itself, which would keep the first
# segment of a connection from being retransmitted fast.
_NOTHING_TO_RECOVER = -2
_OPENING = (State.SYN_SENT, State.SYN_RECEIVED)
_SENDING = (State.ESTABLISHED, State.CLOSE_WAIT)
_RECEIVING = (State.ESTABLISHED, State.FIN_WAIT_1, State.FIN_WAIT_2)


def reset_for(segment: Segment) -> Segment | None:
    """What a host answers to a segment that belongs to no connection (RFC 9293, 3.10.7.1)."""
    ports = segment.destination_port, segment.source_port
    if Flags.RST in segment.flags:
        return None
    if Flags.ACK in segment.flags:
        return Segment(*ports, segment.acknowledgment, flags=Flags.RST)
    acknowledgment = sequence.add(segment.sequence, segment.length)
    return Segment(*ports, 0, acknowledgment, Flags.RST | Flags.ACK)


class Connection:
    """One connection of ``local``; ``key`` is the secret of its initial sequence number.

    Segments to be sent wait in ``output`` until the caller takes them. Segments that arrive
    have to be those of this pair of endpoints. ``timer`` has to be called at ``next_deadline``.
    """

    # The record of the connection; positions unless the name says otherwise.
    _iss: int
    _irs: int
    _wl1: int
    _wl2: int
    _una: int
    _next: int
    _max: int
    _probe: int
    _base: int
    _edge: int
    _fin_at: int | None
    _window: int
    _max_window: int
    _smss: int
    _snd_shift: int
    _rcv_shift: int
    _scaling: bool
    _sack: bool
    _closing: bool
    _fin_taken: bool
    _ack_now: bool
    _syn_lost: bool
    _queue: bytearray
    _unread: bytearray
    _data: Reassembly
    _rto: RetransmissionTimeout
    _congestion: Congestion
    _challenges: ChallengeLimit
    _segments: int
    _retries: int
    _probes: int
    # Times: of the last progress, the last segment sent, the last one heard; a measurement.
    _since: int
    _sent_at: int
    _heard: int
    _timed: tuple[int, int] | None
    # Deadlines.
    _rto_at: int | None
    _persist_at: int | None
    _ack_at: int | None
    _wait_at: int | None

    def __init__(self, local: Endpoint, key: bytes, settings: Settings | None = None) -> None:
        self.local = local
        self.remote: Endpoint | None = None
        self.settings = settings or Settings()
        self.state = State.CLOSED
        self.cause: Cause | None = None
        self.output: list[Segment] = []
        self._key = key
        self._passive = False
        self._reset_record()

    # Calls of the user (RFC 9293, 3.10.1 to 3.10.6).

    def open(self, now: int, remote: Endpoint) -> None:
        """Active OPEN."""
        self._expect(State.CLOSED, State.LISTEN)
        self._begin(now, remote)
        self._passive = False
        self.state = State.SYN_SENT
        self._send_syn(now)

    def listen(self) -> None:
        """Passive OPEN, of any remote endpoint."""
        self._expect(State.CLOSED)
        self._reset_record()
        self._passive = True
        self.state = State.LISTEN

    def send(self, now: int, octets: bytes) -> None:
        """Queue bytes; they are pushed at once, as far as the windows allow (no Nagle)."""
        self._expect(*_OPENING, *_SENDING)
        if self._closing:
            raise StateError("send after close")
        self._queue += octets
        self._push(now)

    def receive(self, now: int, maximum: int | None = None) -> bytes:
        """Take up to ``maximum`` of the bytes received in order; may announce a larger window."""
        taken = bytes(self._unread[:maximum])
        del self._unread[: len(taken)]
        if self.state in _RECEIVING:
            following = self._data.next
            room = self.settings.receive_buffer - len(self._unread)
            # Without scaling the field may hold less than the buffer does.
            grown = following + min(room, WINDOW_FIELD_MAX << self._rcv_shift) - self._edge
            least = 1 if self._edge == following else 2
            mss, half = self.settings.mss * least, self.settings.receive_buffer // 2
            if grown >= min(half, mss):
                self._send_ack(now)
        return taken

    @property
    def finished(self) -> bool:
        """Whether the peer's FIN was received and each byte before it was taken."""
        return self._fin_taken and not self._unread

    def close(self, now: int) -> None:
        """No more to send: FIN follows what is queued."""
        self._expect(State.LISTEN, *_OPENING, *_SENDING)
        if self.state in (State.LISTEN, State.SYN_SENT):
            self._end(Cause.CLOSED)
            return
        if self._closing:
            raise StateError("close after close")
        self._closing = True
        # RFC 9293, 3.10.4: in SYN-RECEIVED it waits until the connection is established.
        if self.state is not State.SYN_RECEIVED:
            self._enter_closing()
        self._push(now)

    def abort(self, now: int) -> None:
        """End at once, by a reset if the peer has a connection."""
        if self.state is State.CLOSED:
            raise StateError("abort in CLOSED")
        if self.state in (State.SYN_RECEIVED, *_RECEIVING, State.CLOSE_WAIT):
            self._emit(now, self._max, Flags.RST | Flags.ACK)
        self._end(Cause.ABORTED)

    # Time.

    def next_deadline(self) -> int | None:
        """When ``timer`` has to be called, None if never."""
        deadlines = (self._rto_at, self._persist_at, self._ack_at, self._wait_at, self._alive_at())
        return min((at for at in deadlines if at is not None), default=None)

    def timer(self, now: int) -> None:
        """Do what is due."""
        alive_at = self._alive_at()
        if self._wait_at is not None and now >= self._wait_at:
            self._end(Cause.CLOSED)
        if self._rto_at is not None and now >= self._rto_at:
            self._expire(now)
        if self._persist_at is not None and now >= self._persist_at:
            self._probe_window(now)
        if self._ack_at is not None and now >= self._ack_at:
            self._send_ack(now)
        if alive_at is not None and now >= alive_at:
            self._probe_peer(now)

    @property
    def suspect(self) -> bool:
        """Whether R1 retransmissions went unanswered: the route may be bad (MUST-20)."""
        return self._retries >= self.settings.r1

    # Segments (RFC 9293, 3.10.7).

    def segment_arrives(self, now: int, segment: Segment, source: IPv4Address) -> None:
        """Take a segment of ``source`` that passed the checks of the codec."""
        if self.state is State.CLOSED:
            answer = reset_for(segment)
            if answer:
                self.output.append(answer)
        elif self.state is State.LISTEN:
            self._arrives_in_listen(now, segment, source)
        elif self.state is State.SYN_SENT:
            self._arrives_in_syn_sent(now, segment)
        else:
            self._arrives(now, segment)

    def _arrives_in_listen(self, now: int, segment: Segment, source: IPv4Address) -> None:
        if Flags.RST in segment.flags:
            return
        if Flags.ACK in segment.flags:
            self._refuse(segment)
        elif Flags.SYN in segment.flags and Flags.FIN not in segment.flags:
            self._begin(now, (source, segment.source_port))
            self._take_syn(now, segment)
            self.state = State.SYN_RECEIVED
            self._send_syn(now)

    def _arrives_in_syn_sent(self, now: int, segment: Segment) -> None:
        acknowledged = Flags.ACK in segment.flags
        if acknowledged and self._sent_position(segment.acknowledgment) != 0:
            self._refuse(segment)
            return
        if Flags.RST in segment.flags:
            if acknowledged:
                self._end(Cause.REFUSED)
            return
        if Flags.SYN not in segment.flags:
            return
        self._take_syn(now, segment)
        if not acknowledged:
            self.state = State.SYN_RECEIVED
            self._rto_at = None
            self._send_syn(now)
            return
        self._established(now)
        self._ack_now = True
        self._take_data(now, 0, segment.payload, Flags.FIN in segment.flags)
        self._answer(now)

    def _arrives(self, now: int, segment: Segment) -> None:
        self._heard, self._probes = now, 0
        next_sequence = self._next_expected()
        window = max(self._edge - self._data.next - self._fin_taken, 0)
        flags, length = segment.flags, segment.length
        if not sequence.acceptable(segment.sequence, length, next_sequence, window):
            self._arrives_outside(now, segment, next_sequence, window)
            return
        if Flags.RST in flags:
            if segment.sequence != next_sequence:
                self._challenge(now)
            elif self.state is State.SYN_RECEIVED and self._passive:
                self._reset_record()
                self.state = State.LISTEN
            else:
                # In TIME-WAIT all was closed already (3.10.7.4).
                causes = {State.SYN_RECEIVED: Cause.REFUSED, State.TIME_WAIT: Cause.CLOSED}
                self._end(causes.get(self.state, Cause.RESET))
            return
        if Flags.SYN in flags:
            self._challenge(now)
            return
        if Flags.ACK not in flags or not self._take_ack(now, segment):
            return
        if self.state is State.TIME_WAIT:
            return
        position = self._data.next + sequence.distance(segment.sequence, next_sequence)
        self._take_data(now, position, segment.payload, Flags.FIN in flags)
        self._answer(now)

    def _arrives_outside(self, now: int, segment: Segment, expected: int, window: int) -> None:
        """A segment that is not acceptable is acknowledged, unless it is a reset."""
        flags = segment.flags
        if Flags.RST in flags:
            return
        repeated = segment.sequence == self._irs and Flags.SYN in flags
        if self.state is State.SYN_RECEIVED and repeated and Flags.ACK not in flags:
            # The SYN again: our SYN,ACK was lost.
            self._timed = None
            self._send_syn(now)
            return
        if self.state is State.TIME_WAIT and Flags.FIN in flags:
            self._wait_at = now + 2 * self.settings.msl
        if not window and segment.sequence == expected and Flags.ACK in flags:
            # RFC 9293, 3.10.7.4: at a zero window valid ACKs are taken.
            if Flags.SYN not in flags and not self._take_ack(now, segment):
                return
        if self.state is not State.CLOSED:
            self._send_ack(now)
            self._push(now)

    def _take_ack(self, now: int, segment: Segment) -> bool:
        """The ACK field, window and what follows from them; False if the segment is dropped."""
        ack = self._sent_position(segment.acknowledgment)
        sent = max(self._max, self._probe)
        if self.state is State.SYN_RECEIVED:
            if not self._una < ack <= sent:
                self._refuse(segment)
                return False
            self._set_window(segment, self._snd_shift)
            self._established(now)
            if self._closing:
                self._enter_closing()
        elif ack > sent or ack < self._una - self._max_window:
            self._challenge(now)
            return False
        elif ack > self._una:
            self._acknowledged(now, ack)
        elif ack == self._una < self._max and self._is_duplicate(segment):
            verdict = self._congestion.duplicate(self._una, self._next, self._max)
            if verdict.retransmit:
                self._resend(now)
        if ack >= self._una:
            self._update_window(now, segment, ack)
        if self._closing and self._una == self._end_position + 1:
            return self._fin_acknowledged(now)
        return True

    def _is_duplicate(self, segment: Segment) -> bool:
        """RFC 5681, 2; that data is outstanding and the ACK field is SND.UNA is known."""
        plain = not segment.payload and not segment.flags & (Flags.SYN | Flags.FIN)
        return plain and segment.window << self._snd_shift == self._window

    def _acknowledged(self, now: int, ack: int) -> None:
        """New data was acknowledged."""
        self._max = max(self._max, ack)
        verdict = self._congestion.acknowledged(self._una, ack, self._max)
        if self._timed and ack >= self._timed[0]:
            self._rto.sample(now - self._timed[1])
            self._timed = None
        data = min(ack, self._end_position)
        del self._queue[: data - self._base]
        self._base = data
        self._una = ack
        self._next = max(self._next, ack)
        self._since, self._retries, self._probe = now, 0, -1
        if self._una == self._max:
            self._rto_at = None
        elif verdict.restart_timer:
            self._rto_at = now + self._rto.microseconds
        if verdict.retransmit:
            self._resend(now)

    def _update_window(self, now: int, segment: Segment, ack: int) -> None:
        seen = sequence.distance(segment.sequence, self._wl1)
        if seen > 0 or (seen == 0 and self._wl2 <= ack):
            self._set_window(segment, self._snd_shift)
            self._wl1, self._wl2 = segment.sequence, ack
            if self._persist_at is not None and self._window:
                # What backed off were probes that were answered, not retransmissions.
                self._rto.backoff = 0
            self._persist_at = None
            if not self._window:
                # A peer that answers may keep its window at zero (MUST-36, SHLD-17).
                self._since = now

    def _fin_acknowledged(self, now: int) -> bool:
        if self.state is State.FIN_WAIT_1:
            self.state = State.FIN_WAIT_2
        elif self.state is State.CLOSING:
            self._enter_time_wait(now)
        elif self.state is State.LAST_ACK:
            self._end(Cause.CLOSED)
            return False
        return True

    def _take_data(self, now: int, position: int, octets: bytes, fin: bool) -> None:
        """Data and FIN, cut at the right edge of the window."""
        if self.state not in _RECEIVING:
            return
        room = max(self._edge - position, 0)
        if fin and len(octets) < room and self._fin_at is None:
            self._fin_at = position + len(octets)
        if self._fin_at is not None:
            room = min(room, max(self._fin_at - position, 0))
        if octets:
            gap = self._data.gap
            self._unread += self._data.take(position, octets[:room])
            self._segments += 1
            if gap or self._data.gap or self._segments >= 2:
                self._ack_now = True
            elif self._ack_at is None:
                self._ack_at = now + self.settings.delayed_ack
        if self._fin_at == self._data.next:
            self._fin_taken = self._ack_now = True
            if self.state is State.ESTABLISHED:
                self.state = State.CLOSE_WAIT
            elif self.state is State.FIN_WAIT_1:
                self.state = State.CLOSING
            else:
                self._enter_time_wait(now)
        elif fin:
            self._ack_now = True

    def _answer(self, now: int) -> None:
        """At most one ACK for a segment; SACK blocks go on one without data."""
        if self._ack_now and self._data.gap:
            self._send_ack(now)
        self._push(now)
        if self._ack_now:
            self._send_ack(now)

    # Sending.

    def _push(self, now: int) -> None:
        """Send what the windows allow."""
        if self.state in (*_OPENING, State.LISTEN, State.CLOSED) or self._una < 0:
            return
        outstanding = self._una < self._max
        if not outstanding and now - self._sent_at > self._rto.microseconds:
            self._congestion.idle()
        while True:
            usable = self._una + min(self._congestion.limit, self._window) - self._next
            waiting = self._end_position - self._next
            count = min(waiting, self._smss, usable)
            fin = self._closing and waiting == count and usable > count
            if self._next > self._end_position or (count <= 0 and not fin):
                break
            # RFC 9293, 3.8.6.2.1, without Nagle: full, or all, or half of the largest window.
            half = 2 * count >= self._max_window
            if count < min(waiting, self._smss) and not half:
                break
            self._transmit(now, self._next, count, fin)
            self._next += count + fin
        waits = self._next < self._end_position + self._closing
        if waits and self._una == self._max and self._persist_at is None:
            self._persist_at = now + self._rto.microseconds

    def _transmit(self, now: int, position: int, count: int, fin: bool) -> None:
        """Send data at ``position``; old data stops the measurement (Karn)."""
        end = position + count + fin
        if position < self._max:
            self._timed = None
        else:
            self._congestion.sent_new(count)
            if self._timed is None:
                self._timed = end, now
        if self._una == self._max:
            self._since, self._retries = now, 0
        self._max = max(self._max, end)
        self._persist_at = None
        if self._rto_at is None:
            self._rto_at = now + self._rto.microseconds
        self._emit_data(now, position, count, fin)

    def _emit_data(self, now: int, position: int, count: int, fin: bool) -> None:
        start = position - self._base
        payload = bytes(self._queue[start : start + count])
        last = position + count == self._end_position
        flags = Flags.ACK | (Flags.PSH if count and last else NO_FLAGS)
        self._emit(now, position, flags | (Flags.FIN if fin else NO_FLAGS), payload)

    def _resend(self, now: int) -> None:
        """The first segment that is not acknowledged, whatever the windows are."""
        count = min(self._smss, self._end_position - self._una, self._max - self._una)
        fin = self._closing and self._una + count == self._end_position < self._max
        self._transmit(now, self._una, count, fin)

    def _expire(self, now: int) -> None:
        """The retransmission timer (RFC 6298, 5.4 to 5.7)."""
        limit = self.settings.r2_syn if self.state in _OPENING else self.settings.r2
        if now - self._since >= limit:
            self._end(Cause.TIMED_OUT)
            return
        self._rto.expire()
        self._retries += 1
        self._timed = None
        self._rto_at = now + self._rto.microseconds
        if self.state in _OPENING:
            self._syn_lost = True
            self._send_syn(now)
            return
        self._congestion.expire(self._una, self._max)
        self._resend(now)
        count = min(self._smss, self._end_position - self._una, self._max - self._una)
        fin = self._closing and self._una + count == self._end_position < self._max
        self._next = self._una + count + fin

    def _probe_window(self, now: int) -> None:
        """The persist timer: what fits, or one byte, or FIN, past a zero window (MUST-36)."""
        count = min(self._end_position - self._next, self._smss, self._window)
        if count > 0:
            self._transmit(now, self._next, count, False)
            self._next += count
            return
        self._rto.expire()
        fin = self._next == self._end_position
        self._probe = self._next + 1
        self._emit_data(now, self._next, 0 if fin else 1, fin)
        self._persist_at = now + self._rto.microseconds

    def _alive_at(self) -> int | None:
        idle = self.settings.keep_alive
        if idle is None or self.state not in _SENDING or self._una < self._max:
            return None
        return self._heard + idle + self._probes * self.settings.keep_alive_interval

    def _probe_peer(self, now: int) -> None:
        """A keep-alive probe: the byte before SND.NXT, without data (RFC 9293, 3.8.4)."""
        if self._probes >= self.settings.keep_alive_probes:
            self._emit(now, self._max, Flags.RST | Flags.ACK)
            self._end(Cause.KEEP_ALIVE)
            return
        self._probes += 1
        self._emit(now, self._max - 1, Flags.ACK)

    def _send_syn(self, now: int) -> None:
        """SYN, or SYN,ACK once the peer's SYN is known; its window is not scaled."""
        answer = self.state is State.SYN_RECEIVED
        options = Options(
            mss=self.settings.mss,
            window_scale=self._rcv_shift if self._scaling else None,
            sack_permitted=self._sack,
        )
        if self._rto_at is None:
            self._rto_at = now + self._rto.microseconds
        self._emit(now, -1, Flags.SYN | (Flags.ACK if answer else NO_FLAGS), options=options)

    def _send_ack(self, now: int) -> None:
        """An ACK without data, with SACK blocks if data is held after a gap."""
        blocks: tuple[tuple[int, int], ...] = ()
        if self._sack:
            first = self._irs + 1
            blocks = tuple(
                (sequence.add(first, left), sequence.add(first, right))
                for left, right in self._data.blocks()
            )
        self._emit(now, self._max, Flags.ACK, options=Options(sack=blocks))

    def _emit(
        self,
        now: int,
        position: int,
        flags: Flags,
        payload: bytes = b"",
        options: Options | None = None,
    ) -> None:
        """Put a segment into the output; an ACK that was due goes with it."""
        assert self.remote
        acknowledgment = self._next_expected() if Flags.ACK in flags else 0
        following = self._data.next + self._fin_taken
        if Flags.ACK in flags and Flags.SYN not in flags:
            room = self.settings.receive_buffer - len(self._unread)
            limits = self.settings.receive_buffer, self.settings.mss
            self._edge = receiver_edge(self._edge, following, room, *limits, self._rcv_shift)
        shift = 0 if Flags.SYN in flags else self._rcv_shift
        window = field_for(max(self._edge, following), following, shift)
        ports = self.local[1], self.remote[1]
        numbers = sequence.add(self._iss, position + 1), acknowledgment
        segment = Segment(*ports, *numbers, flags, window, payload, options or Options())
        self.output.append(segment)
        self._ack_now, self._ack_at, self._segments = False, None, 0
        if segment.length:
            self._sent_at = now

    def _challenge(self, now: int) -> None:
        """RFC 5961: an ACK that lets a true peer prove itself."""
        if self._challenges.allow(now):
            self._send_ack(now)

    def _refuse(self, segment: Segment) -> None:
        answer = reset_for(segment)
        if answer:
            self.output.append(answer)

    # The record of a connection.

    def _reset_record(self) -> None:
        """All that a connection knows, as it is in CLOSED and LISTEN."""
        buffer = self.settings.receive_buffer
        self._iss = self._irs = self._wl1 = 0
        self._wl2 = 0
        self._una = self._next = self._max = self._probe = -1
        self._window = self._max_window = self._snd_shift = 0
        self._rcv_shift = shift_for(buffer) if self.settings.window_scaling else 0
        self._scaling, self._sack = self.settings.window_scaling, self.settings.sack
        self._smss = MSS_DEFAULT
        self._queue, self._unread = bytearray(), bytearray()
        self._base = 0
        self._closing = self._fin_taken = self._ack_now = self._syn_lost = False
        self._fin_at = None
        self._data = Reassembly(self.settings.ranges)
        self._edge = min(buffer, WINDOW_FIELD_MAX)
        self._segments = self._retries = self._probes = 0
        self._since = self._sent_at = self._heard = 0
        self._timed = None
        self._rto = RetransmissionTimeout(
            minimum=self.settings.rto_minimum, maximum=self.settings.rto_maximum
        )
        self._congestion = Congestion(self._smss, recover=_NOTHING_TO_RECOVER)
        self._challenges = ChallengeLimit()
        self._stop_timers()

    def _begin(self, now: int, remote: Endpoint) -> None:
        """A new record with its initial sequence number; SYN is about to be sent."""
        self._reset_record()
        self.remote, self.cause = remote, None
        self._iss = initial_sequence(self._key, self.local, remote, now)
        self._next = self._max = 0
        self._since = self._heard = now
        self._timed = 0, now

    def _take_syn(self, now: int, segment: Segment) -> None:
        """The peer's SYN: its sequence number, window and options."""
        options = segment.options
        self._irs = self._wl1 = segment.sequence
        self._heard = now
        self._scaling = self._scaling and options.window_scale is not None
        if self._scaling:
            self._snd_shift = options.window_scale or 0
        else:
            self._rcv_shift = 0
        self._sack = self._sack and options.sack_permitted
        mss = MSS_DEFAULT if options.mss is None else max(options.mss, 1)
        self._smss = min(mss, self.settings.mss)
        self._set_window(segment, 0)

    def _established(self, now: int) -> None:
        """Our SYN was acknowledged."""
        self.state = State.ESTABLISHED
        self._una = self._wl2 = 0
        self._rto_at = None
        self._since, self._retries = now, 0
        self._sent_at = now
        if self._timed:
            self._rto.sample(now - self._timed[1])
            self._timed = None
        cwnd = 0
        if self._syn_lost:
            # RFC 5681, 3.1 and RFC 6298, 5.7.
            cwnd = self._smss
            self._rto.initial = max(AFTER_LOST_SYN_US, self._rto.initial)
            self._rto.backoff = 0
        self._congestion = Congestion(self._smss, cwnd, recover=_NOTHING_TO_RECOVER)

    def _enter_closing(self) -> None:
        passive = self.state is State.CLOSE_WAIT
        self.state = State.LAST_ACK if passive else State.FIN_WAIT_1

    def _enter_time_wait(self, now: int) -> None:
        self.state = State.TIME_WAIT
        self._stop_timers()
        self._wait_at = now + 2 * self.settings.msl

    def _end(self, cause: Cause) -> None:
        """CLOSED; what was received can still be taken."""
        self.state, self.cause = State.CLOSED, cause
        self._stop_timers()

    def _stop_timers(self) -> None:
        self._rto_at = self._persist_at = self._ack_at = self._wait_at = None

    def _set_window(self, segment: Segment, shift: int) -> None:
        self._window = segment.window << shift
        self._max_window = max(self._max_window, self._window)

    @property
    def _end_position(self) -> int:
        """Position after the last byte queued."""
        return self._base + len(self._queue)

    def _next_expected(self) -> int:
        """RCV.NXT."""
        return sequence.add(self._irs + 1, self._data.next + self._fin_taken)

    def _sent_position(self, number: int) -> int:
        """Position of a sequence number of ours."""
        base = self._una
        return base + sequence.distance(number, sequence.add(self._iss + 1, base))

    def _expect(self, *states: State) -> None:
        if self.state not in states:
            allowed = ", ".join(state.name for state in states)
            raise StateError(f"not in {self.state.name} (allowed in {allowed})")
