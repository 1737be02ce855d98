"""Sequence numbers: arithmetic modulo 2^32 (RFC 9293, 3.4)."""

SPACE = 1 << 32
_HALF = 1 << 31


def add(number: int, count: int) -> int:
    """The sequence number ``count`` bytes later, or earlier if negative."""
    return (number + count) % SPACE


def distance(later: int, earlier: int) -> int:
    """Signed distance ``later - earlier``, -2^31 to 2^31 - 1."""
    return (later - earlier + _HALF) % SPACE - _HALF


def before(a: int, b: int) -> bool:
    """Whether ``a`` < ``b``."""
    return distance(a, b) < 0


def latest(a: int, b: int) -> int:
    """The later one of two."""
    return b if before(a, b) else a


def acceptable(sequence: int, length: int, next_expected: int, window: int) -> bool:
    """RFC 9293, Table 6: whether a segment of this SEG.LEN has a part in the receive window."""
    if not window:
        return not length and sequence == next_expected
    first = (sequence - next_expected) % SPACE < window
    return first or (length > 0 and (sequence + length - 1 - next_expected) % SPACE < window)
