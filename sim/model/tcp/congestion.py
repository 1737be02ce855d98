"""Congestion control: RFC 5681, NewReno (RFC 6582), limited transmit (RFC 3042), RFC 6928.

Positions are counts of bytes since the first byte of data and do not wrap.
"""

from dataclasses import dataclass, field

DUPLICATES = 3
# "Arbitrarily high" (RFC 5681, 3.1).
SSTHRESH_INITIAL = 1 << 30


def initial_window(smss: int, large: bool = True) -> int:
    """That of RFC 6928, 2; if not ``large``, that of RFC 5681, 3.1."""
    if large:
        return min(10 * smss, max(2 * smss, 14600))
    return smss * (2 if smss > 2190 else 3 if smss > 1095 else 4)


@dataclass(frozen=True)
class Verdict:
    """What an acknowledgment asks for: resend the first segment, restart the timer."""

    retransmit: bool = False
    restart_timer: bool = False


@dataclass
class Congestion:
    """cwnd, ssthresh and fast recovery of one connection, in bytes."""

    smss: int
    cwnd: int = 0
    ssthresh: int = SSTHRESH_INITIAL
    recover: int = -1
    duplicates: int = 0
    recovering: bool = False
    large: bool = True
    extra: int = field(default=0, init=False)
    _limited: int = field(default=0, init=False)
    _counted: int = field(default=0, init=False)
    _first_partial: bool = field(default=False, init=False)
    _expired_at: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.cwnd = self.cwnd or initial_window(self.smss, self.large)

    @property
    def limit(self) -> int:
        """What may be outstanding now: cwnd, and what limited transmit lends."""
        return self.cwnd + self.extra

    def acknowledged(self, una: int, new_una: int, maximum: int) -> Verdict:
        """SND.UNA moves from ``una`` to ``new_una``; ``maximum`` is the highest position sent."""
        count = new_una - una
        verdict = Verdict(restart_timer=True)
        if self.recovering and new_una - 1 >= self.recover:
            # RFC 6582, 3.2 step 3, full acknowledgment, option 1.
            flight = maximum - new_una
            self.cwnd = min(self.ssthresh, max(flight, self.smss) + self.smss)
            self.recovering = False
        elif self.recovering:
            # An ACK may be for more than cwnd: those before it were lost.
            self.cwnd = max(self.cwnd - count, 0)
            if count >= self.smss:
                self.cwnd += self.smss
            verdict = Verdict(retransmit=True, restart_timer=self._first_partial)
            self._first_partial = False
        elif self.cwnd < self.ssthresh:
            self.cwnd += min(count, self.smss)
        else:
            # RFC 5681, 3.1: one SMSS for each cwnd of acknowledged bytes.
            self._counted += count
            if self._counted >= self.cwnd:
                self._counted -= self.cwnd
                self.cwnd += self.smss
        self.duplicates = self.extra = self._limited = 0
        if self._expired_at is not None and new_una > self._expired_at:
            self._expired_at = None
        return verdict

    def duplicate(self, una: int, following: int, maximum: int, *, told: bool = False) -> Verdict:
        """A duplicate ACK; ``following`` is SND.NXT. ``told``: it says as much as three."""
        self.duplicates += 1
        lost = 1 if told else DUPLICATES
        self.extra = 0
        if self.recovering:
            self.cwnd += self.smss
        elif self.duplicates < lost:
            # RFC 3042: one new segment for each; none while old data is sent again.
            self.extra = self.duplicates * self.smss if following == maximum else 0
        elif (told or self.duplicates == DUPLICATES) and una - 1 > self.recover:
            flight = maximum - una - self._limited
            self.ssthresh = max(flight // 2, 2 * self.smss)
            self.recover = maximum - 1
            self.cwnd = self.ssthresh + lost * self.smss
            self.recovering = self._first_partial = True
            return Verdict(retransmit=True)
        return Verdict()

    def repaired(self, flight: int) -> None:
        """A probe repaired the loss of one segment: as after fast recovery (RFC 8985, 7.4.2)."""
        self.cwnd = self.ssthresh = max(flight // 2, 2 * self.smss)

    def sent_new(self, count: int) -> None:
        """New data went out: RFC 5681, 3.2 step 2 leaves out of FlightSize what was lent."""
        if self.extra:
            self._limited += count

    def expire(self, una: int, maximum: int) -> None:
        """The retransmission timer expired with ``una`` outstanding."""
        if self._expired_at != una:
            self.ssthresh = max((maximum - una) // 2, 2 * self.smss)
        self._expired_at = una
        self.cwnd = self.smss
        self.recover = maximum - 1
        self.recovering = False
        self.duplicates = self.extra = self._limited = self._counted = 0

    def idle(self) -> None:
        """Nothing was sent for more than one RTO (RFC 5681, 4.1)."""
        self.cwnd = min(initial_window(self.smss, self.large), self.cwnd)

    def resize(self, smss: int, maximum: int) -> None:
        """The path takes segments of another size: a smaller one scales cwnd (RFC 5681, 3.1)."""
        if smss < self.smss:
            self.cwnd = max(self.cwnd * smss // self.smss, smss)
            # Duplicate ACKs of what is sent anew are no sign of loss.
            self.recover = max(self.recover, maximum - 1)
        self.smss = smss
