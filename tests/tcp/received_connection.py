"""A connection of the reference TCP as it is on the wire, and what the device has of its stream."""

from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from stagecoach.sim.model.tcp.segment import Segment, encode_packet
from tests.tcp.frames import IPV4, MAC, PEER
from tests.tcp.receive_reference import SPACE, Reference

LOCAL = IPv4Address("192.0.2.2")


@dataclass
class Connection:
    """One of the reference, its ends, and what the device has of it."""

    known: Reference
    remote: IPv4Address
    ports: tuple[int, int]  # of the peer, and here
    lane: int | None = None
    base: int = 0  # position of the LLP's position 0
    settled: int = 0  # number after the last octet that has to be there
    asked: int = 0  # positions of the stream
    read: int = 0
    dead: bool = False  # reset, or its data was lost
    closed: bool = False  # the device was told, or will be
    ended: bool = False  # for the sending side, too
    found: bool = True  # by the lookup

    @property
    def key(self) -> dict[str, int]:
        remote_port, local_port = self.ports
        ends = {"local": int(LOCAL), "remote": int(self.remote)}
        return {**ends, "local_port": local_port, "remote_port": remote_port}

    @property
    def end(self) -> int:
        """Position after the last octet that is there."""
        return (self.settled - self.known.number(0)) % SPACE

    def frame(self, segment: Segment) -> bytes:
        own = replace(segment, source_port=self.ports[0], destination_port=self.ports[1])
        return (MAC + PEER + IPV4 + encode_packet(own, self.remote, LOCAL)).ljust(60, b"\0")
