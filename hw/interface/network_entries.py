"""What a network's driver and its device share beside registers: entries of the rings through which
the driver has frames, rows of headers, and what INFO tells. All fields are little endian.
"""

from enum import IntEnum, IntFlag

from stagecoach.hw.interface.queue_entries import Field, Fields, size_of

NETWORK_ENTRY: Fields = (
    Field("sequence", 4, "Of a connection: SND.MAX."),
    Field("acknowledgment", 4, "Of a connection: RCV.NXT."),
    Field("octets", 2, "Of a frame; 0: memory could not be written, its slot means nothing."),
    Field("slot", 2, "Of a frame: the running number of its slot modulo 2^16."),
    Field("connection", 1, "Which one it is about, if it is no frame."),
    Field("kind", 1, "NetworkKind."),
    Field("flags", 1, "NetworkFlags."),
    Field("phase", 1, "Bit 0: inverted every turn of the ring, 1 where bit log2 of a number is 0."),
)
NETWORK_ENTRY_OCTETS = 16

FRAME_DESCRIPTOR: Fields = (
    Field("address", 8, "Of the frame, from its destination address on: a multiple of 8."),
    Field("octets", 2, "Of the frame without FCS: 14 to the MTU and 14."),
    Field("reserved_0", 6),
)
FRAME_DESCRIPTOR_OCTETS = 16


class NetworkKind(IntEnum):
    """What an entry of the network queue tells.

    Those up to MEMORY are of a connection that the engine has: it is suspect, or why it has ended.
    """

    SUSPECT = 0  # R1 retransmissions without an acknowledgment (RFC 9293, SHLD-9)
    CLOSED = 1  # both directions were closed, the peer's first
    TIME_WAIT = 2  # both were, ours first or at once: 2 MSL are the driver's
    ABORTED = 3
    RESET = 4  # by the peer
    TIMED_OUT = 5  # no acknowledgment for R2
    DATA_LOST = 6  # of the peer, that nobody will read (RFC 9293, SHLD-3)
    MEMORY = 7  # a ring could not be written
    READABLE = 8  # bytes have come that the driver has to read
    FRAME = 9  # a frame that the engine has no connection for


class NetworkFlags(IntFlag):
    """Of an entry of a connection."""

    FIN = 1  # the peer's FIN has come, and all before it: RCV.NXT is after it


class FrameFate(IntEnum):
    """What became of a received frame: it is kept, or the first check that it failed."""

    SEGMENT = 0  # a good TCP segment
    RAW = 1  # good, but not of TCP: for the driver, or answered
    LINK_ERROR = 2  # the MAC says so
    LONG = 3  # longer than the MTU allows
    SHORT = 4  # shorter than its header
    ADDRESS = 5  # to another station, or from a group
    ETHERTYPE = 6  # neither IPv4 nor ARP
    IP_SHORT = 7  # shorter than an IPv4 header
    IP_VERSION = 8  # not 4
    IP_HEADER_LENGTH = 9  # IHL below 5, or past the frame
    IP_CHECKSUM = 10
    IP_TOTAL_LENGTH = 11  # below the header, or past the frame
    IP_FRAGMENT = 12
    IP_SOURCE = 13  # not the address of a single host (RFC 1122, 3.2.1.3)
    IP_DESTINATION = 14  # TCP to a group, or in a frame to a group (RFC 9293, MUST-57)
    TCP_SHORT = 15  # shorter than a TCP header
    TCP_CHECKSUM = 16
    TCP_DATA_OFFSET = 17  # below 5, or past the segment
    TCP_PORT = 18  # 0
    FULL = 19  # good, but there was no room


class HeaderRow(IntEnum):
    """Rows of a connection's headers, each of 8 bytes. The first four are words of its frames, from
    the destination address on; the engine fills in the rest. Bytes that are not named mean nothing.
    """

    DESTINATION = 0  # MAC address of the next hop, bytes 0 and 1 of this station's
    SOURCE = 1  # its bytes 2 to 5
    ADDRESSES = 3  # from byte 2 on: the local address, bytes 0 and 1 of the remote one
    PORTS = 4  # bytes 2 and 3 of the remote address, the local port, the remote port
    FIELDS = 7  # header_fields


HEADER_FIELDS: Fields = (
    Field("ip_sum", 2, "One's complement sum of the IPv4 header, length and checksum 0."),
    Field("tcp_sum", 2, "One's complement sum of addresses, protocol and ports."),
    Field("service", 1, "DSCP in bits 7 to 2; ECN is 0."),
    Field("ttl", 1, "TTL."),
    Field("shift", 1, "Rcv.Wind.Shift, at most 14; 128 more if SACK blocks may be sent."),
    Field("reserved_0", 1),
)
"""Sums of big-endian 16-bit words, each sum itself a little-endian field as all fields are."""


class InfoFlags(IntFlag):
    """How a connection is, in INFO."""

    ALIVE = 1  # the engine has it
    ATTACHED = 2  # the LLP has the stream
    CLOSING = 4  # our FIN follows what was queued
    FIN_ACKNOWLEDGED = 8  # it was acknowledged
    PEER_FIN = 16  # the peer's FIN has come, and all before it
    SAMPLED = 32  # a round trip was measured


CONNECTION_INFO: Fields = (
    Field("una", 4, "SND.UNA."),
    Field("next", 4, "SND.NXT."),
    Field("max", 4, "The number after all that was sent; our FIN counts."),
    Field("end", 4, "The number after all bytes that were queued."),
    Field("window", 4, "SND.WND."),
    Field("cwnd", 4, "Congestion window."),
    Field("ssthresh", 4, "Slow start threshold."),
    Field("srtt8", 4, "8 SRTT, in microseconds."),
    Field("rttvar4", 4, "4 RTTVAR, in microseconds."),
    Field("rto", 4, "RTO, in microseconds."),
    Field("emss", 4, "EMSS."),
    Field("flags", 4, "InfoFlags."),
    Field("edge", 4, "Right edge of the window."),
    Field("received", 4, "RCV.NXT, of what is stored."),
    Field("segments_received", 4, "Segments that came."),
    Field("segments_sent", 4, "Segments that left, but for those of the next word."),
    Field("segments_again", 4, "Segments that left, and begin with what had left before."),
)
"""Words of TCP_INFO, by TCP_INFO_WORD: those before `received` are of one moment, the others of
when they are read. Segments are counted by the number of a connection, modulo 2^32, and go on when
it is used again: what a connection begins with is to be subtracted."""

assert size_of(HEADER_FIELDS) == 8
assert size_of(NETWORK_ENTRY) == NETWORK_ENTRY_OCTETS
assert size_of(FRAME_DESCRIPTOR) == FRAME_DESCRIPTOR_OCTETS


def slot_octets(mtu: int) -> int:
    """Bytes of a slot for received frames of packets of up to `mtu` bytes."""
    return 2048 if mtu <= 2048 - 14 else 16384
