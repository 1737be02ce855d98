"""The Terminate with which an Initiator gives up after an accepting Reply (RFC 6581, 8 and 9).

The driver sends it, not the device: the stream never comes into Full Operation. A Responder sends
none, because it may not send before the first FPDU of the Initiator (RFC 5044, 7.1.2 item 4).
"""

import struct
from enum import IntEnum

from stagecoach.host_driver.crc32c import crc32c
from stagecoach.hw.interface.wire import (
    DDP_VERSION,
    FIRST_MSN,
    FPDU_CRC_OCTETS,
    QN_TERMINATE,
    RDMAP_VERSION,
    ULPDU_LENGTH_OCTETS,
    Opcode,
)

# RFC 5044, 4.1: ULPDU_Length. RFC 5041, 4.3: control, RsvdULP of 8 and 32 bits, QN, MSN, MO.
# RFC 5040, 4.8: Layer and EType, Error Code, HdrCt (no header is copied), reserved.
_FPDU = struct.Struct(">H BBIIII BBBB")
_ULPDU_OCTETS = _FPDU.size - ULPDU_LENGTH_OCTETS
_DDP_CONTROL = 0x40 | DDP_VERSION  # last segment
_RDMAP_CONTROL = RDMAP_VERSION << 6 | Opcode.TERMINATE
_LAYER_AND_TYPE = 0x20  # LLP, MPA
_FIRST_MARKER = bytes(4)  # RFC 5044, 7.1.2 item 7


class SetupError(IntEnum):
    """MPA error codes of enhanced connection establishment (RFC 6581, 8)."""

    LOCAL_CATASTROPHIC = 5
    INSUFFICIENT_IRD = 6
    NO_MATCHING_RTR = 7


def terminate_fpdu(code: SetupError, *, markers: bool) -> bytes:
    """The first and only FPDU of a stream: a Terminate 2/0/`code`, after a Marker if wanted.

    Its CRC is always right, which does no harm where CRCs are off (RFC 5044, 7.1.1).
    """
    fpdu = _FPDU.pack(
        _ULPDU_OCTETS,
        *(_DDP_CONTROL, _RDMAP_CONTROL, 0, QN_TERMINATE, FIRST_MSN, 0),
        *(_LAYER_AND_TYPE, code, 0, 0),
    )
    octets = (_FIRST_MARKER if markers else b"") + fpdu
    return octets + crc32c(octets).to_bytes(FPDU_CRC_OCTETS, "little")
