"""One opening of a connection: SYN-SENT and SYN-RECEIVED (RFC 9293, 3.10.7.3 and 3.10.7.4).

It neither sends nor knows a table: it says what is to be done.
"""

import enum
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from stagecoach.host_driver.network import tcp_options
from stagecoach.host_driver.network.ip_fields import DEFAULT_FIELDS, IpFields
from stagecoach.host_driver.network.sequence import acceptable, advance, distance
from stagecoach.host_driver.network.settings import SECOND_US
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.network.tcp_options import SynOptions

INITIAL_RTO_US = SECOND_US
MAXIMUM_RTO_US = 60 * SECOND_US
"""RFC 6298, 2.1 and 2.5."""

DEFAULT_SEGMENT = 536
"""Without the option (RFC 9293, MUST-15)."""
LEAST_SEGMENT = 48
"""Less counts as this, as in Linux: tiny segments cost this end more than the peer
(CVE-2019-11479)."""

CHALLENGE_INTERVAL_US = SECOND_US // 2
"""Between two challenge ACKs of one connection, as in Linux."""

LARGEST_FIELD = 0xFFFF


class State(enum.Enum):
    """Before ESTABLISHED."""

    SYN_SENT = "SYN-SENT"
    SYN_RECEIVED = "SYN-RECEIVED"


class Action(enum.Enum):
    """What a segment asks for."""

    NOTHING = enum.auto()
    RESET = enum.auto()
    """Send <SEQ=SEG.ACK><CTL=RST>, and go on."""
    ACKNOWLEDGE = enum.auto()
    """Send <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>, and go on: a challenge (RFC 5961)."""
    ANSWER = enum.auto()
    """Send the SYN, or SYN and ACK, of the state now."""
    ESTABLISHED = enum.auto()
    """The handshake is over; the segment may have data."""
    REFUSED = enum.auto()
    """The peer sent RST."""


def window_shift(buffer: int) -> int:
    """The smallest shift with which the window field can hold so many octets (RFC 7323, 2.3)."""
    return min(tcp_options.MAXIMUM_SHIFT, max(0, buffer.bit_length() - 16))


@dataclass
class Handshake:
    """One handshake.

    Attributes
    ----------
    passive: it began with the peer's SYN (RFC 9293, MUST-11). iss: own initial sequence number.
    began_us: when the first SYN, or SYN and ACK, was sent. give_up_us: R2 (3.8.3).
    segment_size: MSS to announce. buffer: bytes that can be received. fields: of its packets.
    mac: of the peer or its gateway, as soon as it was seen.
    options: the peer's, `None` before its SYN.
    """

    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    iss: int
    passive: bool
    began_us: int
    give_up_us: int
    segment_size: int
    buffer: int
    fields: IpFields = DEFAULT_FIELDS
    mac: bytes | None = None
    state: State = State.SYN_SENT
    next_received: int = 0
    options: SynOptions | None = None
    window: int = 0
    update: tuple[int, int] = (0, 0)
    retransmissions: int = 0
    round_trip_us: int | None = None
    due_us: int = field(init=False)
    _challenged_us: int | None = None

    def __post_init__(self) -> None:
        self.due_us = min(self.began_us + INITIAL_RTO_US, self.give_up_us)

    @property
    def next_sent(self) -> int:
        """SND.NXT."""
        return advance(self.iss, 1)

    @property
    def announced(self) -> int:
        """Octets in the window field of a SYN, which is never scaled (RFC 7323, 2.2)."""
        return min(self.buffer, LARGEST_FIELD)

    @property
    def shifts(self) -> tuple[int, int]:
        """Of windows that are received and sent: both 0 unless both ends have the option."""
        if self.options is None or self.options.window_shift is None:
            return 0, 0
        return self.options.window_shift, window_shift(self.buffer)

    @property
    def send_segment(self) -> int:
        """Octets of data in a segment that the peer takes (RFC 9293, 3.7.1)."""
        told = self.options.maximum_segment_size if self.options else None
        return max(LEAST_SEGMENT, DEFAULT_SEGMENT if told is None else told)

    @property
    def sack_permitted(self) -> bool:
        """Whether both ends take selective acknowledgments."""
        return self.options is not None and self.options.sack_permitted

    def syn(self) -> Segment:
        """The SYN, with an ACK in SYN-RECEIVED; a passive one has the options of the peer's."""
        options = SynOptions(self.segment_size, window_shift(self.buffer), True)
        if self.passive and self.options is not None:
            scaled = self.options.window_shift is not None
            options = SynOptions(
                self.segment_size,
                options.window_shift if scaled else None,
                self.options.sack_permitted,
            )
        received = self.state is State.SYN_RECEIVED
        return Segment(
            *(self.local, self.remote, self.iss, self.next_received if received else 0),
            Flag.SYN | Flag.ACK if received else Flag.SYN,
            self.announced,
            options.encode(),
        )

    def acknowledgment(self) -> Segment:
        """<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>."""
        window = min(LARGEST_FIELD, self.buffer >> self.shifts[1])
        return Segment(
            *(self.local, self.remote, self.next_sent, self.next_received, Flag.ACK, window)
        )

    @property
    def receive_window(self) -> int:
        """Bytes that are announced when the handshake is over: an active end sends an ACK."""
        if self.passive:
            return self.announced
        return self.acknowledgment().window << self.shifts[1]

    def may_challenge(self, now_us: int) -> bool:
        """Whether it is not too soon for a challenge ACK of these endpoints (RFC 5961, 7)."""
        last, self._challenged_us = self._challenged_us, now_us
        if last is None or now_us - last >= CHALLENGE_INTERVAL_US:
            return True
        self._challenged_us = last
        return False

    def tick(self, now_us: int) -> bool:
        """Whether it is time to send the SYN again; not after `give_up_us`."""
        if now_us < self.due_us or now_us >= self.give_up_us:
            return False
        self.retransmissions += 1
        wait = min(MAXIMUM_RTO_US, INITIAL_RTO_US << self.retransmissions)
        self.due_us = min(now_us + wait, self.give_up_us)
        return True

    def receive(self, segment: Segment, now_us: int) -> Action:
        """Take a segment of these endpoints."""
        if self.state is State.SYN_SENT:
            return self._receive_syn_sent(segment, now_us)
        return self._receive_syn_received(segment, now_us)

    def take_syn(self, segment: Segment) -> None:
        """The peer's SYN: IRS and options."""
        self.next_received = advance(segment.sequence, 1)
        self.options = tcp_options.decode(segment.options)
        self.state = State.SYN_RECEIVED

    def _receive_syn_sent(self, segment: Segment, now_us: int) -> Action:
        flags = segment.flags
        acknowledged = bool(flags & Flag.ACK)
        if acknowledged and segment.acknowledgment != self.next_sent:
            return Action.NOTHING if flags & Flag.RST else Action.RESET
        if flags & Flag.RST:
            return Action.REFUSED if acknowledged else Action.NOTHING
        if not flags & Flag.SYN:
            return Action.NOTHING
        self.take_syn(segment)
        if not acknowledged:  # both ends opened at once (RFC 9293, MUST-10)
            return Action.ANSWER
        return self._establish(segment, segment.window, now_us)

    def _receive_syn_received(self, segment: Segment, now_us: int) -> Action:
        flags = segment.flags
        acknowledges = bool(flags & Flag.ACK) and segment.acknowledgment == self.next_sent
        if flags & Flag.SYN and advance(segment.sequence, 1) == self.next_received:
            # The SYN again, or that of a simultaneous open with its ACK.
            if acknowledges and not flags & Flag.RST:
                return self._establish(segment, segment.window, now_us)
            return Action.NOTHING if flags & (Flag.ACK | Flag.RST) else Action.ANSWER
        arguments = (segment.sequence, segment.length, self.next_received, self.announced)
        if not acceptable(*arguments):
            return Action.NOTHING if flags & Flag.RST else Action.ACKNOWLEDGE
        if flags & Flag.RST:
            exact = segment.sequence == self.next_received
            return Action.REFUSED if exact else Action.ACKNOWLEDGE
        if flags & Flag.SYN:
            return Action.ACKNOWLEDGE
        if not flags & Flag.ACK:
            return Action.NOTHING
        if not acknowledges:
            return Action.RESET
        return self._establish(segment, segment.window << self.shifts[0], now_us)

    def _establish(self, segment: Segment, window: int, now_us: int) -> Action:
        self.window = window
        self.update = (segment.sequence, segment.acknowledgment)
        if not self.retransmissions:
            self.round_trip_us = now_us - self.began_us
        return Action.ESTABLISHED

    def sent(self, sequence: int) -> bool:
        """Whether SND.UNA =< `sequence` < SND.NXT (RFC 5927, 4.1)."""
        return distance(self.iss, sequence) == 0
