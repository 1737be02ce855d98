"""What the protocol and a port of 64 bits leave at most, computed from the sizes of FPDUs.

The LLP port carries 8 bytes in a cycle. An FPDU begins with a beat of its own, so one whose bytes
are no multiple of 8 leaves a part of its last beat empty.
"""

from bench.catalogue import header_octets, message
from bench.many_qps import Pattern
from stagecoach.cli.perf.limit import PORT_OCTETS, Framing
from stagecoach.sim.model.ddp import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.sim.model.fpdu_sizes import fpdu_length
from stagecoach.sim.model.rdmap import READ_REQUEST_OCTETS

WIRE_OVERHEAD = 78
"""Bytes of each TCP segment on 10 Gb/s Ethernet, which carries 8 in a cycle of 156.25 MHz:
preamble 8, Ethernet 14, IPv4 20, TCP 20, FCS 4, gap 12."""

EMSS = 1460
"""Bytes, unless another one is given."""

MESSAGES = 512
"""Over which is averaged: with Markers, FPDUs of one size have one more Marker or less."""


def beats(
    operation: str, octets: int, *, emss: int = EMSS, markers: bool = False, messages: int = 1
) -> int:
    """Beats of the port that messages of `octets` take, one after the other from stream byte 0.

    `operation`: as in `header_octets`.
    """
    segments = Framing(emss, markers).segments(octets, header_octets(operation))
    total = position = 0
    for count, ulpdu in segments * messages:
        for _ in range(count):
            length = fpdu_length(ulpdu, markers=markers, position=position)
            position += length
            total += -(-length // PORT_OCTETS)
    return total


def octets_per_cycle(
    operation: str, octets: int | None = None, *, emss: int = EMSS, markers: bool = False
) -> float:
    """Payload in a cycle; in full FPDUs if `octets`, those of a message, are not given."""
    size = message(operation, emss, markers) if octets is None else octets
    cycles = beats(operation, size, emss=emss, markers=markers, messages=MESSAGES)
    return round(MESSAGES * size / cycles, 3)


def port_limit(octets: int) -> float:
    """Payload bytes per cycle of tagged messages when each cycle carries 8 bytes of FPDUs."""
    return PORT_OCTETS * octets / Framing(EMSS).message(octets, TAGGED_HEADER_OCTETS)


def wire_limit(octets: int) -> float:
    """The same on a 10 Gb/s wire, which carries 8 bytes per cycle of 156.25 MHz."""
    framing = Framing(EMSS)
    segments = sum(count for count, _ in framing.segments(octets, TAGGED_HEADER_OCTETS))
    total = framing.message(octets, TAGGED_HEADER_OCTETS) + WIRE_OVERHEAD * segments
    return PORT_OCTETS * octets / total


def port_cycles(pattern: Pattern) -> int:
    """Cycles of the port for a message of a pattern, in the direction that has more of them."""
    return max(-(-length // PORT_OCTETS) for length in _fpdus(pattern))


def wire_cycles(pattern: Pattern) -> float:
    """The same on 10 Gb/s Ethernet, with each FPDU in a TCP segment of its own."""
    return max((length + WIRE_OVERHEAD) / PORT_OCTETS for length in _fpdus(pattern))


def _fpdus(pattern: Pattern) -> list[int]:
    """Bytes of the FPDUs of a message, which has one in a direction: a Read has a request, too."""
    fpdus = [fpdu_length(header_octets(pattern.operation) + pattern.octets)]
    if pattern.operation == "read":
        fpdus.append(fpdu_length(UNTAGGED_HEADER_OCTETS + READ_REQUEST_OCTETS))
    return fpdus
