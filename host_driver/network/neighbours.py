"""Neighbours: MAC addresses by ARP, and packets that wait for one (RFC 826; RFC 1122, 2.3.2)."""

import enum
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from stagecoach.host_driver.network.arp import UNSPECIFIED, ArpPacket, Operation
from stagecoach.host_driver.network.ethernet import BROADCAST, NO_MAC, EtherType, Frame
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings

MAXIMUM_NEIGHBOURS = 256
MAXIMUM_SEARCHES = 64
"""Neighbours that are looked for at once."""
MAXIMUM_WAITING = 4
"""Packets that wait for a neighbour; the oldest goes first (RFC 1122, 2.3.2.2)."""

REACHABLE_US = 60 * SECOND_US
"""A neighbour is asked again, by unicast, if it is used after this time (RFC 1122, 2.3.2.1)."""
REQUEST_US = SECOND_US
"""Between two requests for one address."""
REQUESTS = 3
"""So many are sent before a neighbour is given up."""


class NeighbourState(enum.Enum):
    """What is known of a neighbour."""

    SEARCHING = "searching"
    REACHABLE = "reachable"
    CHECKING = "checking"
    """Its address is old: it is used and asked for."""


@dataclass(slots=True)
class _Entry:
    mac: bytes | None
    heard_us: int
    requests: int = 0
    due_us: int | None = None
    waiting: deque[bytes] = field(default_factory=lambda: deque(maxlen=MAXIMUM_WAITING))

    @property
    def state(self) -> NeighbourState:
        if self.mac is None:
            return NeighbourState.SEARCHING
        return NeighbourState.REACHABLE if self.due_us is None else NeighbourState.CHECKING


@dataclass(frozen=True)
class Neighbour:
    """An entry of the table; `age_us` since it was heard last."""

    address: IPv4Address
    mac: bytes | None
    state: NeighbourState
    age_us: int


class Neighbours:
    """The table, its requests and replies.

    Parameters
    ----------
    send: sends a frame. unreachable: is called with the address of a neighbour that did not
        answer, as often as that happens. conflict: with the MAC address of another interface that
        claims the local address. heard: with a neighbour and the MAC address that it says, which
        may be the one that is known.

    Who is not known is learned only from what is addressed to this host (a flood of packets between
    others changes nothing); the entry of a known neighbour follows each of its packets, also an
    announcement (RFC 826, the merge). Nothing is learned from probes (RFC 5227, 2.1.1).
    """

    def __init__(
        self,
        settings: NetworkSettings,
        send: Callable[[Frame], None],
        unreachable: Callable[[IPv4Address], None],
        conflict: Callable[[bytes], None],
        heard: Callable[[IPv4Address, bytes], None],
        counters: Counter[str],
    ):
        self._settings = settings
        self._send = send
        self._unreachable = unreachable
        self._conflict = conflict
        self._heard = heard
        self._counters = counters
        # The one heard longest ago comes first.
        self._entries: OrderedDict[IPv4Address, _Entry] = OrderedDict()
        self._busy: OrderedDict[IPv4Address, _Entry] = OrderedDict()  # those with `due_us`

    def list(self, now_us: int) -> list[Neighbour]:
        """All that are known or looked for."""
        return [
            Neighbour(address, entry.mac, entry.state, now_us - entry.heard_us)
            for address, entry in self._entries.items()
        ]

    def mac(self, address: IPv4Address) -> bytes | None:
        """The MAC address if it is known."""
        entry = self._entries.get(address)
        return None if entry is None else entry.mac

    def deliver(self, address: IPv4Address, packet: bytes, now_us: int) -> None:
        """Send an IPv4 packet to a neighbour, when its MAC address is known."""
        entry = self._searched(address, now_us)
        if entry is None:
            return
        if entry.mac is not None:
            self._send_packet(entry.mac, packet)
            if entry.due_us is None and now_us - entry.heard_us >= REACHABLE_US:
                self._ask(address, entry, now_us)
            return
        if len(entry.waiting) == MAXIMUM_WAITING:
            self._counters["arp_waiting_dropped"] += 1
        entry.waiting.append(packet)
        if entry.due_us is None:
            self._ask(address, entry, now_us)

    def _searched(self, address: IPv4Address, now_us: int) -> _Entry | None:
        """The entry of a neighbour, a new one if it has none; `None` if there is no room."""
        entry = self._entries.get(address)
        if entry is None:
            if len(self._busy) >= MAXIMUM_SEARCHES:
                self._counters["arp_searches_full"] += 1
                return None
            entry = self._add(address, _Entry(None, now_us))
        return entry

    def check(self, address: IPv4Address, now_us: int) -> None:
        """Ask a neighbour whether it is there; one that is not known is looked for."""
        entry = self._searched(address, now_us)
        if entry is not None and entry.due_us is None:
            self._ask(address, entry, now_us)

    def receive(self, packet: ArpPacket, now_us: int) -> None:
        """Take a packet of ARP (tables of RFC 826, with the merge for packets to this host)."""
        own = self._settings.own
        if packet.sender == own:
            if packet.sender_mac != self._settings.mac:
                self._counters["arp_conflict"] += 1
                self._conflict(packet.sender_mac)
            return
        for_us = packet.target == own
        if not for_us and packet.sender not in self._entries:
            self._counters["arp_not_for_us"] += 1
            return
        if packet.sender != UNSPECIFIED:
            if packet.sender not in self._settings.address.network:
                self._counters["arp_off_link"] += 1
                return
            self._learn(packet, now_us)
        if for_us and packet.operation == Operation.REQUEST:
            self._counters["arp_replies"] += 1
            answer = ArpPacket(
                *(Operation.REPLY, self._settings.mac, own),
                *(packet.sender_mac, packet.sender),
            )
            self._send_arp(packet.sender_mac, answer)

    def _learn(self, packet: ArpPacket, now_us: int) -> None:
        entry = self._entries.get(packet.sender)
        if entry is None:
            if packet.operation == Operation.REPLY:
                self._counters["arp_unsolicited"] += 1
                return
            entry = self._add(packet.sender, _Entry(packet.sender_mac, now_us))
        if entry.mac not in (None, packet.sender_mac):
            self._counters["arp_moved"] += 1
        entry.mac = packet.sender_mac
        entry.heard_us = now_us
        entry.requests = 0
        entry.due_us = None
        self._entries.move_to_end(packet.sender)
        self._busy.pop(packet.sender, None)
        self._heard(packet.sender, packet.sender_mac)
        while entry.waiting:
            self._send_packet(entry.mac, entry.waiting.popleft())

    def _add(self, address: IPv4Address, entry: _Entry) -> _Entry:
        """Make room: the entry heard longest ago goes that is not looked for."""
        if len(self._entries) >= MAXIMUM_NEIGHBOURS:
            del self._entries[next(each for each in self._entries if each not in self._busy)]
            self._counters["arp_evicted"] += 1
        self._entries[address] = entry
        return entry

    def _ask(self, address: IPv4Address, entry: _Entry, now_us: int) -> None:
        entry.requests += 1
        entry.due_us = now_us + REQUEST_US
        self._busy[address] = entry
        self._counters["arp_requests"] += 1
        request = ArpPacket(
            *(Operation.REQUEST, self._settings.mac, self._settings.own, NO_MAC, address)
        )
        self._send_arp(entry.mac or BROADCAST, request)

    @property
    def next_us(self) -> int | None:
        """When `tick` has something to do."""
        return min((e.due_us for e in self._busy.values() if e.due_us is not None), default=None)

    def tick(self, now_us: int) -> None:
        """Ask again, or give up."""
        for address, entry in list(self._busy.items()):
            if entry.due_us is None or now_us < entry.due_us:
                continue
            if entry.requests < REQUESTS:
                self._ask(address, entry, now_us)
                continue
            # Another attempt begins anew, a second after the last request.
            del self._busy[address], self._entries[address]
            self._counters["arp_failed"] += 1
            self._unreachable(address)

    def flush(self) -> None:
        """Forget all that is not looked for (RFC 1122, 2.3.2.1)."""
        for address in [each for each in self._entries if each not in self._busy]:
            del self._entries[address]

    def _send_arp(self, destination: bytes, packet: ArpPacket) -> None:
        mac = self._settings.mac
        self._send(Frame(destination, mac, EtherType.ARP, packet.encode()))

    def _send_packet(self, mac: bytes, packet: bytes) -> None:
        self._send(Frame(mac, self._settings.mac, EtherType.IPV4, packet))
