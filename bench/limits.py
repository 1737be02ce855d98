"""What the protocol and a port of 64 bits leave at most, computed from the sizes of FPDUs.

The LLP port carries 8 octets in a cycle. An FPDU begins with a beat of its own, so one whose octets
are no multiple of 8 leaves a part of its last beat empty.
"""

from bench.catalogue import full_segment, message
from bench.many_qps import Pattern
from stagecoach.sim.model.ddp import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.sim.model.mpa import fpdu_length

PORT_OCTETS = 8
"""Of the LLP port, per cycle and direction."""

WIRE_OVERHEAD = 78
"""Octets of each TCP segment on 10 Gb/s Ethernet, which carries 8 in a cycle of 156.25 MHz:
preamble 8, Ethernet 14, IPv4 20, TCP 20, FCS 4, gap 12."""

READ_REQUEST_OCTETS = 28
"""After its DDP header (RFC 5040, 4.4)."""

ATOMIC_RESPONSE_OCTETS = 12
"""After its DDP header: identifier and original value (RFC 7306, 5.2.2)."""

MESSAGES = 512
"""Over which is averaged: with Markers, FPDUs of one size have one more Marker or less."""


def beats(
    operation: str, octets: int, *, emss: int = 1460, markers: bool = False, messages: int = 1
) -> int:
    """Beats of the port that messages of `octets` take, one after the other from stream octet 0.

    `operation`: `send` has untagged segments, all others tagged ones (RFC 5041, 4.2 and 4.3).
    """
    header = UNTAGGED_HEADER_OCTETS if operation == "send" else TAGGED_HEADER_OCTETS
    room = full_segment(operation, emss, markers)
    full, rest = divmod(octets, room)
    segments = [room] * full + [rest] * (rest > 0 or not full)
    total = position = 0
    for payload in segments * messages:
        length = fpdu_length(header + payload, markers=markers, position=position)
        position += length
        total += -(-length // PORT_OCTETS)
    return total


def octets_per_cycle(
    operation: str, octets: int | None = None, *, emss: int = 1460, markers: bool = False
) -> float:
    """Payload in a cycle; in full FPDUs if `octets`, those of a message, are not given."""
    size = message(operation, emss, markers) if octets is None else octets
    cycles = beats(operation, size, emss=emss, markers=markers, messages=MESSAGES)
    return round(MESSAGES * size / cycles, 3)


def port_cycles(pattern: Pattern) -> int:
    """Cycles of the port for a message of a pattern, in the direction that has more of them."""
    return max(-(-length // PORT_OCTETS) for length in _fpdus(pattern))


def wire_cycles(pattern: Pattern) -> float:
    """The same on 10 Gb/s Ethernet, with each FPDU in a TCP segment of its own."""
    return max((length + WIRE_OVERHEAD) / PORT_OCTETS for length in _fpdus(pattern))


def _fpdus(pattern: Pattern) -> list[int]:
    """Octets of the FPDUs of a message, which has one in a direction: a Read has a request, too."""
    untagged = pattern.operation == "send"
    header = UNTAGGED_HEADER_OCTETS if untagged else TAGGED_HEADER_OCTETS
    fpdus = [fpdu_length(header + pattern.octets)]
    if pattern.operation == "read":
        fpdus.append(fpdu_length(UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS))
    return fpdus
