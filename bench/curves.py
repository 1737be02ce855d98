"""Cost as work grows: figures over the size of a message, the number of QPs, the read latency."""

from dataclasses import dataclass

from bench.catalogue import DEFAULTS, FIGURES, Case, receive, transmit
from bench.many_qps import PATTERNS, QPS, figure_key

SIZES = (0, 8, 64, 512, 4096, 32768, 262144, 1048576)
READ_LATENCIES = (0, 125, 250, 500, 1000)

SMALL_OCTETS = 512
"""Up to so many bytes a message is small; a point has `DEFAULTS["messages"]` of them."""

POINT_OCTETS = 128 * 1024
"""Bytes of a point, when messages are large; one message may have more."""


@dataclass(frozen=True)
class Point:
    """A place on the x axis, and the case for it."""

    x: int
    case: Case


@dataclass(frozen=True)
class Curve:
    """Points of one operation and direction. `key`: of the curve in `build/performance.json`."""

    key: str
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Family:
    """Curves over the same x, which `x` names."""

    name: str
    x: str
    curves: tuple[Curve, ...]


def _messages(octets: int) -> int:
    if octets <= SMALL_OCTETS:
        return int(DEFAULTS["messages"])
    return max(1, POINT_OCTETS // octets)


def _over_sizes() -> Family:
    curves = []
    for operation, name in (("write", "RDMA Write"), ("read", "Read Response"), ("send", "Send")):
        for direction, make, verb in (("tx", transmit, "sent"), ("rx", receive, "received")):
            points = tuple(
                Point(size, make(operation, octets=size, messages=_messages(size)))
                for size in SIZES
            )
            curves.append(Curve(f"{operation}_{direction}", f"{name}, {verb}", points))
    return Family("message_size", "bytes of a message", tuple(curves))


def _over_qps() -> Family:
    return Family(
        "qps",
        "QPs",
        tuple(
            Curve(
                pattern.key,
                pattern.label,
                tuple(Point(qps, FIGURES[figure_key(pattern, qps)].case) for qps in QPS),
            )
            for pattern in PATTERNS
        ),
    )


def _over_read_latency() -> Family:
    kinds = (
        ("write_long_tx", "RDMA Writes of 92,160 bytes, sent", "write", 92160),
        ("write_4096_tx", "RDMA Writes of 4,096 bytes, sent", "write", 4096),
        ("read_long_tx", "Reads of 92,160 bytes, answered", "read", 92160),
        ("read_4096_tx", "Reads of 4,096 bytes, answered", "read", 4096),
    )
    return Family(
        "read_latency",
        "cycles from the address of a read to its first word",
        tuple(
            Curve(
                key,
                label,
                tuple(
                    Point(
                        latency,
                        transmit(
                            operation,
                            octets=octets,
                            messages=max(2, _messages(octets)),
                            read_latency=latency,
                        ),
                    )
                    for latency in READ_LATENCIES
                ),
            )
            for key, label, operation, octets in kinds
        ),
    )


FAMILIES = (_over_sizes(), _over_qps(), _over_read_latency())
"""Every plot of docs/performance.md."""
