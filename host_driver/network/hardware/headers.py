"""The rows of a connection's headers, from which the engine makes its frames."""

from ipaddress import IPv4Address

from stagecoach.host_driver.entries import EntryLayout
from stagecoach.host_driver.network.checksum import checksum
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.ipv4 import Datagram, Protocol
from stagecoach.hw.interface.network_entries import HEADER_FIELDS, HeaderRow

SACK_PERMITTED = 128
"""In the field `shift`: SACK blocks may be sent."""

_FIELDS = EntryLayout(HEADER_FIELDS)
_CHECKSUM_AT = 10
_LENGTH_AT = 2

End = tuple[IPv4Address, int]


def link_rows(remote_mac: bytes, local_mac: bytes) -> dict[HeaderRow, bytes]:
    """Those with MAC addresses."""
    return {
        HeaderRow.DESTINATION: remote_mac + local_mac[:2],
        HeaderRow.SOURCE: local_mac[2:].ljust(8, b"\0"),
    }


def end_rows(local: End, remote: End) -> dict[HeaderRow, bytes]:
    """Those with addresses and ports."""
    addresses = local[0].packed + remote[0].packed
    return {
        HeaderRow.ADDRESSES: bytes(2) + addresses[:6],
        HeaderRow.PORTS: addresses[6:] + local[1].to_bytes(2) + remote[1].to_bytes(2),
    }


def field_rows(
    local: End, remote: End, fields: IpFields, shift: int, selective: bool
) -> dict[HeaderRow, bytes]:
    """The one with sums, DSCP and TTL. selective: SACK blocks may be sent."""
    datagram = Datagram(local[0], remote[0], Protocol.TCP, b"", fields.ttl, service=fields.service)
    header = bytearray(datagram.encode())
    for at in (_LENGTH_AT, _CHECKSUM_AT):
        header[at : at + 2] = bytes(2)
    pseudo = local[0].packed + remote[0].packed + bytes((0, Protocol.TCP))
    ports = local[1].to_bytes(2) + remote[1].to_bytes(2)
    row = _FIELDS.pack(
        ip_sum=_sum(bytes(header)),
        tcp_sum=_sum(pseudo + ports),
        service=fields.service,
        ttl=fields.ttl,
        shift=shift | (SACK_PERMITTED if selective else 0),
    )
    return {HeaderRow.FIELDS: row}


def _sum(octets: bytes) -> int:
    """One's complement sum of big-endian words."""
    return ~checksum(octets) & 0xFFFF
