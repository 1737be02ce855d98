"""One connection of the engine, as the driver knows it."""

from collections import deque
from dataclasses import dataclass, field

from stagecoach.host_driver.network.hardware.memory import StreamRing
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.sequence import advance, distance
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.network import ConnectionInfo, Ended, Established
from stagecoach.hw.interface.network_entries import InfoFlags, NetworkKind

PIECES = 64
"""SENDs that are not acknowledged: each takes a place of the engine's list of 128 segments."""

WINDOW_FIELD_MOST = 0xFFFF

COUNTS = ("segments_received", "segments_sent", "segments_again")
"""Words of `CONNECTION_INFO` that go on from one connection of a number to the next."""

ENDS = {
    NetworkKind.CLOSED: StreamEnd.CLOSED,
    NetworkKind.TIME_WAIT: StreamEnd.CLOSED,
    NetworkKind.ABORTED: StreamEnd.ABORTED,
    NetworkKind.RESET: StreamEnd.RESET,
    NetworkKind.TIMED_OUT: StreamEnd.TIMED_OUT,
    NetworkKind.DATA_LOST: StreamEnd.ABORTED,
    NetworkKind.MEMORY: StreamEnd.ABORTED,
}
"""How a connection ended, by the notice that tells of it."""


def signed(first: int, second: int) -> int:
    """How far sequence number `second` is ahead of `first`; below 0 if it is before it."""
    ahead = distance(first, second)
    return ahead - (1 << 32) if ahead >= 1 << 31 else ahead


@dataclass
class Flow:
    """What `HardwarePort` knows of a connection. Numbers are sequence numbers.

    Attributes
    ----------
    handle, number: for the callers of the port, and for the engine. mac, fields: of its frames.
    received: RCV.NXT as far as it was told; fin: the peer's FIN stands before it.
    released: what comes before is not needed any more.
    end: after all bytes that were sent; acknowledged: SND.UNA as far as it is known; pieces: ends
        of SENDs after it. hungry: a `send` found no room for all.
    lane: LLP connection that has the stream. shut: FIN was asked for; first: before the peer's was
        known. discards: what the peer sends is not read.
    ended: how it ended, once it has. left: bytes that nobody had read then.
    counted: what `COUNTS` were before it.
    """

    handle: int
    number: int
    established: Established
    rx: StreamRing
    tx: StreamRing
    mac: bytes = b""
    fields: IpFields = field(default_factory=IpFields)
    received: int = 0
    fin: bool = False
    released: int = 0
    end: int = 0
    acknowledged: int = 0
    pieces: deque[int] = field(default_factory=deque)
    hungry: bool = False
    lane: int | None = None
    shut: bool = False
    first: bool = False
    discards: bool = False
    ended: Ended | None = None
    left: bytes = b""
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))

    def __post_init__(self) -> None:
        established = self.established
        self.mac = established.remote_mac
        self.fields = IpFields(established.dscp, established.ttl)
        self.received = self.released = established.next_received
        self.end = self.acknowledged = established.next_sent

    @property
    def unread(self) -> int:
        """Bytes in the RX ring that are not released."""
        return distance(self.released, advance(self.received, -int(self.fin)))

    @property
    def room(self) -> int:
        """Bytes that may be sent, as far as it is known."""
        if len(self.pieces) >= PIECES:
            return 0
        return self.tx.octets - distance(self.acknowledged, self.end)

    def acknowledge(self, number: int) -> None:
        """The peer has all before `number`, which may be after our FIN."""
        if signed(self.end, number) > 0:
            number = self.end
        self.acknowledged = number
        while self.pieces and signed(self.pieces[0], number) >= 0:
            self.pieces.popleft()

    def tell(self, received: int, fin: bool) -> bool:
        """The engine says what has come; whether it can be.

        A notice of an earlier connection of the same number may be late.
        """
        if distance(self.received, received) > self.rx.octets + 1 or (self.fin and not fin):
            return False
        if distance(self.released, received) > self.rx.octets + fin:
            return False
        self.received, self.fin = received, fin
        return True

    def rejoin(self, info: dict[str, int], mss: int) -> None:
        """The device has let go of the stream: see what is not released, and what was sent.

        The engine tells the right edge alone. It is short of what was released and the ring by one
        MSS and what the shift cuts off, at most; so little may be counted as released although it
        is not. If the window field cannot say all of the ring, the edge tells nothing, and all
        counts: the window is as large as it can be then. After the peer's FIN nothing has to be
        released.
        """
        self.received, edge = info["received"], info["edge"]
        self.fin = bool(info["flags"] & InfoFlags.PEER_FIN)
        self.end = info["end"]
        self.acknowledge(info["una"])
        self.pieces.clear()
        come = distance(self.released, self.received)  # since the device has it
        self.released = advance(self.received, -int(self.fin))
        most = WINDOW_FIELD_MOST << self.established.receive_shift
        slack = mss + (1 << self.established.receive_shift)
        ahead = signed(self.received, edge)
        back = self.rx.octets - slack - ahead
        if most >= self.rx.octets and back > 0 and not self.fin:
            self.released = advance(self.released, -min(back, come))

    def end_by(self, kind: NetworkKind, sequence: int, received: int, fin: bool) -> Ended:
        """The engine has forgotten it; keep what was not read."""
        known = self.lane is None and self.tell(received, fin)
        how = ENDS[kind]
        if known and how is StreamEnd.CLOSED and not self.discards:
            self.left = self.rx.read(self.released, self.unread)
        first = kind is NetworkKind.TIME_WAIT
        self.ended = Ended(self.handle, how, sequence, received, first, fin)
        return self.ended

    def information(self, words: dict[str, int]) -> ConnectionInfo:
        """What INFO told. Segments and bytes are counted modulo 2^32."""
        flags = InfoFlags(words["flags"])
        sampled = InfoFlags.SAMPLED in flags
        counts = {name: distance(self.counted[name], words[name]) for name in COUNTS}
        begins, fin = self.established, InfoFlags.PEER_FIN in flags
        sent = words["max"] if signed(words["max"], words["end"]) >= 0 else words["end"]
        return ConnectionInfo(
            state=self._state(flags),
            smoothed_rtt_us=words["srtt8"] >> 3 if sampled else None,
            rtt_variance_us=words["rttvar4"] >> 2 if sampled else None,
            rto_us=words["rto"],
            congestion_window=words["cwnd"],
            slow_start_threshold=words["ssthresh"],
            maximum_segment_size=words["emss"],
            send_window=words["window"],
            receive_window=max(signed(words["received"], words["edge"]), 0),
            in_flight=distance(words["una"], words["max"]),
            queued=max(signed(words["max"], words["end"]), 0),
            segments_sent=counts["segments_sent"] + counts["segments_again"],
            segments_received=counts["segments_received"],
            octets_sent=distance(begins.next_sent, sent),
            octets_received=distance(begins.next_received, advance(words["received"], -int(fin))),
            retransmissions=counts["segments_again"],
            unacknowledged=words["una"],
            next_sent=words["max"],
            next_received=words["received"],
        )

    def _state(self, flags: InfoFlags) -> str:
        """Of RFC 9293, 3.3.2."""
        if InfoFlags.ALIVE not in flags:
            return "CLOSED"
        if InfoFlags.CLOSING not in flags:
            return "CLOSE-WAIT" if InfoFlags.PEER_FIN in flags else "ESTABLISHED"
        if InfoFlags.PEER_FIN in flags:
            return "CLOSING" if self.first else "LAST-ACK"
        return "FIN-WAIT-2" if InfoFlags.FIN_ACKNOWLEDGED in flags else "FIN-WAIT-1"
