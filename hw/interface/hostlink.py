"""The numbers of the host link, for gateware and driver; docs/hostlink.md explains them."""

from enum import IntEnum

VERSION = 1

FLAG = 0x7E
"""Stands between frames, and nowhere else (RFC 1662, 4.2)."""

ESCAPE = 0x7D
"""Announces a byte that was changed by `ESCAPE_CHANGE`."""

ESCAPE_CHANGE = 0x20

HEADER_OCTETS = 3
CRC_OCTETS = 4
MAXIMUM_PAYLOAD = 304

WINDOW = 16
"""Messages that a side may have sent without acknowledgement."""

EVENTS = 16
"""LLP events for which the device has room."""

MAXIMUM_BEATS = 32
"""Words of one read, write or part of an FPDU."""

BOARD_ACCESSES = 4
"""Accesses to the memory of a NIC's board that may be under way."""


class Kind(IntEnum):
    """First byte of a frame."""

    ACKNOWLEDGE = 0x00
    REJECT = 0x01
    OPEN = 0x02
    HELLO = 0x03

    REGISTER_READ = 0x10
    REGISTER_WRITE = 0x11
    READ_DATA = 0x12
    WRITE_DONE = 0x13
    LLP_DATA = 0x14
    LLP_EVENT = 0x15
    BOARD_ACCESS = 0x16

    REGISTER_DONE = 0x20
    MEMORY_READ = 0x21
    MEMORY_WRITE = 0x22
    INTERRUPT = 0x23
    LLP_SEND = 0x24
    LLP_REQUEST = 0x25
    LLP_RELEASE = 0x26
    LLP_EVENTS_TAKEN = 0x27
    BOARD_ANSWER = 0x28


FIRST_MESSAGE = 0x10
"""Kinds from here on are messages: numbered, acknowledged and repeated."""

SEND_LAST = 1
"""Flag of LLP_SEND: the FPDU ends."""

SEND_CLOSE = 2
"""Flag of LLP_SEND: the connection sends nothing more."""
