"""What the engine begins with when it gets a connection: congestion window and timeout."""

from dataclasses import dataclass

from stagecoach.host_driver.transport.network import Established

RTO_INITIAL_US = 1_000_000
"""RFC 6298, 2.1."""

RTO_AFTER_LOST_SYN_US = 3_000_000
"""RFC 6298, 5.7: if the SYN was lost, the RTO when data begins."""

RTO_MAXIMUM_US = 60_000_000
"""RFC 6298, 2.5."""

R2_US = 100_000_000
"""RFC 9293, 3.8.3."""

DELAYED_ACK_US = 40_000
"""As Linux delays ACKs; RFC 9293, MUST-40 allows 500 ms."""

_GRANULARITY_US = 1
_LARGE_WINDOW = 14_600


def delayed_ack(rto_minimum: int) -> int:
    """How long an ACK may wait: not until a peer with the same least RTO sends again."""
    return min(DELAYED_ACK_US, rto_minimum // 4)


def congestion_window(established: Established) -> int:
    """RFC 6928, 2; one segment if the SYN was lost (RFC 5681, 3.1)."""
    smss = established.maximum_segment_size
    return smss if established.syn_lost else min(10 * smss, max(2 * smss, _LARGE_WINDOW))


@dataclass(frozen=True)
class Timeout:
    """Fields of ESTABLISH (RFC 6298, 2): 8 SRTT, 4 RTTVAR, and the RTO in microseconds."""

    srtt8: int
    rttvar4: int
    rto: int
    sampled: bool


def timeout(established: Established, rto_minimum: int) -> Timeout:
    """That of a connection as its handshake left it."""
    measured = established.round_trip_us
    if measured is None:
        rto = RTO_AFTER_LOST_SYN_US if established.syn_lost else RTO_INITIAL_US
        rto = min(max(rto, rto_minimum), RTO_MAXIMUM_US)
        return Timeout(8 * rto, 0, rto, False)
    # RFC 6298, 2.2: RTTVAR is half of the first round trip.
    rttvar4 = 2 * measured
    rto = measured + max(_GRANULARITY_US, rttvar4)
    return Timeout(8 * measured, rttvar4, min(max(rto, rto_minimum), RTO_MAXIMUM_US), True)
