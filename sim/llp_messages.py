"""Messages between a compiled device and what stands behind its LLP port as a network engine.

They cross a socket that keeps their bounds (SOCK_SEQPACKET): a header of 16 bytes, then bytes of
the stream. Positions count the bytes of one direction since ATTACH.
"""

import enum
import struct

HEADER = struct.Struct("<IIQ")
"""Kind, LLP connection, value."""


class LlpMessage(enum.IntEnum):
    """What a message says of its connection."""

    # To the device.
    ATTACH = 0  # a stream begins; value: bytes of its TX ring
    DATA = 1  # bytes that were received, in order
    ACKNOWLEDGED = 2  # value: position up to which the TX ring is free again
    EMSS = 3  # value: bytes
    ENDED = 4  # no byte follows; value: 1 if the connection is lost in both directions
    DETACH = 5  # the stream leaves the device
    # From the device.
    FPDU = 6  # one FPDU, whole
    CLOSE = 7  # nothing more is sent: FIN
    RELEASED = 8  # value: position up to which received bytes are no longer needed
    DETACHED = 9  # the answer to DETACH: nothing of that stream follows
