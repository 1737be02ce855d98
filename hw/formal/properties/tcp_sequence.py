"""Comparisons of sequence numbers, at 32 bits, by the distance from one to the other."""

from amaranth.hdl import Value

from stagecoach.gateware.tcp.sequence import acceptable, before, latest, within
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import UNROLLED, Mutation, Property, in_harness

BITS = 32
HALF = 1 << (BITS - 1)
WINDOW_BITS = 30
"""The largest window is below 2^30 octets (RFC 7323, 2.3)."""


def _after(number: Value, count: Value) -> Value:
    """The number so many octets later."""
    return (number + count)[:BITS]


def _order(h: Harness) -> None:
    number, count = h.free(BITS, "number"), h.free(BITS, "count")
    later = _after(number, count)
    h.check("before", before(number, later) == ((count != 0) & (count <= HALF)))
    forward = count < HALF
    h.check("latest", ~forward | (latest(number, later) == later))
    h.check("in any order", ~forward | (latest(later, number) == later))


def _window(h: Harness) -> None:
    """Table 6 of RFC 9293: an octet of the window is named by its place in it."""
    following, window = h.free(BITS, "following"), h.free(WINDOW_BITS, "window")
    number, length = h.free(BITS, "number"), h.free(17, "length")
    place = h.free(BITS, "place")
    octet = _after(following, place)  # one place for each number
    in_window = place < window
    is_within = within(octet, following, window)
    h.check("within", is_within == in_window)
    taken = acceptable(number, length, following, window)
    last = _after(number, length - 1)
    has = ((octet == number) | (octet == last)) & in_window
    h.check("with data", (length == 0) | ~has | taken)
    other = h.free(BITS, "other")  # the place of the last octet, if `octet` is the first
    both_outside = ~in_window & (octet == number) & (_after(following, other) == last)
    h.check("outside", (length == 0) | ~both_outside | (other < window) | ~taken)
    at_edge = (window == 0) & (number == following)
    empty = (octet != number) | (taken == (in_window | at_edge))
    h.check("without data", (length != 0) | empty)


def _mutation(old: str, new: str) -> Mutation:
    return Mutation("stagecoach.gateware.tcp.sequence", old, new)


PROPERTIES = (
    Property(
        "tcp.sequence",
        "a number is before those that come up to 2^31 after it",
        in_harness(_order),
        mutations=(
            _mutation("return distance(a, b)[-1]", "return a < b"),
            _mutation("Mux(before(a, b), b, a)", "Mux(before(a, b), a, b)"),
        ),
        depth=1,
        engine=UNROLLED,
    ),
    Property(
        "tcp.sequence",
        "a segment is acceptable by Table 6 of RFC 9293",
        in_harness(_window),
        mutations=(
            _mutation("(number + length - 1)", "(number + length)"),
            _mutation("window == 0, number == following", "window == 0, 0"),
            _mutation("return distance(number, first) < octets", "return number - first < octets"),
        ),
        depth=1,
        engine=UNROLLED,
    ),
)
