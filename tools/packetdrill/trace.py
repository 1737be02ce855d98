"""Traces: what one connection was told and what it sent, a line for each event."""

import re
from dataclasses import dataclass, field

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import NO_FLAGS, Flags, Segment

_LETTERS = dict(zip("FSRPAUEC", Flags, strict=True))
_SEGMENT = re.compile(
    r"(?P<flags>[FSRPAUEC]+) (?P<seq>-?\d+)(?:\+(?P<count>\d+))?(?: ack (?P<ack>-?\d+))?"
    r" win (?P<win>\d+)(?: mss (?P<mss>\d+))?(?P<sackok> sackok)?(?: wscale (?P<wscale>\d+))?"
    r"(?: sack (?P<sack>[-\d: ]+))?"
)


def show(segment: Segment, own: int, other: int) -> str:
    """A segment as FLAGS SEQ[+COUNT] [ack ACK] win WINDOW [mss MSS] [sackok] [wscale SHIFT]
    [sack L:R ...], with numbers relative to ``own``, the initial one of its sender, and ``other``.
    """
    line = "".join(letter for letter, bit in _LETTERS.items() if bit in segment.flags)
    line += f" {sequence.distance(segment.sequence, own)}"
    if segment.payload:
        line += f"+{len(segment.payload)}"
    if Flags.ACK in segment.flags:
        line += f" ack {sequence.distance(segment.acknowledgment, other)}"
    line += f" win {segment.window}"
    options = segment.options
    if options.mss is not None:
        line += f" mss {options.mss}"
    if options.sack_permitted:
        line += " sackok"
    if options.window_scale is not None:
        line += f" wscale {options.window_scale}"
    if options.sack:
        edges = [
            (sequence.distance(a, other), sequence.distance(b, other)) for a, b in options.sack
        ]
        line += " sack " + " ".join(f"{left}:{right}" for left, right in edges)
    return line


def read(line: str, ports: tuple[int, int], own: int, other: int) -> Segment:
    """The segment of a line of ``show``; its data is zeros. Raises ``ValueError``."""
    found = _SEGMENT.fullmatch(line)
    if not found:
        raise ValueError(f"no segment: {line!r}")
    flags = NO_FLAGS
    for letter in found["flags"]:
        flags |= _LETTERS[letter]
    pairs = [pair.split(":") for pair in (found["sack"] or "").split()]
    return Segment(
        *ports,
        sequence.add(own, int(found["seq"])),
        sequence.add(other, int(found["ack"])) if found["ack"] else 0,
        flags,
        int(found["win"]),
        bytes(int(found["count"] or 0)),
        Options(
            mss=int(found["mss"]) if found["mss"] else None,
            window_scale=int(found["wscale"]) if found["wscale"] else None,
            sack_permitted=bool(found["sackok"]),
            sack=tuple(
                (sequence.add(other, int(a)), sequence.add(other, int(b))) for a, b in pairs
            ),
        ),
    )


@dataclass
class Trace:
    """The events of one connection, in their order: microseconds and words.

    Words are calls of the user (open, listen, with "nodelay" if Nagle's algorithm is off; send
    COUNT, read COUNT, shut, close, abort), "<" and a segment of the peer, ">" and one of the
    connection.
    """

    name: str
    events: list[tuple[int, str]] = field(default_factory=list)

    @property
    def sent(self) -> int:
        """How many segments the connection sent."""
        return sum(words[0] == ">" for _, words in self.events)

    def up_to(self, sent: int) -> "Trace":
        """The trace up to the last of ``sent`` segments of the connection."""
        places = [at for at, (_, words) in enumerate(self.events) if words[0] == ">"]
        return Trace(self.name, self.events[: places[sent - 1] + 1] if sent else [])

    def write(self) -> str:
        """The lines, the name first."""
        return "\n".join([f"[{self.name}]", *(f"{at} {words}" for at, words in self.events), ""])


class Recorder:
    """Makes the trace of a host's only connection."""

    def __init__(self, name: str) -> None:
        self.trace = Trace(name)
        self._start: int | None = None
        # The initial sequence numbers, known from each SYN.
        self._local = self._remote = 0

    def call(self, now: int, words: str) -> None:
        """The user calls; time counts from the first call."""
        if self._start is None:
            self._start = now
        self.trace.events.append((now - self._start, words))

    def arrives(self, now: int, segment: Segment) -> None:
        """A segment of the peer."""
        if Flags.SYN in segment.flags:
            self._remote = segment.sequence
        self.call(now, f"< {show(segment, self._remote, self._local)}")

    def leaves(self, now: int, segment: Segment) -> None:
        """A segment of the connection."""
        if Flags.SYN in segment.flags:
            self._local = segment.sequence
        self.call(now, f"> {show(segment, self._local, self._remote)}")


def read_traces(text: str) -> list[Trace]:
    """The traces of a file; empty lines and those after "#" say nothing."""
    found: list[Trace] = []
    for line in text.splitlines():
        if line.startswith("["):
            found.append(Trace(line[1:-1]))
        elif line and not line.startswith("#"):
            at, words = line.split(" ", 1)
            found[-1].events.append((int(at), words))
    return found
