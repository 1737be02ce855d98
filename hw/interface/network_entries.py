"""Entries of the rings through which the driver has frames: of the network queue, and of what it
sends.

No device has these rings yet, so they are not in `shared.ENTRIES` and the digest does not count
them. All fields are little endian.
"""

from enum import IntEnum

from stagecoach.hw.interface.queue_entries import Field, Fields, size_of

NETWORK_ENTRY: Fields = (
    Field("sequence", 4, "Of a connection: SND.MAX."),
    Field("acknowledgment", 4, "Of a connection: RCV.NXT."),
    Field("octets", 2, "Of a frame; 0: memory could not be written, its slot means nothing."),
    Field("slot", 2, "Of a frame: the running number of its slot modulo 2^16."),
    Field("connection", 1, "Which one it is about, if it is no frame."),
    Field("kind", 1, "NetworkKind."),
    Field("reserved_0", 1),
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
    READABLE = 8  # octets have come that the driver has to read
    FRAME = 9  # a frame that the engine has no connection for


assert size_of(NETWORK_ENTRY) == NETWORK_ENTRY_OCTETS
assert size_of(FRAME_DESCRIPTOR) == FRAME_DESCRIPTOR_OCTETS


def slot_octets(mtu: int) -> int:
    """Octets of a slot for received frames of packets of up to `mtu` octets."""
    return 2048 if mtu <= 2048 - 14 else 16384
