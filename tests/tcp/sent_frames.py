"""What is sent on a connection, as the reference TCP and the driver say it, and scapy reads it."""

from dataclasses import dataclass
from ipaddress import IPv4Address
from random import Random

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from stagecoach.gateware.tcp.builder import HEADER_FIELDS, HeaderRow
from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout
from stagecoach.gateware.tcp.settle import SETTLED
from stagecoach.host_driver.network.ethernet import EtherType, Frame
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.host_driver.network.tcp import Segment as DriverSegment
from stagecoach.sim.cosim.streams import pack, unpack
from stagecoach.sim.model.tcp.checksum import ones_complement_sum
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import Flags, Segment, encode_packet
from stagecoach.sim.model.tcp.window import field_for
from tests.tcp.receive_reference import SPACE


@dataclass
class Connection:
    """Ends, as `Established` names them, and what is received."""

    local_mac: bytes
    remote_mac: bytes
    local: tuple[IPv4Address, int]
    remote: tuple[IPv4Address, int]
    dscp: int
    ttl: int
    shift: int
    number: int
    window: int  # up to the right edge
    ranges: list[tuple[int, int]]
    sack: bool = True  # blocks may be sent

    @classmethod
    def random(cls, rng: Random) -> "Connection":
        shift = rng.choice([0, 0, 2, 14, rng.randrange(15)])
        number = rng.choice([0, SPACE - 1, rng.getrandbits(32)])
        largest = min((0xFFFF << shift) + (1 << shift), 1 << 30)
        window = rng.choice([0, 1, 0xFFFF << shift, largest, rng.randrange(largest)])
        ranges, at = [], number + 1
        for _ in range(rng.randrange(RANGES + 1)):
            octets = rng.choice([1, 1460, rng.randrange(1, 1 << 20)])
            ranges.append((at % SPACE, (at + octets) % SPACE))
            at += octets + rng.choice([1, 1460, rng.randrange(1, 1 << 20)])
        rng.shuffle(ranges)
        return cls(
            *(rng.randbytes(6), rng.randbytes(6)),
            *((IPv4Address(rng.getrandbits(32)), rng.randrange(1, 1 << 16)) for _ in range(2)),
            *(rng.choice([0, 63, rng.randrange(64)]), rng.choice([1, 64, 255]), shift),
            *(number, window, ranges),
        )

    def rows(self) -> dict[HeaderRow, int]:
        """As the driver writes them."""
        ends = self.local[0].packed + self.remote[0].packed
        ports = self.local[1].to_bytes(2, "big") + self.remote[1].to_bytes(2, "big")
        fixed = bytes((0x45, self.dscp << 2, 0, 0, 0, 0, 0x40, 0, self.ttl, 6)) + ends
        fields = {
            "ip_sum": ones_complement_sum(fixed),
            "tcp_sum": ones_complement_sum(ends + ports + bytes((0, 6))),
            "service": self.dscp << 2,
            "ttl": self.ttl,
            "shift": self.shift,
            "blocks": self.sack,
        }
        octets = {
            HeaderRow.DESTINATION: self.remote_mac + self.local_mac[:2],
            HeaderRow.SOURCE: self.local_mac[2:],
            HeaderRow.ADDRESSES: bytes(2) + ends[:6],
            HeaderRow.PORTS: ends[6:] + ports,
        }
        rows = {row: int.from_bytes(each, "little") for row, each in octets.items()}
        return rows | {HeaderRow.FIELDS: pack(HEADER_FIELDS, fields)}

    def settled(self) -> int:
        edge = (self.number + self.window) % SPACE
        return pack(SETTLED, number=self.number, edge=edge)

    def packed_ranges(self, rng: Random) -> int:
        """Each in any place; places that hold none mean nothing."""
        order = rng.sample(range(RANGES), RANGES)
        places = [{"first": rng.getrandbits(32), "end": rng.getrandbits(32)} for _ in order]
        for place, (first, end) in zip(order, self.ranges, strict=False):
            places[place] = {"first": first, "end": end}
        fields = {"list": places, "order": order, "used": len(self.ranges)}
        return pack(ranges_layout(), fields)

    def frame(self, sequence: int, flags: Flags, payload: bytes, blocks: bool) -> bytes:
        """By the reference TCP, with the header that `sim/network/engine.py` puts before it."""
        acknowledgment = self.number if Flags.ACK in flags else 0
        segment = Segment(
            *(self.local[1], self.remote[1], sequence, acknowledgment, flags),
            *(field_for(self.window, 0, self.shift), payload),
            Options(sack=tuple(self.ranges) if blocks and self.sack else ()),
        )
        packet = encode_packet(segment, self.local[0], self.remote[0], self.dscp, self.ttl)
        return self.remote_mac + self.local_mac + b"\x08\x00" + packet

    def option(self) -> bytes:
        """The blocks, as they stand in a header."""
        return Options(sack=tuple(self.ranges)).encode()

    def parts(self, sequence: int) -> bytes:
        """Whose words are added for a bare ACK: two are sums already."""
        fields = unpack(HEADER_FIELDS, self.rows()[HeaderRow.FIELDS])
        tcp = self.frame(sequence, Flags.ACK, b"", False)[34:]
        return tcp[4:16] + fields["tcp_sum"].to_bytes(2, "big") + (20).to_bytes(2, "big")

    def driver_frame(self, sequence: int, flags: Flags, payload: bytes) -> bytes:
        """By the driver, without options."""
        acknowledgment = self.number if Flags.ACK in flags else 0
        window = field_for(self.window, 0, self.shift)
        numbers = sequence, acknowledgment, int(flags), window
        octets = DriverSegment(self.local, self.remote, *numbers, data=payload).encode()
        ends = self.local[0], self.remote[0], Protocol.TCP
        datagram = Datagram(*ends, octets, self.ttl, service=self.dscp << 2).encode()
        return Frame(self.remote_mac, self.local_mac, EtherType.IPV4, datagram).encode()


def octets_of(beats: list[dict[str, int]]) -> bytes:
    """A frame."""
    octets = b""
    for beat in beats:
        assert beat["octets"] == 8 or (beat["last"] and beat["octets"])
        octets += beat["data"].to_bytes(8, "little")[: beat["octets"]]
    return octets


def read_by_scapy(frame: bytes) -> None:
    """Its checksums are those that scapy computes, and lengths and options are right."""
    packet = Ether(frame)
    assert packet[IP].len == len(frame) - 14
    sums = packet[IP].chksum, packet[TCP].chksum
    del packet[IP].chksum, packet[TCP].chksum
    again = Ether(bytes(packet))
    assert bytes(again) == frame
    assert (again[IP].chksum, again[TCP].chksum) == sums
    assert len(packet[TCP].payload) + packet[TCP].dataofs * 4 == len(frame) - 34
