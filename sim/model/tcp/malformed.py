"""Why a packet is discarded before it reaches a connection."""

from enum import Enum


class Reason(Enum):
    """Name of each check of IPv4 and TCP headers, with its section."""

    IP_SHORT = "RFC 791, 3.1: shorter than an IPv4 header"
    IP_VERSION = "RFC 791, 3.1: version is not 4"
    IP_HEADER_LENGTH = "RFC 791, 3.1: IHL is below 5 or runs past the packet"
    IP_TOTAL_LENGTH = "RFC 791, 3.1: total length is below the header or past the packet"
    IP_CHECKSUM = "RFC 1122, 3.2.1.2: header checksum does not match"
    IP_FRAGMENT = "RFC 791, 3.1: a fragment, which has to be reassembled first"
    IP_PROTOCOL = "RFC 791, 3.1: protocol is not TCP"
    IP_SOURCE = "RFC 1122, 3.2.1.3: source address is not that of a single host"
    IP_DESTINATION = "RFC 9293, 3.9.2.3 (MUST-57): destination is a broadcast or multicast"
    IP_SOURCE_ROUTE = "RFC 791, 3.1: source routes are not followed"
    TCP_SHORT = "RFC 9293, 3.1: shorter than a TCP header"
    TCP_CHECKSUM = "RFC 9293, 3.1 (MUST-3): checksum does not match"
    TCP_DATA_OFFSET = "RFC 9293, 3.1: data offset is below 5 or runs past the segment"
    TCP_PORT = "RFC 9293, 3.1: port 0"
    ICMP_SHORT = "RFC 792: shorter than an ICMP header"
    ICMP_CHECKSUM = "RFC 792: checksum does not match"
    ICMP_QUOTE = "RFC 1122, 3.2.2: quotes less than an IPv4 header and 8 bytes"


class MalformedError(ValueError):
    """A packet failed a check; ``reason`` names it, the text has what was found."""

    def __init__(self, reason: Reason, found: str) -> None:
        super().__init__(f"{reason.name}: {found} ({reason.value})")
        self.reason = reason
