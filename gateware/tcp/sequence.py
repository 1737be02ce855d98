"""Sequence numbers: comparisons modulo 2^32 (RFC 9293, 3.4), as functions of values.

They take numbers of any width, both of the same: then modulo 2^width. One carry chain each.
"""

from amaranth.hdl import Mux, Value


def before(a: Value, b: Value) -> Value:
    """Return whether `a` < `b`: `b` is reached from `a` in at most half of all numbers."""
    return distance(a, b)[-1]


def distance(later: Value, earlier: Value) -> Value:
    """Return how many numbers `later` is after `earlier`, modulo 2^width."""
    return (later - earlier)[: len(later)]


def less_than(wide: Value, narrow: Value) -> Value:
    """Return whether a wide number is less than a narrow one, by a carry chain of the latter."""
    bits = len(narrow)
    return ~wide[bits:].any() & (wide[:bits] < narrow)


def more_than(wide: Value, narrow: Value) -> Value:
    """Return whether a wide number is greater than a narrow one, by a carry chain of the latter."""
    bits = len(narrow)
    return wide[bits:].any() | (wide[:bits] > narrow)


def latest(a: Value, b: Value) -> Value:
    """Return the later one of two numbers."""
    return Mux(before(a, b), b, a)


def within(number: Value, first: Value, octets: Value) -> Value:
    """Return whether `number` is one of the `octets` numbers from `first` on."""
    return distance(number, first) < octets


def acceptable(number: Value, length: Value, following: Value, window: Value) -> Value:
    """Return whether a segment has a part in the receive window (RFC 9293, Table 6).

    Parameters
    ----------
    number: SEG.SEQ. length: SEG.LEN. following: RCV.NXT. window: RCV.WND.
    """
    last = (number + length - 1)[: len(number)]
    inside = within(number, following, window) | within(last, following, window)
    empty = (length == 0) & Mux(window == 0, number == following, within(number, following, window))
    return Mux(length == 0, empty, inside)
