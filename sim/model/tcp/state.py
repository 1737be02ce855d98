"""States of a connection (RFC 9293, 3.3.2), why it ended, and what can be set for it."""

from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    """RFC 9293, Figure 5."""

    CLOSED = auto()
    LISTEN = auto()
    SYN_SENT = auto()
    SYN_RECEIVED = auto()
    ESTABLISHED = auto()
    FIN_WAIT_1 = auto()
    FIN_WAIT_2 = auto()
    CLOSE_WAIT = auto()
    CLOSING = auto()
    LAST_ACK = auto()
    TIME_WAIT = auto()


class Cause(Enum):
    """Why a connection is CLOSED."""

    CLOSED = "both directions were closed"
    ABORTED = "aborted by its user"
    REFUSED = "connection refused"
    RESET = "connection reset by the peer"
    TIMED_OUT = "no acknowledgment for R2"
    KEEP_ALIVE = "no answer to keep-alive probes"
    UNREACHABLE = "the peer's protocol or port is unreachable"
    DATA_LOST = "data of the peer was not read before CLOSE"


class Report(Enum):
    """What the user is told while the connection goes on (RFC 9293, 3.9.1.8)."""

    SUSPECT = "R1 retransmissions without an acknowledgment"
    UNREACHABLE = "ICMP Destination Unreachable"
    TIME_EXCEEDED = "ICMP Time Exceeded"
    PARAMETER_PROBLEM = "ICMP Parameter Problem"


class StateError(Exception):
    """A call that the state of the connection does not allow."""


@dataclass(frozen=True)
class Settings:
    """What can be set for a connection; times in microseconds, sizes in bytes.

    mss: announced, and 40 less than the MTU of the link. rto_minimum, rto_maximum: bounds of the
    retransmission timeout. r1: retransmissions after which the user is told; r2, r2_syn: time
    after which the connection ends. keep_alive: idle time before the first probe, None is off
    (RFC 9293, MUST-25). forgiven_syns: SYN retransmissions that leave the initial window as it is
    (RFC 6928, 2); large_initial_window False is that of RFC 5681. path_mtu_floor: least MTU that
    a router is believed. reports: whether soft errors are told (SHLD-20). loss_probe: whether a
    tail is probed (RFC 8985, 7), if SACK is permitted. challenge_limit, challenge_period: of
    RFC 5961, 7.
    """

    mss: int = 1460
    receive_buffer: int = 128 << 10
    window_scaling: bool = True
    sack: bool = True
    ranges: int = 4
    nagle: bool = False
    delayed_ack: int = 40_000
    rto_minimum: int = 1_000_000
    rto_maximum: int = 60_000_000
    r1: int = 3
    r2: int = 100_000_000
    r2_syn: int = 180_000_000
    msl: int = 120_000_000
    keep_alive: int | None = None
    keep_alive_interval: int = 75_000_000
    keep_alive_probes: int = 9
    forgiven_syns: int = 0
    large_initial_window: bool = True
    path_mtu_floor: int = 552
    reports: bool = True
    loss_probe: bool = False
    challenge_limit: int = 10
    challenge_period: int = 5_000_000

    @property
    def mtu(self) -> int:
        """MTU of the link."""
        return self.mss + 40
