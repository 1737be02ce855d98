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


class StateError(Exception):
    """A call that the state of the connection does not allow."""


@dataclass(frozen=True)
class Settings:
    """What can be set for a connection; times in microseconds, sizes in bytes.

    ``mss`` is announced and bounds what is sent; ``keep_alive`` None is off (RFC 9293, SHLD-26).
    """

    mss: int = 1460
    receive_buffer: int = 128 << 10
    window_scaling: bool = True
    sack: bool = True
    ranges: int = 4
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
