"""What a connection receives: the stream, the window that it announces, when an ACK is due."""

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.reassembly import Reassembly
from stagecoach.sim.model.tcp.state import Settings
from stagecoach.sim.model.tcp.window import (
    WINDOW_FIELD_MAX,
    field_for,
    receiver_edge,
    shift_for,
)


class Receiver:
    """Positions are bytes since the first byte of data; the peer's SYN stands at -1.

    ``ack_now`` says that an ACK is due with this segment, ``ack_at`` when one is due at the
    latest. Both end as soon as any ACK is sent.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # IRS.
        self.initial = 0
        self.shift = shift_for(settings.receive_buffer) if settings.window_scaling else 0
        self.sack = settings.sack
        self.unread = bytearray()
        self.fin_taken = False
        self.ack_now = False
        self.ack_at: int | None = None
        self._data = Reassembly(settings.ranges)
        self._fin_at: int | None = None
        # The right edge that was announced.
        self._edge = min(settings.receive_buffer, WINDOW_FIELD_MAX)
        self._segments = 0

    def adopt(self, shift: int, window: int, sack: bool) -> None:
        """What was agreed on, and announced, in a handshake made elsewhere."""
        self.shift, self._edge, self.sack = shift, window, sack and self.sack

    @property
    def next(self) -> int:
        """Position of RCV.NXT; the peer's FIN counts."""
        return self._data.next + self.fin_taken

    @property
    def next_sequence(self) -> int:
        """RCV.NXT."""
        return sequence.add(self.initial + 1, self.next)

    @property
    def window(self) -> int:
        """RCV.WND: what may come from RCV.NXT on."""
        return max(self._edge - self.next, 0)

    @property
    def gap(self) -> bool:
        """Whether data after a gap is held."""
        return self._data.gap

    def position(self, number: int) -> int:
        """Position of a sequence number of the peer."""
        return self.next + sequence.distance(number, self.next_sequence)

    def take(self, now: int, position: int, octets: bytes, fin: bool) -> bool:
        """Take data and FIN, cut at the right edge; whether the FIN is in order now."""
        room = max(self._edge - position, 0)
        if fin and len(octets) < room and self._fin_at is None:
            self._fin_at = position + len(octets)
        if self._fin_at is not None:
            room = min(room, max(self._fin_at - position, 0))
        if octets:
            gap = self.gap
            self.unread += self._data.take(position, octets[:room])
            self._segments += 1
            # RFC 5681, 4.2: at once for data past a gap, or that fills one, or each second time.
            if gap or self.gap or self._segments >= 2:
                self.ack_now = True
            else:
                self.ack_at = now + self._settings.delayed_ack
        if fin:
            self.ack_now = True
        if self._fin_at == self._data.next and not self.fin_taken:
            self.fin_taken = self.ack_now = True
            return True
        return False

    def read(self, maximum: int | None) -> bytes:
        """Take bytes that are in order out of the buffer."""
        taken = bytes(self.unread[:maximum])
        del self.unread[: len(taken)]
        return taken

    @property
    def update_due(self) -> bool:
        """Whether the window grew so much that the peer has to know (RFC 9293, 3.8.6.2.2)."""
        # Without scaling the field may hold less than the buffer does.
        room = min(self._room, WINDOW_FIELD_MAX << self.shift)
        segments = 2 if self.window else 1
        least = min(self._settings.receive_buffer // 2, segments * self._settings.mss)
        return self.next + room - self._edge >= least

    def announce(self, syn: bool) -> int:
        """The window field of a segment with ACK that is about to be sent.

        The right edge moves if it may; no ACK is due any more. The field of a SYN is not scaled.
        """
        if not syn:
            limits = self._settings.receive_buffer, self._settings.mss
            self._edge = receiver_edge(self._edge, self.next, self._room, *limits, self.shift)
        self.ack_now, self.ack_at, self._segments = False, None, 0
        return field_for(self.next + self.window, self.next, 0 if syn else self.shift)

    def blocks(self) -> tuple[tuple[int, int], ...]:
        """SACK blocks of what is held after a gap, if the peer permitted them."""
        if not self.sack:
            return ()
        first = self.initial + 1
        return tuple(
            (sequence.add(first, left), sequence.add(first, right))
            for left, right in self._data.blocks()
        )

    @property
    def _room(self) -> int:
        return self._settings.receive_buffer - len(self.unread)
