"""How often something may happen: a bucket of tokens."""

from stagecoach.host_driver.network.settings import SECOND_US


class RateLimit:
    """`rate` times a second in the long run, `burst` times at once; `now_us` never goes back."""

    def __init__(self, rate: int, burst: int):
        self._rate = rate
        self._full = burst * SECOND_US
        self._left = self._full  # of a token, millionths
        self._last_us: int | None = None

    def allows(self, now_us: int) -> bool:
        """Whether once more is not too often; it counts then."""
        if self._last_us is not None:
            gained = (now_us - self._last_us) * self._rate
            self._left = min(self._full, self._left + gained)
        self._last_us = now_us
        if self._left < SECOND_US:
            return False
        self._left -= SECOND_US
        return True
