"""What both ends of a connection know of each other."""

from dataclasses import dataclass

from stagecoach.ulp.rpcrdma.private_data import PrivateData
from stagecoach.ulp.rpcrdma.settings import INITIAL_INLINE_OCTETS, Settings


@dataclass(frozen=True, slots=True)
class Terms:
    """Of a connection, as one end sees it.

    Attributes
    ----------
    send_octets, receive_octets: of the longest Send to the peer, and from it.
    remote_invalidation: whether the peer takes Send with Invalidate.
    """

    send_octets: int = INITIAL_INLINE_OCTETS
    receive_octets: int = INITIAL_INLINE_OCTETS
    remote_invalidation: bool = False


def private_data(settings: Settings, *, remote_invalidation: bool) -> bytes:
    """What this end puts into its startup frame."""
    if settings.is_rfc5666 or not settings.announce:
        return b""
    octets = settings.inline_octets
    return PrivateData(octets, octets, remote_invalidation).encode()


def terms_of(settings: Settings, theirs: bytes) -> Terms:
    """What follows from the peer's private data (RFC 8797, 4.1 and 4.2)."""
    told = None if settings.is_rfc5666 else PrivateData.decode(theirs)
    if told is None:
        return Terms()
    send = min(settings.inline_octets, told.receive_octets)
    receive = min(settings.inline_octets, told.send_octets)
    return Terms(send, receive, told.remote_invalidation)
