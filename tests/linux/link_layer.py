"""Frames of a host that knows IPv4 packets alone: ARP, and the gateway."""

from collections import deque
from ipaddress import IPv4Address, IPv4Interface

from stagecoach.host_driver.network import arp, ethernet
from stagecoach.host_driver.network.arp import ArpPacket, Operation
from stagecoach.host_driver.network.ethernet import BROADCAST, NO_MAC, EtherType, Frame
from stagecoach.host_driver.network.refusal import Refused

_AGAIN_US = 500_000
_DESTINATION = slice(16, 20)  # of an IPv4 header


class LinkLayer:
    """Frames to be sent wait in `output`. Times are microseconds."""

    def __init__(self, interface: IPv4Interface, mac: bytes, gateway: IPv4Address | None) -> None:
        self.output: deque[bytes] = deque()
        self._interface = interface
        self._mac = mac
        self._gateway = gateway
        self._known: dict[IPv4Address, bytes] = {}
        self._waiting: dict[IPv4Address, list[bytes]] = {}
        self._ask_at = 0

    @property
    def next_deadline(self) -> int | None:
        """When a question has to be asked again."""
        return self._ask_at if self._waiting else None

    def send(self, now: int, packet: bytes) -> None:
        """Send an IPv4 packet, once its next hop is known."""
        hop = IPv4Address(packet[_DESTINATION])
        if self._gateway is not None and hop not in self._interface.network:
            hop = self._gateway
        if mac := self._known.get(hop):
            self.output.append(Frame(mac, self._mac, EtherType.IPV4, packet).encode())
            return
        self._waiting.setdefault(hop, []).append(packet)
        if len(self._waiting[hop]) == 1:
            self._ask(now)

    def timer(self, now: int) -> None:
        """Ask again if nobody has answered."""
        if self._waiting and now >= self._ask_at:
            self._ask(now)

    def take(self, now: int, octets: bytes) -> bytes | None:
        """A frame comes; returns its IPv4 packet."""
        try:
            frame = ethernet.decode(octets, self._mac)
            if frame.kind == EtherType.IPV4:
                return frame.payload
            self._take_arp(now, arp.decode(frame.payload))
        except Refused:
            pass
        return None

    def _ask(self, now: int) -> None:
        self._ask_at = now + _AGAIN_US
        for hop in self._waiting:
            self._arp(BROADCAST, ArpPacket(Operation.REQUEST, *self._own, NO_MAC, hop))

    def _take_arp(self, now: int, packet: ArpPacket) -> None:
        if packet.target != self._interface.ip:
            return
        ends = packet.sender_mac, packet.sender
        self._known[packet.sender] = packet.sender_mac
        if packet.operation is Operation.REQUEST:
            self._arp(packet.sender_mac, ArpPacket(Operation.REPLY, *self._own, *ends))
        for waited in self._waiting.pop(packet.sender, []):
            self.send(now, waited)

    @property
    def _own(self) -> tuple[bytes, IPv4Address]:
        return self._mac, self._interface.ip

    def _arp(self, to: bytes, packet: ArpPacket) -> None:
        self.output.append(Frame(to, self._mac, EtherType.ARP, packet.encode()).encode())
