"""TIME-WAIT: endpoints of connections that this end closed first, for 2 MSL (RFC 9293, 3.6.1)."""

import enum
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv4Address

from stagecoach.host_driver.network.ip_fields import DEFAULT_FIELDS, IpFields
from stagecoach.host_driver.network.sequence import advance, before
from stagecoach.host_driver.network.tcp import Flag, Segment

MAXIMUM_ENTRIES = 4096
"""The oldest goes before its time if there are more."""

Ends = tuple[tuple[IPv4Address, int], tuple[IPv4Address, int]]
"""Local and remote address and port."""


@dataclass(slots=True)
class Waiting:
    """One connection: SND.NXT and RCV.NXT, the peer's MAC address, and when its time is over.

    `fields`: of packets that answer.
    """

    next_sent: int
    next_received: int
    mac: bytes
    until_us: int
    fields: IpFields = DEFAULT_FIELDS


class Answer(enum.Enum):
    """What a segment asks for."""

    NOTHING = enum.auto()
    ACKNOWLEDGE = enum.auto()
    NEW_CONNECTION = enum.auto()
    """A SYN with a sequence number that the old connection had not reached (3.6.1, MAY-2)."""


class TimeWait:
    """The table.

    Parameters
    ----------
    lifetime_us: 2 MSL.
    """

    def __init__(self, lifetime_us: int, maximum: int = MAXIMUM_ENTRIES):
        self._lifetime_us = lifetime_us
        self._maximum = maximum
        # The first one ends first.
        self._entries: OrderedDict[Ends, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, ends: Ends) -> bool:
        return ends in self._entries

    def get(self, ends: Ends) -> Waiting | None:
        """The entry, or `None`."""
        return self._entries.get(ends)

    def list(self) -> list[Ends]:
        """All endpoints."""
        return list(self._entries)

    def add(
        self,
        ends: Ends,
        next_sent: int,
        next_received: int,
        mac: bytes,
        now_us: int,
        fields: IpFields = DEFAULT_FIELDS,
    ) -> Ends | None:
        """Begin; returns the endpoints that had to go for it."""
        gone = None
        self.remove(ends)
        if len(self._entries) >= self._maximum:
            gone, _ = self._entries.popitem(last=False)
        until = now_us + self._lifetime_us
        self._entries[ends] = Waiting(next_sent, next_received, mac, until, fields)
        return gone

    def remove(self, ends: Ends) -> None:
        """End it early, if it is there."""
        self._entries.pop(ends, None)

    def receive(self, ends: Ends, segment: Segment, now_us: int) -> Answer:
        """Judge a segment of an entry (RFC 9293, 3.10.7.4); RST at RCV.NXT removes it."""
        entry = self._entries[ends]
        exact = segment.sequence == entry.next_received
        if segment.flags & Flag.RST:
            if exact:
                self.remove(ends)
            return Answer.NOTHING
        if segment.flags & Flag.SYN:
            newer = before(entry.next_received, segment.sequence)
            if newer and not segment.flags & Flag.ACK:
                return Answer.NEW_CONNECTION
            return Answer.ACKNOWLEDGE
        if exact and not segment.length:
            return Answer.NOTHING
        end = advance(segment.sequence, segment.length)
        if segment.flags & Flag.FIN and end == entry.next_received:
            entry.until_us = now_us + self._lifetime_us
            self._entries.move_to_end(ends)
        return Answer.ACKNOWLEDGE

    @property
    def next_us(self) -> int | None:
        """When the first one ends."""
        first = next(iter(self._entries.values()), None)
        return None if first is None else first.until_us

    def tick(self, now_us: int) -> None:
        """Forget those whose time is over."""
        while (until := self.next_us) is not None and until <= now_us:
            self._entries.popitem(last=False)
