"""What tshark's expert has to say of a capture."""

from collections import Counter
from pathlib import Path

from tests.linux.network import OURS
from tests.sim.capture.tshark import lines

_NOTE = 0x400000
# That a connection is closed is a note as well.
_CLOSING = ("This frame initiates the connection closing", "This frame undergoes the connection")
# Of Linux, once in 65,536 segments: the sum that it leaves is the other zero of RFC 1624.
_OTHER_ZERO = "TCP Checksum 0xffff instead of 0x0000"


def findings(capture: Path) -> Counter[str]:
    """Everything from a note up: retransmissions, acknowledgments of segments that were not seen,
    full windows, wrong checksums and the like. Text and how often.
    """
    options = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    names = ("ip.src", "_ws.expert.severity", "_ws.expert.message")
    fields = [option for name in names for option in ("-e", name)]
    rows = lines(capture, *options, "-T", "fields", "-E", "aggregator=|", *fields)
    found: Counter[str] = Counter()
    for row in rows:
        source, severities, messages = row.split("\t")
        if not severities:
            continue
        for severity, message in zip(severities.split("|"), messages.split("|"), strict=True):
            usual = message.startswith(_CLOSING)
            usual |= message.startswith(_OTHER_ZERO) and source != OURS
            if int(severity, 0) >= _NOTE and not usual:
                found[message] += 1
    return found
