"""What went into a transmitter and came out, written down by a simulation and read by tests.

A simulation writes each event as it happens, so that nothing is lost when a check in it fails. What
came out is told in octets: nothing here knows the layout of a header but where its L bit and its
opcode are (RFC 5041, 4.1; RFC 5040, 4.1).
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAST = 0x40
"""Of the first octet of a segment (RFC 5041, 4.1)."""

RESPONSES = (0x2, 0xB)
"""Opcodes of what answers a request of the peer (RFC 5040, Figure 4; RFC 7306, Figure 2)."""


class Recorder:
    """Appends events to a file; to none if `path` is None."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("w") if path else None

    def __call__(self, event: str, **fields: Any) -> None:
        if self._file is not None:
            print(json.dumps({"event": event, **fields}, default=_encode), file=self._file)
            self._file.flush()


NO_RECORDER = Recorder(None)


def _encode(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return list(value)
    return int(value)


@dataclass
class Segment:
    """A ULPDU: its DDP header, the octets that the transmitter put after it, or where in host
    memory they are: address and octets of each piece."""

    header: bytes
    ulpdu_length: int
    inline: bytes
    memory: list[tuple[int, int]]
    position: int  # in the stream, if `markers` and the lengths are right
    job: dict[str, Any]

    @property
    def payload(self) -> int:
        """Octets after the DDP header."""
        return self.ulpdu_length - len(self.header)


@dataclass
class Message:
    """Segments up to one with the L bit; `origin` is what was asked for, None if nothing was."""

    segments: list[Segment]
    opcode: int
    origin: dict[str, Any] | None
    mulpdus: list[int]  # of the EMSS that may be in force, the oldest first

    @property
    def first(self) -> Segment:
        return self.segments[0]


@dataclass
class Stream:
    """What happened on one QP."""

    connect: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    unfinished: list[Segment] = field(default_factory=list)
    posts: list[dict[str, Any]] = field(default_factory=list)
    inbound: list[dict[str, Any]] = field(default_factory=list)
    outstanding: list[int] = field(default_factory=list)  # after each Read or Atomic Request
    atomics: list[dict[str, Any]] = field(default_factory=list)  # that went to the atomic unit
    originals: list[int] = field(default_factory=list)  # and what it found


@dataclass
class Transcript:
    """All streams by QP; `failure` is that of the simulation, empty if there was none."""

    streams: dict[int, Stream]
    failure: str

    def messages(self, *opcodes: int) -> Iterator[tuple[Stream, Message]]:
        """Messages of these opcodes, of any if none is given. Fails if there is none."""
        found = 0
        for stream in self.streams.values():
            for message in stream.messages:
                if not opcodes or message.opcode in opcodes:
                    found += 1
                    yield stream, message
        assert found, f"no message of the opcodes {opcodes}"

    def segments(self, *opcodes: int) -> Iterator[Segment]:
        """Segments of these messages."""
        for _, message in self.messages(*opcodes):
            yield from message.segments


def mulpdu(emss: int, markers: bool) -> int:
    """RFC 5044, 4.5, and its longest ULPDU."""
    longest = emss - (6 + emss % 4)
    if markers:
        longest = emss - (6 + 4 * -(-emss // 512) + emss % 4)
    return min(longest, 64768)


def stream_octets(position: int, ulpdu_length: int, markers: bool) -> int:
    """Octets of an FPDU in the stream: length, ULPDU, pad to 4, CRC; 4 for a Marker before each
    octet at a multiple of 512 (RFC 5044, 4.1 and 4.3)."""
    left, end = 2 + ulpdu_length, position
    left += -left % 4 + 4
    while left:
        if markers and end % 512 == 0:
            end += 4
        step = min(left, 512 - end % 512)
        end, left = end + step, left - step
    return end - position


def read_transcript(path: Path, failure: str = "") -> Transcript:
    """Joins the events of a file; what was not complete when it ended is left out."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    pieces = deque(event for event in events if event["event"] == "piece")
    words = deque(bytes.fromhex(event["octets"]) for event in events if event["event"] == "word")
    streams: dict[int, Stream] = {}
    emss: dict[int, list[int]] = defaultdict(list)
    positions: dict[int, int] = defaultdict(int)
    waiting: dict[tuple[int, bool], deque[dict[str, Any]]] = defaultdict(deque)
    under_way: dict[int, int] = defaultdict(int)
    for event in events:
        kind, qp = event["event"], event.get("qp")
        if kind == "connect":
            streams[qp] = Stream(event)
            emss[qp] = [event["emss"]]
        elif kind == "emss":
            emss[qp].append(event["emss"])
        elif kind == "post":
            streams[qp].posts.append(event)
            waiting[qp, False].append(event)
        elif kind == "inbound":
            streams[qp].inbound.append(event)
            waiting[qp, True].append(event)
        elif kind == "answered":
            under_way[qp] -= 1
        elif kind == "atomic":
            streams[qp].atomics.append(event)
        elif kind == "original":
            streams[qp].originals.append(event["value"])
        elif kind == "job":
            stream = streams[qp]
            if event["empty"]:
                waiting[qp, False].popleft()
                continue
            segment = _segment(event, pieces, words, positions[qp])
            if segment is None:
                break
            positions[qp] += stream_octets(
                positions[qp], segment.ulpdu_length, bool(stream.connect["markers"])
            )
            opcode = segment.header[1] & 0xF
            stream.unfinished.append(segment)
            if opcode in (0x1, 0xA):
                under_way[qp] += 1
                stream.outstanding.append(under_way[qp])
            if not segment.header[0] & LAST:
                continue
            queue = waiting[qp, opcode in RESPONSES]
            message = Message(stream.unfinished, opcode, None, [])
            if queue:
                message.origin = queue.popleft()
            message.mulpdus = [mulpdu(e, bool(stream.connect["markers"])) for e in emss[qp]]
            stream.messages.append(message)
            stream.unfinished = []
    return Transcript(streams, failure)


def _segment(
    job: dict[str, Any], pieces: deque[Any], words: deque[bytes], position: int
) -> Segment | None:
    """The segment of a job with what was put after its header, None if that is not all there."""
    header = job["header"].to_bytes(18, "little")[: 14 if job["tagged"] else 18]
    segment = Segment(header, job["ulpdu_length"], b"", [], position, job)
    if not segment.payload:
        return segment
    while pieces:
        piece = pieces.popleft()
        if piece["inline"]:
            count = -(-piece["octets"] // 8)
            if len(words) < count:
                return None
            octets = b"".join(words.popleft() for _ in range(count))
            segment.inline += octets[: piece["octets"]]
        else:
            segment.memory.append((piece["address"], piece["octets"]))
        if piece["last"]:
            return segment
    return None
