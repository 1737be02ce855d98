"""The profile and the sizes of a connection."""

from dataclasses import dataclass
from enum import Enum

from stagecoach.ulp.rpcrdma.private_data import INLINE_UNIT, MAXIMUM_INLINE

DEFAULT_PORT = 20049
"""Of NFS/RDMA (RFC 5666, 12)."""

NETID_IPV4, NETID_IPV6 = "rdma", "rdma6"
"""Names of this transport for rpcbind (RFC 5666, 12; RFC 8166, 5)."""

INITIAL_CREDITS = 1
INITIAL_INLINE_OCTETS = 1024
"""Until the peer says more (RFC 5666, 6.1; RFC 8166, 3.3.3)."""

MAXIMUM_CREDITS = 1024


class Profile(Enum):
    """Which document a connection follows where they differ.

    RFC8166 is what peers speak today. RFC5666 also has what that document took away: replies as
    read chunks with RDMA_DONE, RDMA_MSGP, and the Connection Configuration Protocol.
    """

    RFC8166 = "RFC 8166"
    RFC5666 = "RFC 5666"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What both ends have.

    Attributes
    ----------
    profile: of the connection.
    credits: that the client requests, that the server grants; 1 to 1024. So many receives are
        posted.
    inline_octets: of the longest Send, and of a posted receive; a multiple of 1024 up to 256 KiB.
        The peer gets to know it by the private data of RFC 8797, or, in the profile RFC5666, by
        the Connection Configuration Protocol; what both know is the smaller one.
    announce: whether private data is sent, in the profile RFC8166.
    maximum_octets: of all chunks of a message that are fetched by RDMA Read.
    ord, ird: RDMA Reads under way from this end, and towards it; what the device has if `None`.
    emss: largest TCP payload in bytes; the connection's own if `None`.
    connect_timeout: seconds for MPA startup.
    crc, markers: what this end asks for there.
    revision: of MPA, 1 or 2; a server takes no newer one. peer_to_peer: whether the connection
        begins with an RTR frame; a server takes no other ones then.
    """

    profile: Profile = Profile.RFC8166
    credits: int = 32
    inline_octets: int = 4096
    announce: bool = True
    maximum_octets: int = 8 << 20
    ord: int | None = None
    ird: int | None = None
    emss: int | None = None
    connect_timeout: float = 10.0
    crc: bool = True
    markers: bool = False
    revision: int = 2
    peer_to_peer: bool = False

    def __post_init__(self) -> None:
        _check("credits", self.credits, 1, MAXIMUM_CREDITS)
        _check("inline_octets", self.inline_octets, INITIAL_INLINE_OCTETS, MAXIMUM_INLINE)
        if self.inline_octets % INLINE_UNIT:
            raise ValueError(f"inline_octets is {self.inline_octets}; allowed: multiples of 1024")
        _check("maximum_octets", self.maximum_octets, 0, 1 << 40)

    @property
    def is_rfc5666(self) -> bool:
        """Whether the profile is RFC5666."""
        return self.profile is Profile.RFC5666


@dataclass(frozen=True, kw_only=True)
class ClientSettings(Settings):
    """What a client has.

    Attributes
    ----------
    segment_octets: of the longest segment into which a chunk is divided.
    offer_reply_chunk: whether a call whose reply may be too long for a Send offers a chunk for it.
        Without one a server of the profile RFC5666 returns it as read chunk; in the profile RFC8166
        it must be offered (RFC 8166, 4.3.3).
    reply_timeout: seconds for a call, with the time that it waits for a credit; `None` for ever.
    """

    segment_octets: int = 1 << 30
    offer_reply_chunk: bool = True
    reply_timeout: float | None = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("segment_octets", self.segment_octets, 1, (1 << 32) - 1)
        if not self.offer_reply_chunk and not self.is_rfc5666:
            raise ValueError("offer_reply_chunk is False; allowed: True in the profile RFC8166")


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Settings):
    """What a server has.

    Attributes
    ----------
    align: of opaque data in its receive buffers, which it recommends to clients, and with which it
        pads its own replies; 0 for no padding. Profile RFC5666 only, as the next one.
    done_timeout: seconds that a client has for the read chunks of a reply; then their memory is
        taken back (RFC 5666, 3.8).
    """

    align: int = 0
    done_timeout: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align % 4 or not 0 <= self.align <= MAXIMUM_INLINE:
            raise ValueError(
                f"align is {self.align}; allowed: multiples of 4 from 0 to {MAXIMUM_INLINE}"
            )


def _check(name: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}; allowed: {least} to {most}")
