"""Error codes of MPA, DDP and RDMAP in Terminate (RFC 5040, 4.8; RFC 6580; RFC 6581)."""

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """What the Terminate control field names: layer, error type, error code."""

    layer: int
    etype: int
    code: int

    @property
    def name(self) -> str:
        """Name of the code, or its numbers if no document defines it."""
        return NAMES.get(self, f"undefined error {self.layer}/{self.etype}/{self.code:02X}")

    def __str__(self) -> str:
        return f"{self.layer}/{self.etype}/{self.code:02X} {self.name}"


# RFC 5040, Figure 9: layer 0, RDMAP.
RDMAP_LOCAL_CATASTROPHIC = ErrorCode(0, 0, 0x00)
RDMAP_INVALID_STAG = ErrorCode(0, 1, 0x00)
RDMAP_BASE_OR_BOUNDS = ErrorCode(0, 1, 0x01)
RDMAP_ACCESS_RIGHTS = ErrorCode(0, 1, 0x02)
RDMAP_STAG_NOT_ASSOCIATED = ErrorCode(0, 1, 0x03)
RDMAP_TO_WRAP = ErrorCode(0, 1, 0x04)
RDMAP_PROTECTION_CANNOT_INVALIDATE = ErrorCode(0, 1, 0x09)
RDMAP_PROTECTION_UNSPECIFIED = ErrorCode(0, 1, 0xFF)
RDMAP_INVALID_VERSION = ErrorCode(0, 2, 0x05)
RDMAP_UNEXPECTED_OPCODE = ErrorCode(0, 2, 0x06)
RDMAP_CATASTROPHIC_STREAM = ErrorCode(0, 2, 0x07)
RDMAP_CATASTROPHIC_GLOBAL = ErrorCode(0, 2, 0x08)
RDMAP_OPERATION_CANNOT_INVALIDATE = ErrorCode(0, 2, 0x09)
RDMAP_OPERATION_UNSPECIFIED = ErrorCode(0, 2, 0xFF)
# RFC 5041, 7.2: layer 1, DDP.
DDP_LOCAL_CATASTROPHIC = ErrorCode(1, 0, 0x00)
DDP_INVALID_STAG = ErrorCode(1, 1, 0x00)
DDP_BASE_OR_BOUNDS = ErrorCode(1, 1, 0x01)
DDP_STAG_NOT_ASSOCIATED = ErrorCode(1, 1, 0x02)
DDP_TO_WRAP = ErrorCode(1, 1, 0x03)
DDP_TAGGED_INVALID_VERSION = ErrorCode(1, 1, 0x04)
DDP_INVALID_QN = ErrorCode(1, 2, 0x01)
DDP_NO_BUFFER = ErrorCode(1, 2, 0x02)
DDP_INVALID_MSN = ErrorCode(1, 2, 0x03)
DDP_INVALID_MO = ErrorCode(1, 2, 0x04)
DDP_MESSAGE_TOO_LONG = ErrorCode(1, 2, 0x05)
DDP_UNTAGGED_INVALID_VERSION = ErrorCode(1, 2, 0x06)
# RFC 5044, 8 and RFC 6581, 8: layer 2, MPA.
MPA_TCP_LOST = ErrorCode(2, 0, 0x01)
MPA_CRC = ErrorCode(2, 0, 0x02)
MPA_MARKER_MISMATCH = ErrorCode(2, 0, 0x03)
MPA_INVALID_STARTUP = ErrorCode(2, 0, 0x04)
MPA_LOCAL_CATASTROPHIC = ErrorCode(2, 0, 0x05)
MPA_INSUFFICIENT_IRD = ErrorCode(2, 0, 0x06)
MPA_NO_MATCHING_RTR = ErrorCode(2, 0, 0x07)

NAMES: dict[ErrorCode, str] = {
    RDMAP_LOCAL_CATASTROPHIC: "RDMAP local catastrophic error",
    RDMAP_INVALID_STAG: "invalid STag",
    RDMAP_BASE_OR_BOUNDS: "base or bounds violation",
    RDMAP_ACCESS_RIGHTS: "access rights violation",
    RDMAP_STAG_NOT_ASSOCIATED: "STag not associated with RDMAP Stream",
    RDMAP_TO_WRAP: "Tagged Offset wrap",
    RDMAP_PROTECTION_CANNOT_INVALIDATE: "STag cannot be invalidated (protection)",
    RDMAP_PROTECTION_UNSPECIFIED: "unspecified remote protection error",
    RDMAP_INVALID_VERSION: "invalid RDMAP version",
    RDMAP_UNEXPECTED_OPCODE: "unexpected opcode",
    RDMAP_CATASTROPHIC_STREAM: "catastrophic error, localized to RDMAP Stream",
    RDMAP_CATASTROPHIC_GLOBAL: "catastrophic error, global",
    RDMAP_OPERATION_CANNOT_INVALIDATE: "STag cannot be invalidated (operation)",
    RDMAP_OPERATION_UNSPECIFIED: "unspecified remote operation error",
    DDP_LOCAL_CATASTROPHIC: "DDP local catastrophic error",
    DDP_INVALID_STAG: "invalid STag (tagged buffer)",
    DDP_BASE_OR_BOUNDS: "base or bounds violation (tagged buffer)",
    DDP_STAG_NOT_ASSOCIATED: "STag not associated with DDP Stream",
    DDP_TO_WRAP: "Tagged Offset wrap (tagged buffer)",
    DDP_TAGGED_INVALID_VERSION: "invalid DDP version (tagged)",
    DDP_INVALID_QN: "invalid QN",
    DDP_NO_BUFFER: "invalid MSN, no buffer available",
    DDP_INVALID_MSN: "invalid MSN, MSN range is not valid",
    DDP_INVALID_MO: "invalid MO",
    DDP_MESSAGE_TOO_LONG: "DDP Message too long for available buffer",
    DDP_UNTAGGED_INVALID_VERSION: "invalid DDP version (untagged)",
    MPA_TCP_LOST: "TCP connection closed, terminated or lost",
    MPA_CRC: "MPA CRC does not match",
    MPA_MARKER_MISMATCH: "MPA Marker and ULPDU_Length do not match",
    MPA_INVALID_STARTUP: "invalid MPA Request or Reply Frame",
    MPA_LOCAL_CATASTROPHIC: "MPA local catastrophic error",
    MPA_INSUFFICIENT_IRD: "insufficient IRD resources",
    MPA_NO_MATCHING_RTR: "no matching RTR option",
}


class StreamError(Exception):
    """A receive check failed.

    ``error`` is the code that a Terminate would carry, ``source`` the text which demands the
    check, ``detail`` what was found and what is allowed.
    """

    def __init__(self, error: ErrorCode, detail: str, source: str = "") -> None:
        super().__init__(f"{error}: {detail}")
        self.error = error
        self.detail = detail
        self.source = source


class MpaError(StreamError):
    """An MPA error; ``code`` is its number in RFC 5044, 8."""

    @property
    def code(self) -> int:
        return self.error.code
