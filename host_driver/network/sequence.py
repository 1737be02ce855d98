"""Sequence numbers of TCP: 32 bits, compared modulo 2^32 (RFC 9293, 3.4)."""

SPACE = 1 << 32
_HALF = SPACE // 2


def advance(number: int, octets: int) -> int:
    """The number so many bytes further."""
    return (number + octets) % SPACE


def distance(first: int, second: int) -> int:
    """How many bytes `second` is ahead of `first`, 0 to 2^32 - 1."""
    return (second - first) % SPACE


def before(first: int, second: int) -> bool:
    """Whether `first` is less than `second`."""
    return distance(second, first) >= _HALF


def within(number: int, start: int, octets: int) -> bool:
    """Whether `number` is one of the `octets` numbers from `start`."""
    return distance(start, number) < octets


def acceptable(number: int, length: int, expected: int, window: int) -> bool:
    """Whether a segment of SEG.LEN `length` lies in the window (RFC 9293, Table 6)."""
    if not length:
        return number == expected if not window else within(number, expected, window)
    last = advance(number, length - 1)
    return within(number, expected, window) or within(last, expected, window)
