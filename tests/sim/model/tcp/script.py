"""One connection against segments written by hand, in simulated time.

Sequence numbers are relative, as tshark shows them: SYN is 0, the first byte of data 1. Both
initial sequence numbers lie just below the wrap, so that the numbers on the wire wrap early.
Segments are shown as lines: "A 1 ack 1", "PA 1+1460 ack 1", "S 0", flags as in FSRPAU.
"""

from ipaddress import IPv4Address
from typing import Any

from stagecoach.sim.model.tcp import sequence
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Settings, State

LOCAL = IPv4Address("192.0.2.2"), 4420
REMOTE = IPv4Address("192.0.2.1"), 40000
KEY = bytes(range(16))
ISS = sequence.SPACE - 2_000
IRS = sequence.SPACE - 1_000
MS = 1_000
S = 1_000_000
LETTERS = dict(zip("FSRPAUEC", Flags, strict=True))


def _start() -> int:
    """The time at which the clock of the initial sequence number gives ISS."""
    probe = Connection(LOCAL, KEY)
    probe.open(0, REMOTE)
    return 4 * sequence.add(ISS, -probe.output[0].sequence)


START = _start()


class Script:
    """A connection, from CLOSED on; ``now`` is the time since it was made, in microseconds."""

    def __init__(self, **settings: Any) -> None:
        self.connection = Connection(LOCAL, KEY, Settings(**settings))
        self.now = 0
        self.segments: list[Segment] = []
        self._lines: list[tuple[int, str]] = []

    # The user.

    def open(self) -> None:
        self.connection.open(START + self.now, REMOTE)

    def send(self, count: int | bytes) -> None:
        octets = bytes(i % 251 for i in range(count)) if isinstance(count, int) else count
        self.connection.send(START + self.now, octets)

    def receive(self, maximum: int | None = None) -> bytes:
        return self.connection.receive(START + self.now, maximum)

    def close(self, discard: bool = False) -> None:
        self.connection.close(START + self.now, discard=discard)

    def abort(self) -> None:
        self.connection.abort(START + self.now)

    @property
    def state(self) -> State:
        return self.connection.state

    # Time.

    def at(self, now: int) -> None:
        """Go on to a time; what is due until then happens when it is due."""
        while True:
            self._collect()
            deadline = self.connection.next_deadline()
            if deadline is None or deadline - START > now:
                break
            self.now = max(self.now, deadline - START)
            self.connection.timer(START + self.now)
        self.now = now

    def after(self, duration: int) -> None:
        self.at(self.now + duration)

    # The network.

    def arrive(
        self,
        flags: str,
        seq: int = 1,
        ack: int = 1,
        data: int | bytes = b"",
        win: int = 0xFFFF,
        urgent: int = 0,
        **options: Any,
    ) -> None:
        """A segment of the peer; ``data`` as a number is so many bytes of the peer's stream."""
        self._collect()
        if isinstance(data, int):
            data = peer_data(seq, data)
        bits = Flags(0)
        for letter in flags:
            bits |= LETTERS[letter]
        segment = Segment(
            REMOTE[1],
            LOCAL[1],
            sequence.add(IRS, seq),
            sequence.add(ISS, ack) if "A" in flags else 0,
            bits,
            win,
            data,
            Options(**options),
            urgent,
        )
        _, taken = decode_packet(encode_packet(segment, REMOTE[0], LOCAL[0]))
        self.connection.segment_arrives(START + self.now, taken, REMOTE[0])

    def _collect(self) -> None:
        for segment in self.connection.output:
            self.segments.append(segment)
            self._lines.append((self.now, show(segment)))
        self.connection.output.clear()

    def timed(self) -> list[tuple[int, str]]:
        """Lines of what was sent since the last call, with the times."""
        self._collect()
        lines, self._lines = self._lines, []
        return lines

    def sent(self) -> list[str]:
        """Lines of what was sent since the last call."""
        return [line for _, line in self.timed()]

    @property
    def last(self) -> Segment:
        """What was sent last."""
        self._collect()
        return self.segments[-1]


def show(segment: Segment) -> str:
    """A segment of the connection as a line."""
    letters = "".join(letter for letter, bit in LETTERS.items() if bit in segment.flags)
    line = f"{letters} {sequence.distance(segment.sequence, ISS)}"
    if segment.payload:
        line += f"+{len(segment.payload)}"
    if Flags.ACK in segment.flags:
        line += f" ack {sequence.distance(segment.acknowledgment, IRS)}"
    return line


def peer_data(seq: int, count: int) -> bytes:
    """Bytes of the peer's stream: each tells its place."""
    return bytes((seq + i) % 253 for i in range(count))


def established(*, win: int = 0xFFFF, syn: dict[str, Any] | None = None, **settings: Any) -> Script:
    """A connection that was opened actively, with a round trip of no time at 0."""
    script = Script(**settings)
    script.open()
    script.arrive("SA", 0, 1, win=win, **({"mss": 1460} if syn is None else syn))
    assert script.state is State.ESTABLISHED
    script.sent()
    return script


def accepted(*, win: int = 0xFFFF, syn: dict[str, Any] | None = None, **settings: Any) -> Script:
    """A connection that was opened passively."""
    script = Script(**settings)
    script.connection.listen()
    script.arrive("S", 0, win=win, **({"mss": 1460} if syn is None else syn))
    script.arrive("A", 1, 1, win=win)
    assert script.state is State.ESTABLISHED
    script.sent()
    return script
