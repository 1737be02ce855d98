"""Tail loss probe (RFC 8985, 7): when an ACK is overdue, the last segment goes again."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class LossProbe:
    """What is known of the probe of a connection.

    A round trip has to be measured after each probe (7.3), and after each retransmission: until
    then recovery is under way, which is not probed (7.2), or its round trip is not known anew.

    permitted: both ends permit SACK. measured: a round trip was, since then. at: when the probe is
    due. end, again: TLP.end_seq and TLP.is_retrans.
    """

    permitted: bool = False
    measured: bool = False
    at: int | None = None
    end: int | None = None
    again: bool = False

    @property
    def ready(self) -> bool:
        """Whether a probe may be sent."""
        return self.permitted and self.measured and self.end is None

    def sent(self, end: int, *, again: bool) -> None:
        """It was, and is known to have come when ``end`` is acknowledged."""
        self.at, self.end, self.again, self.measured = None, end, again, False

    def lost(self) -> None:
        """Data is sent again for another reason (7.1)."""
        self.end, self.again, self.measured = None, False, False

    def repaired(self, ack: int, *, duplicate: bool, blocks: Sequence[tuple[int, int]]) -> bool:
        """Take an ACK; whether the probe repaired a loss (7.4.2).

        duplicate: it is one of SND.UNA. blocks: positions of its SACK option.
        """
        if self.end is None or ack < self.end:
            return False
        twice = any(end == self.end for _, end in blocks[:1])  # DSACK (RFC 2883)
        repaired = self.again and not twice and ack > self.end
        if not self.again or twice or repaired or (duplicate and not blocks):
            self.end = None
        return repaired
