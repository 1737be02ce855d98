"""A peer at the other end of a `FakePort` that answers at once: ARP, echo, and SYN."""

import threading
from collections.abc import Callable
from typing import Any

from stagecoach.host_driver.network import arp, ethernet, icmp, ipv4, tcp
from stagecoach.host_driver.network.arp import ArpPacket, Operation
from stagecoach.host_driver.network.ethernet import EtherType
from stagecoach.host_driver.network.icmp import IcmpMessage, Kind
from stagecoach.host_driver.network.ipv4 import Protocol
from stagecoach.host_driver.network.tcp import Segment
from tests.host_driver.network.port import FakePort
from tests.host_driver.network.rig import (
    ACK,
    LINUX,
    PEER,
    PEER_MAC,
    RST,
    SYN,
    arp_frame,
    icmp_frame,
    segment_frame,
)


class Peer:
    """At 192.0.2.1.

    Attributes
    ----------
    ports: that it listens at; it refuses all others. silent: it answers ARP alone.
    """

    def __init__(self, port: FakePort, *ports: int):
        self.port = port
        self.ports = set(ports)
        self.silent = False
        port.peer = self.take

    def take(self, octets: bytes) -> None:
        """The driver sent a frame."""
        frame = ethernet.decode(octets, octets[:6])
        if frame.kind == EtherType.ARP:
            self._arp(arp.decode(frame.payload))
        elif not self.silent:
            datagram = ipv4.decode(frame.payload)
            if datagram.protocol == Protocol.ICMP:
                self._echo(icmp.decode(datagram.payload))
            else:
                self._segment(tcp.decode(datagram))

    def _arp(self, packet: ArpPacket) -> None:
        if packet.target == PEER and packet.operation == Operation.REQUEST:
            ends = packet.sender_mac, packet.sender
            self.port.frame(arp_frame(ArpPacket(Operation.REPLY, PEER_MAC, PEER, *ends)))

    def _echo(self, message: IcmpMessage) -> None:
        if message.kind == Kind.ECHO:
            numbers = message.first, message.second
            self.port.frame(icmp_frame(IcmpMessage(Kind.ECHO_REPLY, 0, *numbers, message.body)))

    def _segment(self, segment: Segment) -> None:
        ends = segment.destination, segment.source
        number = (segment.sequence + 1) % 2**32
        if segment.flags == SYN:
            flags = SYN | ACK if segment.destination[1] in self.ports else RST | ACK
            answer = Segment(*ends, 7000, number, flags, 64240, LINUX)
        elif segment.flags == SYN | ACK:
            answer = Segment(*ends, segment.acknowledgment, number, ACK, 502)
        else:
            return
        self.port.frame(segment_frame(answer))

    def open(self, local: tuple[ipv4.IPv4Address, int], source: int = 40000) -> None:
        """Begin a connection to the driver."""
        self.port.frame(segment_frame(Segment((PEER, source), local, 3000, 0, SYN, 64240, LINUX)))


class Background:
    """Something that a thread does."""

    def __init__(self, work: Callable[[], Any]):
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """What it returned; raises what it raised."""
        self._thread.join(20)
        assert not self._thread.is_alive(), "the thread does not end"
        if self._error is not None:
            raise self._error
        return self._value
