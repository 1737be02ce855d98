"""What a device records of its streams: every FPDU that it sent, every byte that it received."""

import enum
from dataclasses import dataclass


class RecordKind(enum.IntEnum):
    """What a `Record` says."""

    ATTACH = 0  # a stream begins on a connection
    TRANSMIT = 1  # one FPDU that the device sent
    RECEIVE = 2  # bytes as the socket gave them
    CLOSED = 3  # the peer sent its last byte
    DETACH = 4  # the stream left the device


@dataclass(frozen=True)
class Record:
    """One entry of the recording, in the order in which they happened.

    `stream` numbers the attachments of the device from 1. `position` counts the bytes of one
    direction since the attachment.
    """

    kind: RecordKind
    connection: int
    stream: int
    cycle: int
    time_ns: int
    position: int
    data: bytes
