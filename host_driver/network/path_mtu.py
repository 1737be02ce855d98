"""The MTU of paths (RFC 1191): less than that of the interface where a router said so."""

from collections import OrderedDict
from ipaddress import IPv4Address

from stagecoach.host_driver.network.settings import MINIMUM_MTU, SECOND_US

MAXIMUM_PATHS = 256
"""Destinations that are remembered; the oldest goes first."""

LIFETIME_US = 600 * SECOND_US
"""After it a new connection tries the interface's MTU again (RFC 1191, 6.3)."""

# Table 7-1 of RFC 1191, for routers that do not tell the MTU of the next hop.
_PLATEAUS = (65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, MINIMUM_MTU)


def plateau_below(octets: int) -> int:
    """The largest likely MTU that is less; 576 at least."""
    return next((each for each in _PLATEAUS if each < octets), MINIMUM_MTU)


class PathMtus:
    """What routers said, by destination.

    Less than 576 is not believed: nobody can make this end send tiny segments (RFC 5927, 7.2).

    Parameters
    ----------
    mtu: of the interface.
    """

    def __init__(self, mtu: int):
        self._mtu = mtu
        self._paths: OrderedDict[IPv4Address, tuple[int, int]] = OrderedDict()  # MTU, since when

    def __len__(self) -> int:
        return len(self._paths)

    def get(self, destination: IPv4Address, now_us: int) -> int:
        """Bytes of the longest datagram that gets there."""
        mtu, since = self._paths.get(destination, (self._mtu, now_us))
        if now_us - since >= LIFETIME_US:
            del self._paths[destination]
            return self._mtu
        return mtu

    def too_big(
        self, destination: IPv4Address, next_hop: int, length: int, now_us: int
    ) -> int | None:
        """A router refused a datagram of `length`; `next_hop` is what it allows, 0 if unknown.

        Returns the new MTU of the path, `None` if it is not less than it was.
        """
        told = max(MINIMUM_MTU, next_hop or plateau_below(length))
        if told >= self.get(destination, now_us):
            return None
        self._paths.pop(destination, None)
        while len(self._paths) >= MAXIMUM_PATHS:
            self._paths.popitem(last=False)
        self._paths[destination] = (told, now_us)
        return told
