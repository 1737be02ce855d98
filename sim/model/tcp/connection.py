"""A TCP connection (RFC 9293, 3.10): calls, segments and time go in, segments come out.

Time is an argument, integer microseconds. The parts: `record` is the state of one connection,
`handshake` and `closing` are its two ends, `arrival` takes segments, `sender` and `receiver` have
the two streams, `timers` the timeouts, `icmp_arrival` the errors of the network.
"""

from ipaddress import IPv4Address

from stagecoach.sim.model.tcp import arrival, closing, handshake, icmp_arrival, sequence, timers
from stagecoach.sim.model.tcp.adoption import Adoption, adopt
from stagecoach.sim.model.tcp.icmp import IcmpError
from stagecoach.sim.model.tcp.ipv4 import TTL, is_host
from stagecoach.sim.model.tcp.isn import initial_sequence
from stagecoach.sim.model.tcp.record import (
    OPENING,
    RECEIVING,
    SENDING,
    Endpoint,
    Record,
    reset_for,
)
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.state import Cause, Report, Settings, State, StateError


class Connection:
    """One connection of ``local``; ``key`` is the secret of its initial sequence number.

    Segments to be sent wait in ``output`` until the caller takes them, soft errors in
    ``reports``. Segments that arrive have to be those of this pair of endpoints. ``timer`` has to
    be called at ``next_deadline``.
    """

    def __init__(self, local: Endpoint, key: bytes, settings: Settings | None = None) -> None:
        self.local = local
        self.settings = settings or Settings()
        self.output: list[Segment] = []
        self.reports: list[Report] = []
        # What IP is to be given (RFC 9293, 3.9.1.9 and 3.9.2); may be changed at any time.
        self.dscp = 0
        self.ttl = TTL
        self._key = key
        self._record = self._new_record(None)

    def _new_record(self, remote: Endpoint | None) -> Record:
        return Record(self.local, remote, self.settings, self.output, self.reports)

    @classmethod
    def adopted(
        cls, now: int, local: Endpoint, adoption: Adoption, settings: Settings | None = None
    ) -> "Connection":
        """A connection in ESTABLISHED, whose handshake was made elsewhere."""
        connection = cls(local, b"", settings)
        connection._record = record = connection._new_record(adoption.remote)
        adopt(record, now, adoption)
        return connection

    @property
    def record(self) -> Record:
        """All of its state, to be looked at."""
        return self._record

    @property
    def state(self) -> State:
        """RFC 9293, 3.3.2."""
        return self._record.state

    @property
    def cause(self) -> Cause | None:
        """Why the connection is CLOSED; None if it was not open."""
        return self._record.cause

    @property
    def remote(self) -> Endpoint | None:
        """The other end, None until it is known."""
        return self._record.remote

    @property
    def finished(self) -> bool:
        """Whether the peer's FIN was received and each byte before it was taken."""
        return self._record.receiver.fin_taken and not self._record.receiver.unread

    @property
    def unread(self) -> int:
        """How many bytes ``receive`` would give now (STATUS; RFC 9293, 3.9.1.5)."""
        return len(self._record.receiver.unread)

    @property
    def suspect(self) -> bool:
        """Whether R1 retransmissions went unanswered: the route may be bad (MUST-20)."""
        record = self._record
        retries = record.sender.retries if record.sender.una >= 0 else record.syn_losses
        return retries >= self.settings.r1

    @property
    def emss(self) -> int:
        """Bytes of data in the longest segment now: EMSS of RFC 5044."""
        return self._record.sender.smss

    @property
    def queued(self) -> int:
        """Bytes that SEND took and the peer has not acknowledged."""
        return self._record.sender.queued

    @property
    def urgent_segments(self) -> int:
        """How many segments with URG arrived; their data is in the stream."""
        return self._record.urgent_segments

    # Calls of the user (RFC 9293, 3.10.1 to 3.10.6).

    def open(self, now: int, remote: Endpoint) -> None:
        """Active OPEN. Raises ``ValueError`` for a remote address that is no single host."""
        self._expect(State.CLOSED, State.LISTEN)
        if not is_host(remote[0]):
            raise ValueError(f"remote address {remote[0]} (expected that of a single host)")
        self._record = self._new_record(remote)
        self._begin(now)
        self._record.state = State.SYN_SENT
        handshake.send_syn(self._record, now)

    def listen(self) -> None:
        """Passive OPEN, of any remote endpoint."""
        self._expect(State.CLOSED)
        self._record = self._new_record(None)
        self._record.state, self._record.passive = State.LISTEN, True

    def send(self, now: int, octets: bytes, *, whole: bool = False) -> None:
        """Queue bytes; they are pushed at once, as far as the windows (and Nagle) allow.

        With ``whole`` they begin a segment, and end in it if it is long enough, also when they are
        sent again; more that are whole may follow them there (RFC 5044, 5 and A.1).
        """
        self._expect(*OPENING, *SENDING)
        if self._record.sender.closing:
            raise StateError("send after close")
        self._record.sender.queue(octets, whole=whole)
        self._record.sender.push(now)

    def receive(self, now: int, maximum: int | None = None) -> bytes:
        """Take up to ``maximum`` of the bytes received in order; may announce a larger window."""
        record = self._record
        if record.discarding:
            raise StateError("receive after a close that discards")
        taken = record.receiver.read(maximum)
        if self.state in RECEIVING and record.receiver.update_due:
            record.send_ack(now)
        return taken

    def close(self, now: int, *, discard: bool = False) -> None:
        """No more to send: FIN follows what is queued.

        With ``discard`` nothing more is received either (MAY-1): bytes that were not taken, or
        that come later, end the connection by a reset.
        """
        self._expect(State.LISTEN, *OPENING, *SENDING)
        record = self._record
        if self.state in (State.LISTEN, State.SYN_SENT):
            record.end(Cause.CLOSED)
            return
        if record.sender.closing:
            raise StateError("close after close")
        record.discarding = discard
        if discard and record.receiver.unread:
            closing.lose_data(record, now)
        else:
            closing.close(record, now)

    def abort(self, now: int) -> None:
        """End at once, by a reset if the peer has a connection."""
        if self.state is State.CLOSED:
            raise StateError("abort in CLOSED")
        if self.state in (State.SYN_RECEIVED, *RECEIVING, State.CLOSE_WAIT):
            self._record.send_reset(now)
        self._record.end(Cause.ABORTED)

    def resize(self, now: int, smss: int) -> None:
        """The path takes segments of another size, as path MTU discovery found out."""
        self._record.sender.resize(now, smss)

    # Time.

    def next_deadline(self) -> int | None:
        """When ``timer`` has to be called, None if never."""
        return timers.next_deadline(self._record)

    def timer(self, now: int) -> None:
        """Do what is due."""
        timers.expire(self._record, now)

    # The network.

    def segment_arrives(self, now: int, segment: Segment, source: IPv4Address) -> None:
        """Take a segment of ``source`` that passed the checks of the codec."""
        record = self._record
        if self.state is State.CLOSED:
            record.refuse(segment)
        elif self.state is State.LISTEN:
            self._arrives_in_listen(now, segment, source)
        elif self.state is State.SYN_SENT:
            arrival.arrives_in_syn_sent(record, now, segment)
        elif closing.may_reopen(record, segment):
            self._reopen(now, segment)
        else:
            arrival.arrives(record, now, segment)
            self._restore()

    def icmp_arrives(self, now: int, error: IcmpError) -> None:
        """Take an ICMP error about a segment of this pair of endpoints."""
        icmp_arrival.icmp_arrives(self._record, now, error)
        self._restore()

    def _arrives_in_listen(self, now: int, segment: Segment, source: IPv4Address) -> None:
        if Flags.RST in segment.flags:
            return
        if Flags.ACK in segment.flags:
            self._record.refuse(segment)
        elif Flags.SYN in segment.flags and Flags.FIN not in segment.flags:
            self._accept(now, segment, (source, segment.source_port))

    def _accept(self, now: int, segment: Segment, remote: Endpoint) -> None:
        self._record = record = self._new_record(remote)
        record.passive = True
        self._begin(now)
        handshake.take_syn(record, now, segment)
        record.state = State.SYN_RECEIVED
        handshake.send_syn(record, now)

    def _reopen(self, now: int, segment: Segment) -> None:
        """A new SYN in TIME-WAIT; ISS comes after all that was used before."""
        previous = self._record
        assert previous.remote
        self._record = record = self._new_record(previous.remote)
        record.passive, record.previous = True, previous
        self._begin(now)
        least = previous.sender.number(previous.sender.max)
        record.sender.initial = sequence.latest(record.sender.initial, least)
        handshake.take_syn(record, now, segment)
        record.state = State.SYN_RECEIVED
        handshake.send_syn(record, now)

    def _restore(self) -> None:
        """If the handshake of a passive OPEN failed, what was before it is there again."""
        if self.state is not State.LISTEN or self.remote is None:
            return
        previous = self._record.previous
        self._record = previous or self._new_record(None)
        if not previous:
            self._record.state, self._record.passive = State.LISTEN, True

    def _begin(self, now: int) -> None:
        assert self._record.remote
        initial = initial_sequence(self._key, self.local, self._record.remote, now)
        handshake.begin(self._record, now, initial)

    def _expect(self, *states: State) -> None:
        if self.state not in states:
            allowed = ", ".join(state.name for state in states)
            raise StateError(f"not in {self.state.name} (allowed in {allowed})")


__all__ = ["Connection", "Endpoint", "reset_for"]
