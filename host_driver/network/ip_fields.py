"""What IP is told of the segments of a connection (RFC 9293, 3.9.1.9 and 3.9.2)."""

from dataclasses import dataclass

from stagecoach.host_driver.network.errors import NetworkSettingsError
from stagecoach.host_driver.network.ipv4 import DEFAULT_TTL

MAXIMUM_DSCP = 63
MAXIMUM_TTL = 255

_ECN_BITS = 2


@dataclass(frozen=True, slots=True)
class IpFields:
    """Fields of the IP header. Raises `NetworkSettingsError`.

    Attributes
    ----------
    dscp: 0 to 63 (RFC 2474), such as 46 for expedited forwarding. ttl: 1 to 255.
    """

    dscp: int = 0
    ttl: int = DEFAULT_TTL

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("DSCP", self.dscp, 0, MAXIMUM_DSCP),
            ("TTL", self.ttl, 1, MAXIMUM_TTL),
        ):
            if type(value) is not int or not least <= value <= most:
                raise NetworkSettingsError(f"{name} {value!r}; allowed: {least} to {most}")

    def changed(self, dscp: int | None, ttl: int | None) -> "IpFields":
        """Others, with what is `None` as it is here."""
        return IpFields(self.dscp if dscp is None else dscp, self.ttl if ttl is None else ttl)

    @property
    def service(self) -> int:
        """The second octet of the header. Its two bits of ECN are 0 (RFC 3168)."""
        return self.dscp << _ECN_BITS


DEFAULT_FIELDS = IpFields()
