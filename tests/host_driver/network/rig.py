"""A service on a fake port, stepped by the test, and a peer that is written down in frames."""

from collections.abc import Iterable
from ipaddress import IPv4Address

from stagecoach.host_driver.network import arp, ethernet, icmp, ipv4, tcp
from stagecoach.host_driver.network.address_claim import SHORT
from stagecoach.host_driver.network.arp import ArpPacket, Operation
from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.icmp import IcmpMessage
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.openings import Opening
from stagecoach.host_driver.network.service import Service
from stagecoach.host_driver.network.settings import SECOND_US, NetworkSettings
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.network.tcp_options import SynOptions
from stagecoach.host_driver.network.turn import Turn
from tests.host_driver.network.port import EngineStream, FakePort

PEER, OWN = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
PEER_MAC, OWN_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
GATEWAY, GATEWAY_MAC = IPv4Address("192.0.2.254"), bytes.fromhex("0200000000fe")
FAR = IPv4Address("198.51.100.7")
SETTINGS = NetworkSettings.parse("192.0.2.2/24", OWN_MAC, "192.0.2.254")

SYN, ACK, RST, FIN = Flag.SYN, Flag.ACK, Flag.RST, Flag.FIN
LINUX = SynOptions(1460, 7, True).encode()
"""Options of a SYN."""


def framed(packet: bytes, mac: bytes = PEER_MAC, destination: bytes = OWN_MAC) -> bytes:
    return Frame(destination, mac, EtherType.IPV4, packet).encode()


def segment_frame(segment: Segment, mac: bytes = PEER_MAC) -> bytes:
    source, destination = segment.source[0], segment.destination[0]
    return framed(Datagram(source, destination, Protocol.TCP, segment.encode()).encode(), mac)


def icmp_frame(message: IcmpMessage, source: IPv4Address = PEER, mac: bytes = PEER_MAC) -> bytes:
    return framed(Datagram(source, OWN, Protocol.ICMP, message.encode()).encode(), mac)


def arp_frame(packet: ArpPacket, destination: bytes = OWN_MAC) -> bytes:
    return Frame(destination, packet.sender_mac, EtherType.ARP, packet.encode()).encode()


class Rig:
    """The driver at 192.0.2.2, its peer at 192.0.2.1, a gateway at 192.0.2.254.

    Parameters
    ----------
    claimed: go on until the address may be used.
    """

    def __init__(
        self,
        settings: NetworkSettings = SETTINGS,
        *,
        port: FakePort | None = None,
        claimed: bool = True,
    ):
        self.port = port or FakePort()
        self.turn = Turn(self.port)
        self.service = Service(self.turn, settings, SHORT)
        self.connections = self.service.connections
        self.counters = self.service.counters
        if claimed:
            self.run(4.0)
            self.port.sent.clear()
            self.counters.clear()

    def run(self, seconds: float) -> list[bytes]:
        """Let the time go on; returns the frames that were sent."""
        until = self.port.now + round(seconds * SECOND_US)
        before = len(self.port.sent)
        while True:
            following = self.service.serve()
            if following is None or following > until:
                self.port.now = until
                return self.port.sent[before:]
            self.port.now = max(self.port.now, following)

    def take(self, *frames: bytes) -> list[bytes]:
        """The frames come; returns those that were sent at once."""
        before = len(self.port.sent)
        for frame in frames:
            self.port.frame(frame)
        while self.service.serve() == self.port.now:
            pass
        return self.port.sent[before:]

    def know(self, address: IPv4Address = PEER, mac: bytes = PEER_MAC) -> None:
        """Have the driver learn a neighbour."""
        self.take(arp_frame(ArpPacket(Operation.REQUEST, mac, address, bytes(6), OWN)))
        self.port.sent.clear()

    def segments(self, frames: Iterable[bytes]) -> list[Segment]:
        """Those of TCP among frames that were sent."""
        found = []
        for frame in frames:
            whole = ethernet.decode(frame, frame[:6])
            if whole.kind == EtherType.IPV4:
                datagram = ipv4.decode(whole.payload)
                if datagram.protocol == Protocol.TCP:
                    found.append(tcp.decode(datagram))
        return found

    def exchange(self, *segments: Segment) -> list[Segment]:
        """Segments come; returns those that were sent at once."""
        return self.segments(self.take(*(segment_frame(segment) for segment in segments)))

    def listen(self, port: int = 4420, backlog: int = 8) -> NetworkListener:
        return self.connections.listen(port, backlog)

    def open(self, remote: tuple[IPv4Address, int] = (PEER, 4420), seconds: float = 180) -> Opening:
        """Begin a connection."""
        return self.connections.connect(remote, seconds, self.port.now)

    def accepted(
        self, listener: NetworkListener, source: int = 40000
    ) -> tuple[NetworkStream, EngineStream]:
        """A peer opens a connection from a port."""
        local, remote = (OWN, int(listener.address[1])), (PEER, source)
        (answer,) = self.exchange(Segment(remote, local, 1000, 0, SYN, 64240, LINUX))
        number = (answer.sequence + 1) % 2**32
        assert not self.exchange(Segment(remote, local, 1001, number, ACK, 502))
        stream = listener.accept(0)
        return stream, self.port.streams[stream.handle]


def arp_packets(frames: Iterable[bytes]) -> list[ArpPacket]:
    """Those of ARP among frames that were sent."""
    found = [ethernet.decode(frame, frame[:6]) for frame in frames]
    return [arp.decode(frame.payload) for frame in found if frame.kind == EtherType.ARP]


def icmp_messages(frames: Iterable[bytes]) -> list[IcmpMessage]:
    """Those of ICMP among frames that were sent."""
    found = [ethernet.decode(frame, frame[:6]) for frame in frames]
    packets = [ipv4.decode(frame.payload) for frame in found if frame.kind == EtherType.IPV4]
    return [icmp.decode(each.payload) for each in packets if each.protocol == Protocol.ICMP]
