"""CRC32c (RFC 3720, 12.1), of what is short: frames of the host link, FPDUs of the driver's own."""

from stagecoach.hw.interface.wire import CRC32C_POLYNOMIAL


def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _table()


def crc32c(octets: bytes) -> int:
    """The CRC of `octets`; on the wire its least significant byte comes first."""
    state = 0xFFFFFFFF
    for octet in octets:
        state = state >> 8 ^ _TABLE[(state ^ octet) & 0xFF]
    return state ^ 0xFFFFFFFF
