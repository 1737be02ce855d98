"""What clients may take of a server: connections, memory, and time."""

import ipaddress
from contextlib import ExitStack
from dataclasses import dataclass

from stagecoach.ulp.oncrpc.budget import Budget
from stagecoach.ulp.oncrpc.errors import TooManyConnections

_IPV6_SITE = 64
"""Bits of an IPv6 address that are one peer: who has one address has all of these."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of a server.

    Attributes
    ----------
    connections: of all clients. connections_per_peer: of one IPv4 address, or IPv6 network of 64
        bits.
    octets: of memory for the calls of all connections, and again for their replies.
        octets_per_peer, octets_per_connection: the same of the connections of one peer, and of one
        connection; calls beyond that wait. A call that needs more than there is has all of it.
    reply_seconds: that a client has to take a reply, or to have its memory read.
    record_seconds: that a client has for a call over TCP from its first byte to its last.
    first_seconds: that a client has for its first call. idle_seconds: between calls, after the last
        reply.
    """

    connections: int = 256
    connections_per_peer: int = 16
    octets: int = 256 << 20
    octets_per_peer: int = 32 << 20
    octets_per_connection: int = 8 << 20
    reply_seconds: float = 30.0
    record_seconds: float = 30.0
    first_seconds: float = 30.0
    idle_seconds: float = 360.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"{name} is {value}; allowed: more than 0")


class Share:
    """Memory of one connection, for its calls or for its replies.

    Parameters
    ----------
    most: bytes of the connection. others: budgets of which its bytes are taken as well, the
        smallest first, so that nobody holds what all need while waiting for what is its own.

    Attributes
    ----------
    held: bytes that are taken.
    """

    def __init__(self, most: int, *others: Budget):
        self._most = min(most, *(each.total for each in others))
        self._budgets = (Budget(self._most), *others)
        self.held = 0
        self._closed = False

    async def take(self, octets: int) -> int:
        """Waits for so many bytes, and returns how many are taken: no more than there are."""
        octets = min(octets, self._most)
        if not octets:
            return 0
        with ExitStack() as undo:
            for budget in self._budgets:
                await budget.take(octets)
                undo.callback(budget.give, octets)
            undo.pop_all()
        self.held += octets
        if self._closed:
            self.give(octets)
        return octets

    def give(self, octets: int) -> None:
        """Gives back what `take` returned, or some of it. Nothing is held when all is closed."""
        octets = min(octets, self.held)
        self.held -= octets
        for budget in self._budgets:
            budget.give(octets)

    def close(self) -> None:
        """Gives back all."""
        self._closed = True
        self.give(self.held)


@dataclass(eq=False)
class _Peer:
    """What the connections of one peer have together: their number, and memory."""

    calls: Budget
    replies: Budget
    connections: int = 0
    served: int = 0


class Account:
    """What one connection has; made by `Admission.enter`.

    Attributes
    ----------
    peer: the address. limits: of the server. calls, replies: memory for them.
    served: whether `serve` was called.
    """

    def __init__(self, admission: "Admission", peer: str, together: _Peer):
        self.peer, self.limits = peer, admission.limits
        most = self.limits.octets_per_connection
        self.calls = Share(most, together.calls, admission.calls)
        self.replies = Share(most, together.replies, admission.replies)
        self._admission: Admission | None = admission
        self._together = together
        self.served = False

    @property
    def peer_served(self) -> int:
        """Connections of the peer for which `serve` was called, until they close."""
        return self._together.served

    def serve(self) -> None:
        """The connection has what its transport has few of: a QP. Repeatable."""
        self._together.served += not self.served
        self.served = True

    def close(self) -> None:
        """The connection is over. Repeatable."""
        admission, self._admission = self._admission, None
        if admission is not None:
            self._together.served -= self.served
            self.calls.close()
            self.replies.close()
            admission.leave(self.peer)


class Admission:
    """Lets the connections of a server in, over all its transports.

    Attributes
    ----------
    limits: of the server. calls, replies: memory for them. connections: that are open.
    """

    def __init__(self, limits: Limits | None = None):
        self.limits = limits or Limits()
        self.calls, self.replies = Budget(self.limits.octets), Budget(self.limits.octets)
        self._peers: dict[str, _Peer] = {}
        self.connections = 0

    def enter(self, peer: str) -> Account:
        """The account of a new connection from an address. Raises `TooManyConnections`."""
        limits, key = self.limits, _key(peer)
        together = self._peers.get(key)
        of_peer = 0 if together is None else together.connections
        if of_peer >= limits.connections_per_peer:
            raise TooManyConnections(
                f"{of_peer} connections of {key}; allowed: {limits.connections_per_peer}"
            )
        if self.connections >= limits.connections:
            raise TooManyConnections(
                f"{self.connections} connections; allowed: {limits.connections}"
            )
        if together is None:
            octets = min(limits.octets_per_peer, limits.octets)
            together = self._peers[key] = _Peer(Budget(octets), Budget(octets))
        together.connections += 1
        self.connections += 1
        return Account(self, peer, together)

    def leave(self, peer: str) -> None:
        """A connection is over."""
        key = _key(peer)
        self.connections -= 1
        self._peers[key].connections -= 1
        if not self._peers[key].connections:
            del self._peers[key]


def _key(peer: str) -> str:
    """What counts as one peer."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_SITE), strict=False))
