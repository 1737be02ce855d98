"""Limit of challenge ACKs (RFC 5961, 7), one for each connection: a shared one leaks."""

from collections import deque

LIMIT = 10
PERIOD_US = 5_000_000


class ChallengeLimit:
    """At most ``limit`` in any ``period`` of microseconds."""

    def __init__(self, limit: int = LIMIT, period: int = PERIOD_US) -> None:
        self._limit = limit
        self._period = period
        self._sent: deque[int] = deque()

    def allow(self, now: int) -> bool:
        """Whether one may be sent now; if so it counts as sent."""
        while self._sent and now - self._sent[0] >= self._period:
            self._sent.popleft()
        if len(self._sent) >= self._limit:
            return False
        self._sent.append(now)
        return True
