"""Retransmission timeout (RFC 6298) in integers: 8 * SRTT and 4 * RTTVAR, microseconds."""

from dataclasses import dataclass

INITIAL_US = 1_000_000
# RFC 6298, 5.7: if the SYN was lost, the RTO when data begins.
AFTER_LOST_SYN_US = 3_000_000


@dataclass
class RetransmissionTimeout:
    """Estimates the RTO; ``granularity`` is G, the resolution of the clock.

    ``minimum`` defaults to the second of RFC 6298, 2.4; ``maximum`` bounds the back-off (2.5:
    at least 60 s). All in microseconds.
    """

    granularity: int = 1
    minimum: int = 1_000_000
    maximum: int = 60_000_000
    initial: int = INITIAL_US
    srtt8: int | None = None
    rttvar4: int = 0
    backoff: int = 0

    def sample(self, measured: int) -> None:
        """Take a round-trip time; Karn's algorithm is the caller's. Ends the back-off."""
        self.backoff = 0
        if self.srtt8 is None:
            self.srtt8, self.rttvar4 = measured << 3, measured << 1
            return
        # RFC 6298, 2.3: RTTVAR first, with the old SRTT.
        error = measured - (self.srtt8 >> 3)
        self.rttvar4 += abs(error) - (self.rttvar4 >> 2)
        self.srtt8 += error

    def expire(self) -> None:
        """The timer expired: double (5.5)."""
        self.backoff += 1

    @property
    def microseconds(self) -> int:
        """The RTO."""
        rto = self.initial
        if self.srtt8 is not None:
            rto = (self.srtt8 >> 3) + max(self.granularity, self.rttvar4)
        return min(max(rto, self.minimum) << self.backoff, self.maximum)
