"""Octets that the RFCs print, written down by hand: neither the reference model nor the gateware.

Control octets are those of RFC 5041, 4.1 (T in 0x80, L in 0x40, version 1) and RFC 5040, 4.1
(version 01b in 0xC0, opcode in 0x0F).
"""

from typing import NamedTuple


class OpcodeRow(NamedTuple):
    """A message: the first two octets of a last segment, its queue if it is untagged."""

    opcode: int
    controls: str
    queue: int | None
    section: str


OPCODES = {
    "RDMA_WRITE": OpcodeRow(0, "c140", None, "RFC 5040, 4.3, Figure 4"),
    "RDMA_READ_REQUEST": OpcodeRow(1, "4141", 1, "RFC 5040, 4.4, Figure 4"),
    "RDMA_READ_RESPONSE": OpcodeRow(2, "c142", None, "RFC 5040, 4.5, Figure 4"),
    "SEND": OpcodeRow(3, "4143", 0, "RFC 5040, 4.6, Figure 4"),
    "SEND_WITH_INVALIDATE": OpcodeRow(4, "4144", 0, "RFC 5040, 4.7, Figure 4"),
    "SEND_WITH_SE": OpcodeRow(5, "4145", 0, "RFC 5040, 4.6, Figure 4"),
    "SEND_WITH_SE_AND_INVALIDATE": OpcodeRow(6, "4146", 0, "RFC 5040, 4.7, Figure 4"),
    "TERMINATE": OpcodeRow(7, "4147", 2, "RFC 5040, 4.8, Figure 4"),
    "IMMEDIATE_DATA": OpcodeRow(8, "4148", 0, "RFC 7306, 4.1, Figure 2"),
    "IMMEDIATE_DATA_WITH_SE": OpcodeRow(9, "4149", 0, "RFC 7306, 4.1, Figure 2"),
    "ATOMIC_REQUEST": OpcodeRow(10, "414a", 1, "RFC 7306, 4.1, Figure 2"),
    "ATOMIC_RESPONSE": OpcodeRow(11, "414b", 3, "RFC 7306, 4.1, Figure 2"),
}

# Headers of segments: control, RsvdULP, then STag and TO (RFC 5041, 4.2), or the rest of RsvdULP,
# QN, MSN and MO (4.3).
WRITE = "c140112233440102030405060708"
RESPONSE = "c142aabbccdd2030405060708090"
SEND = "414300000000000000000000000700000000"
SEND_INVALIDATE = "414455667788000000000000000700000000"
SEND_SE_INVALIDATE = "414655667788000000000000000700000000"
READ_REQUEST = "414100000000000000010000000100000000"
IMMEDIATE = "414800000000000000000000000700000000"
ATOMIC_REQUEST = "414a00000000000000010000000100000000"
ATOMIC_RESPONSE = "414b00000000000000030000000100000000"
# RFC 5040, 4.4: Sink STag, Sink TO, size, Source STag, Source TO
READ_HEADER = "aabbccdd203040506070809000000800112233440102030405060708"


class TerminateRow(NamedTuple):
    """A Terminate header, and the ULPDU for which it is sent.

    segment, more: its octets that are copied, and how many others follow. terminate: RFC 5040,
    4.8: Layer and type, code, M D R, reserved; DDP Segment Length; headers.
    """

    segment: str
    more: int
    terminate: str
    section: str


TERMINATES = {
    # RFC 5044, 8; the layer and type are RFC 6580, 3.3: no header is copied.
    "CRC_ERROR": TerminateRow(SEND, 4, "20020000", "RFC 5044, 8"),
    "MARKER_MISMATCH": TerminateRow(SEND, 4, "20030000", "RFC 5044, 8"),
    "ULPDU_TOO_SHORT": TerminateRow(WRITE[:26], 0, "20030000", "no text; MPA's 3 of RFC 5044, 8"),
    # RFC 5041, 7.2: tagged buffer
    "TAGGED_STAG_INVALID": TerminateRow(WRITE, 8, "1100c0000016" + WRITE, "RFC 5041, 7.2"),
    "TAGGED_BOUNDS": TerminateRow(WRITE, 8, "1101c0000016" + WRITE, "RFC 5041, 7.2"),
    "TAGGED_STAG_NOT_ASSOCIATED": TerminateRow(WRITE, 8, "1102c0000016" + WRITE, "RFC 5041, 7.2"),
    "TAGGED_TO_WRAP": TerminateRow(WRITE, 8, "1103c0000016" + WRITE, "RFC 5041, 7.2"),
    "TAGGED_DDP_VERSION": TerminateRow(
        "c0" + WRITE[2:], 8, "1104c0000016c0" + WRITE[2:], "RFC 5041, 7.2"
    ),
    "WRITE_NOT_PERMITTED": TerminateRow(WRITE, 8, "1100c0000016" + WRITE, "RFC 5041, 7.2"),
    "READ_RESPONSE_STAG": TerminateRow(RESPONSE, 8, "1100c0000016" + RESPONSE, "RFC 5041, 7.2"),
    "READ_RESPONSE_RANGE": TerminateRow(RESPONSE, 8, "1101c0000016" + RESPONSE, "RFC 5041, 7.2"),
    # RFC 5041, 7.2: untagged buffer
    "UNTAGGED_QN": TerminateRow(
        SEND.replace("000000000000000000000007", "000000000000000400000007"),
        4,
        "1201c0000016414300000000000000040000000700000000",
        "RFC 5041, 7.2",
    ),
    "UNTAGGED_NO_BUFFER": TerminateRow(SEND, 4, "1202c0000016" + SEND, "RFC 5041, 7.2"),
    "UNTAGGED_MSN": TerminateRow(SEND, 4, "1203c0000016" + SEND, "RFC 5041, 7.2"),
    "UNTAGGED_MO": TerminateRow(SEND, 4, "1204c0000016" + SEND, "RFC 5041, 7.2"),
    "UNTAGGED_TOO_LONG": TerminateRow(SEND, 4, "1205c0000016" + SEND, "RFC 5041, 7.2"),
    "UNTAGGED_DDP_VERSION": TerminateRow(
        "40" + SEND[2:], 4, "1206c000001640" + SEND[2:], "RFC 5041, 7.2"
    ),
    "TOO_MANY_READ_REQUESTS": TerminateRow(
        READ_REQUEST + READ_HEADER, 0, "1202c000002e" + READ_REQUEST, "RFC 5041, 7.2"
    ),
    "READ_REQUEST_TOO_LONG": TerminateRow(
        READ_REQUEST + READ_HEADER, 1, "1205c000002f" + READ_REQUEST, "RFC 5041, 7.2"
    ),
    "ATOMIC_REQUEST_TOO_LONG": TerminateRow(
        ATOMIC_REQUEST, 53, "1205c0000047" + ATOMIC_REQUEST, "RFC 5041, 7.2"
    ),
    "ATOMIC_RESPONSE_TOO_LONG": TerminateRow(
        ATOMIC_RESPONSE, 13, "1205c000001f" + ATOMIC_RESPONSE, "RFC 5041, 7.2"
    ),
    "UNSOLICITED_ATOMIC_RESPONSE": TerminateRow(
        ATOMIC_RESPONSE, 12, "1202c000001e" + ATOMIC_RESPONSE, "RFC 5041, 7.2"
    ),
    # RFC 5040, Figure 9: Remote Operation Error
    "RDMAP_VERSION": TerminateRow(
        "4103" + SEND[4:], 4, "0205c00000164103" + SEND[4:], "RFC 5040, 4.8, Figure 9"
    ),
    "UNEXPECTED_OPCODE": TerminateRow(
        "414c" + SEND[4:], 4, "0206c0000016414c" + SEND[4:], "RFC 5040, 4.8, Figure 9"
    ),
    "UNSOLICITED_READ_RESPONSE": TerminateRow(
        RESPONSE, 8, "0206c0000016" + RESPONSE, "RFC 5040, 4.8, Figure 9"
    ),
    "READ_REQUEST_TOO_SHORT": TerminateRow(
        READ_REQUEST + READ_HEADER[:-2],
        0,
        "02ffc000002d" + READ_REQUEST,
        "RFC 5040, 4.8, Figure 9",
    ),
    "IMMEDIATE_TOO_SHORT": TerminateRow(
        IMMEDIATE, 7, "02ffc0000019" + IMMEDIATE, "RFC 5040, 4.8, Figure 9"
    ),
    "ATOMIC_REQUEST_TOO_SHORT": TerminateRow(
        ATOMIC_REQUEST, 51, "02ffc0000045" + ATOMIC_REQUEST, "RFC 5040, 4.8, Figure 9"
    ),
    "ATOMIC_RESPONSE_TOO_SHORT": TerminateRow(
        ATOMIC_RESPONSE, 11, "02ffc000001d" + ATOMIC_RESPONSE, "RFC 5040, 4.8, Figure 9"
    ),
    "ATOMIC_RESPONSE_IDENTIFIER": TerminateRow(
        ATOMIC_RESPONSE, 12, "02ffc000001e" + ATOMIC_RESPONSE, "RFC 7306, 8.2"
    ),
    "ATOMIC_OPERATION_UNSUPPORTED": TerminateRow(
        ATOMIC_REQUEST, 52, "0206c0000046" + ATOMIC_REQUEST, "RFC 7306, 8.2"
    ),
    "ATOMIC_MISALIGNED": TerminateRow(
        ATOMIC_REQUEST, 52, "0207c0000046" + ATOMIC_REQUEST, "RFC 7306, 8.2"
    ),
    "INVALIDATE_REFUSED": TerminateRow(
        SEND_SE_INVALIDATE, 0, "0209c0000012" + SEND_SE_INVALIDATE, "RFC 5040, 4.8, Figure 9"
    ),
    # RFC 5040, Figure 9: Remote Protection Error; with R for Read Requests (4.8) only
    "INVALIDATE_NOT_ASSOCIATED": TerminateRow(
        SEND_INVALIDATE, 0, "0109c0000012" + SEND_INVALIDATE, "RFC 5040, 4.8, Figure 9"
    ),
    **{
        cause: TerminateRow(
            READ_REQUEST + READ_HEADER,
            0,
            code + "e000002e" + READ_REQUEST + READ_HEADER,
            "RFC 5040, 4.8, Figures 9 and 10",
        )
        for cause, code in (
            ("READ_STAG_INVALID", "0100"),
            ("READ_BOUNDS", "0101"),
            ("READ_NOT_PERMITTED", "0102"),
            ("READ_STAG_NOT_ASSOCIATED", "0103"),
            ("READ_TO_WRAP", "0104"),
        )
    },
    **{
        cause: TerminateRow(ATOMIC_REQUEST, 52, code + "c0000046" + ATOMIC_REQUEST, "RFC 7306, 8.1")
        for cause, code in (
            ("ATOMIC_STAG_INVALID", "0100"),
            ("ATOMIC_BOUNDS", "0101"),
            ("ATOMIC_NOT_PERMITTED", "0102"),
            ("ATOMIC_STAG_NOT_ASSOCIATED", "0103"),
            ("ATOMIC_TO_WRAP", "0104"),
        )
    },
    # RFC 5040, Figure 10: Local Catastrophic Error, no header
    **{
        cause: TerminateRow(SEND, 4, "00000000", "RFC 5040, 4.8, Figures 9 and 10")
        for cause in (
            "LOCAL_SEND_PROTECTION",
            "LOCAL_RECEIVE_PROTECTION",
            "LOCAL_BAD_ENTRY",
            "LOCAL_STAG_OPERATION",
            "HOST_READ_ERROR",
            "HOST_WRITE_ERROR",
            "CQ_OVERFLOW",
        )
    },
}
"""By the name of the cause."""

STARTUP_TERMINATES = {
    "LOCAL_CATASTROPHIC": ("20050000", "RFC 6581, 8 and 9.3"),
    "INSUFFICIENT_IRD": ("20060000", "RFC 6581, 8 and 9.1"),
    "NO_MATCHING_RTR": ("20070000", "RFC 6581, 8 and 9.2"),
}
"""That the driver of an Initiator sends, by the name of the error."""

TERMINATE_MESSAGE = "414700000000000000020000000100000000"
"""The DDP header before each of them (RFC 5040, 4.8 and Figure 4): queue 2, the first message."""

CODE_NAMES = {
    "0100": "invalid STag",
    "0101": "base or bounds violation",
    "0102": "access rights violation",
    "0103": "STag not associated with RDMAP Stream",
    "0104": "Tagged Offset wrap",
    "0205": "invalid RDMAP version",
    "0206": "unexpected opcode",
    "1100": "invalid STag (tagged buffer)",
    "1101": "base or bounds violation (tagged buffer)",
    "1102": "STag not associated with DDP Stream",
    "1103": "Tagged Offset wrap (tagged buffer)",
    "1104": "invalid DDP version (tagged)",
    "1201": "invalid QN",
    "1202": "invalid MSN, no buffer available",
    "1203": "invalid MSN, MSN range is not valid",
    "1204": "invalid MO",
    "1205": "DDP Message too long for available buffer",
    "1206": "invalid DDP version (untagged)",
    "2001": "TCP connection closed, terminated or lost",
    "2002": "MPA CRC does not match",
    "2003": "MPA Marker and ULPDU_Length do not match",
}
"""What RFC 5040 Figure 9, RFC 5041 7.2 and RFC 5044 8 call the codes, in the words of the model."""


def ulpdu_of(row: TerminateRow) -> bytes:
    """The ULPDU for which a Terminate is sent."""
    return bytes.fromhex(row.segment) + bytes(row.more)
