"""ICMP echo: answers to others, and `ping` (RFC 792; RFC 1122, 3.2.2.6)."""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.icmp import IcmpMessage, Kind
from stagecoach.host_driver.network.rate_limit import RateLimit

MAXIMUM_PINGS = 64
"""Requests that wait for their reply; the oldest goes first."""

REPLIES_A_SECOND = 200


@dataclass
class Ping:
    """A request under way: when it was sent, and when its reply came."""

    destination: IPv4Address
    identifier: int
    sequence: int
    data: bytes
    sent_us: int
    replied_us: int | None = None

    @property
    def request(self) -> IcmpMessage:
        """As it is sent."""
        return IcmpMessage(Kind.ECHO, 0, self.identifier, self.sequence, self.data)


class Echo:
    """Answers requests, not more often than 200 times a second, and knows its own.

    Parameters
    ----------
    send: sends a message to an address, and to a MAC address if that is known.
    """

    def __init__(
        self,
        send: Callable[[IPv4Address, IcmpMessage, bytes | None], None],
        counters: Counter[str],
    ):
        self._send = send
        self._counters = counters
        self._limit = RateLimit(REPLIES_A_SECOND, REPLIES_A_SECOND)
        self._identifier = secrets.randbelow(1 << 16)
        self._sequence = 0
        self._pings: OrderedDict[int, Ping] = OrderedDict()

    def ping(self, destination: IPv4Address, data: bytes, now_us: int) -> Ping:
        """Send a request."""
        self._sequence = (self._sequence + 1) % (1 << 16)
        ping = Ping(destination, self._identifier, self._sequence, data, now_us)
        self._pings.pop(self._sequence, None)
        if len(self._pings) >= MAXIMUM_PINGS:
            self._pings.popitem(last=False)
        self._pings[self._sequence] = ping
        self._send(destination, ping.request, None)
        return ping

    def forget(self, ping: Ping) -> None:
        """Nobody waits for the reply any more."""
        if self._pings.get(ping.sequence) is ping:
            del self._pings[ping.sequence]

    def receive(self, source: IPv4Address, message: IcmpMessage, mac: bytes, now_us: int) -> None:
        """Take an echo or a reply that was addressed to this host alone; `mac` sent it."""
        if message.kind == Kind.ECHO:
            if not self._limit.allows(now_us):
                self._counters["echo_limited"] += 1
                return
            self._counters["echo_replies"] += 1
            reply = IcmpMessage(Kind.ECHO_REPLY, 0, message.first, message.second, message.body)
            self._send(source, reply, mac)
            return
        ping = self._pings.get(message.second)
        if (
            ping is None
            or (source, message.first) != (ping.destination, ping.identifier)
            or message.body != ping.data
        ):
            self._counters["echo_unexpected"] += 1
            return
        ping.replied_us = now_us
        self.forget(ping)
