"""Path MTU discovery (RFC 1191), and the segment size that follows (RFC 9293, 3.7.1)."""

# RFC 9293, MUST-15: of a peer that announces none.
MSS_DEFAULT = 536
# RFC 1191, 3.
MTU_MIN = 68
# RFC 1191, 6.3: how long after it fell, or after it was raised, it is raised.
RAISE_AFTER_TOO_BIG_US = 600_000_000
RAISE_AGAIN_US = 120_000_000
# RFC 1191, 7.1.
PLATEAUS = (65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, MTU_MIN)


def effective_mss(path_mtu: int, peer_mss: int | None, options: int = 0) -> int:
    """Bytes of data in the longest segment.

    ``peer_mss`` None is a SYN without the option, ``options`` the bytes of IP and TCP options on
    segments with data.
    """
    mss = MSS_DEFAULT if peer_mss is None else peer_mss
    return max(min(mss + 20, path_mtu - 20) - 20 - options, 1)


def plateau_below(length: int) -> int:
    """The largest plateau below a packet that was too long."""
    return next((plateau for plateau in PLATEAUS if plateau < length), MTU_MIN)


class PathMtu:
    """The estimate for one path, in bytes of IP packets; times in microseconds.

    ``mtu`` is that of the link, which bounds it; ``floor`` the least that a router is believed.
    """

    def __init__(self, mtu: int, floor: int = MTU_MIN) -> None:
        if not MTU_MIN <= floor <= mtu:
            raise ValueError(f"floor of {floor} bytes (expected {MTU_MIN} to the MTU, {mtu})")
        self.estimate = self._mtu = mtu
        self._floor = floor
        self.raise_at: int | None = None

    def too_big(self, now: int, next_hop: int, length: int) -> bool:
        """A router could not forward ``length`` bytes; whether the estimate fell.

        ``next_hop`` is the MTU that it named, 0 for a router older than RFC 1191.
        """
        found = max(next_hop or plateau_below(length), self._floor)
        if found >= self.estimate:
            return False
        self.estimate = found
        self.raise_at = now + RAISE_AFTER_TOO_BIG_US
        return True

    def raise_estimate(self, now: int) -> None:
        """``raise_at`` has come: try the next plateau above."""
        above = [plateau for plateau in PLATEAUS if plateau > self.estimate]
        self.estimate = min([self._mtu, *above])
        self.raise_at = now + RAISE_AGAIN_US if self.estimate < self._mtu else None
