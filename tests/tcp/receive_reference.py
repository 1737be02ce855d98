"""The reference TCP as the receiving side alone: what it does with a segment, in words of ours.

Its sending side is cut off: ACKs, window updates and challenges that it would send are looked at.
"""

from collections import Counter
from ipaddress import IPv4Address
from random import Random
from typing import Any

from stagecoach.gateware.tcp.layouts import Due
from stagecoach.sim.model.tcp import arrival, sequence
from stagecoach.sim.model.tcp.adoption import Adoption
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.segment import Flags, Segment
from stagecoach.sim.model.tcp.state import Cause, Settings

SPACE = 1 << 32
LOCAL, REMOTE = (IPv4Address("192.0.2.2"), 80), (IPv4Address("192.0.2.1"), 81)
EVENT_WORDS = ("acknowledges", "challenge", "fin", "reset", "lost")
"""Of an event, what makes it one."""

_PERIOD = 65_521  # a prime


class Reference:
    """A connection after its handshake, and the octets that the peer sends.

    Parameters
    ----------
    following: RCV.NXT. window: that was announced. ring: octets of the ring. shift: of the window
    field. mss: that was announced. unacknowledged: SND.UNA.
    """

    def __init__(
        self,
        rng: Random,
        *,
        following: int,
        window: int,
        ring: int,
        shift: int,
        mss: int,
        unacknowledged: int,
    ) -> None:
        adoption = Adoption(
            remote=REMOTE,
            next_sent=unacknowledged,
            next_received=following,
            window=1000,
            window_from=following,
            send_shift=0,
            receive_shift=shift,
            receive_window=window,
            smss=mss,
            sack=True,
            round_trip=None,
            syn_losses=0,
        )
        settings = Settings(mss=mss, receive_buffer=ring, window_scaling=False)
        self.rng, self.ring, self.shift = rng, ring, shift
        self.record = record = Connection.adopted(0, LOCAL, adoption, settings).record
        self.receiver, self.sender = record.receiver, record.sender
        self.released = 0  # as a position
        self.seen: Counter[str] = Counter()
        self._octets = rng.randbytes(_PERIOD) * 2
        self._said: dict[str, bool] = {}
        self._stored: tuple[int, int] | None = None
        # What the sending side, and the limit of challenges, would do.
        self._watch(record, "send_ack", "now")
        self._watch(record.challenges, "allow", "challenge")
        self._watch(self.sender, "take_ack", "acknowledges")
        self._watch(self.sender, "push", "pushed")
        self._take = self.receiver._data.take
        self.receiver._data.take = self._store  # type: ignore[method-assign]
        self.receiver.announce(syn=False)

    def _watch(self, part: Any, method: str, word: str) -> None:
        """Note that a method is called; it does nothing, and its answer is no."""
        setattr(part, method, lambda *_, **__: self._said.update({word: True}))

    def _store(self, position: int, octets: bytes) -> bytes:
        """See which octets the receiver keeps."""
        data = self.receiver._data
        first, before = max(position, data.next), data._ranges
        taken = self._take(position, octets)
        if data._ranges is not before:
            self._stored = first, position + len(octets)
        self.seen["refused"] += data._ranges is before and position + len(octets) > data.next
        return taken

    def octets(self, position: int, count: int) -> bytes:
        """Octets of the peer's stream; also before its beginning, and after its end."""
        start = position % _PERIOD
        return (self._octets * (1 + count // _PERIOD))[start : start + count]

    def number(self, position: int) -> int:
        """Of a position, its sequence number."""
        return sequence.add(self.receiver.initial, 1 + position)

    @property
    def edge(self) -> int:
        """The right edge of the window as a number."""
        return self.number(self.receiver._edge)

    @property
    def limits(self) -> dict[str, int]:
        """SND.UNA less the largest window of the peer, and what it may acknowledge."""
        sender = self.sender
        oldest = sender.number(sender.una - sender._max_window)
        return {"oldest": oldest, "highest": sender.number(sender.highest), "ended": 0}

    def send(self) -> None:
        """The sending side goes on: other limits."""
        sender, rng = self.sender, self.rng
        sender.una += rng.randrange(100)
        sender.max = sender.una + rng.randrange(3000)
        sender._max_window = max(sender._max_window, rng.randrange(5000))

    def segment(self) -> tuple[Segment, int]:
        """A segment, in order, at an edge of what is known, or anywhere; and its position."""
        rng, receiver = self.rng, self.receiver
        blocks = [edge for block in receiver._data.blocks() for edge in block]
        edges = [receiver.next, receiver._edge, *blocks, *blocks]
        octets = rng.choice([0, 1, rng.randint(1, 40), rng.randint(1, 40), rng.randint(1, 1460)])
        kind = rng.random()
        if kind < 0.4:
            position = receiver.next
            octets = rng.choice([octets, octets, rng.randint(1, 16_000)])
        elif kind < 0.7:
            position = rng.choice(edges) + rng.randint(-3, 3)
            other = rng.choice(edges) + rng.randint(-1, 1) - position
            octets = other if 0 < other < 16_000 and rng.random() < 0.5 else octets
        elif kind < 0.85:
            position = receiver.next + rng.randint(1, 3000)
        elif kind < 0.97:
            position = receiver.next - rng.randint(1, 100)
        else:
            position = rng.getrandbits(32)
        return self.segment_at(position, octets)

    def segment_at(
        self, position: int, octets: int, flags: Flags | None = None
    ) -> tuple[Segment, int]:
        """A segment there, and its position; with these flags and a true ACK, or with any."""
        rng, sender = self.rng, self.sender
        acknowledgment = sender.una
        if flags is None:
            flags = self._flags()
            least, most = sender.una - sender._max_window, sender.highest
            ends = [least - 1, least, most, most, most + 1]
            acknowledgment = rng.choice([*ends, *[sender.una] * 9])
        segment = Segment(
            REMOTE[1],
            LOCAL[1],
            self.number(position),
            sender.number(acknowledgment),
            flags,
            rng.getrandbits(16),
            self.octets(position, octets),
        )
        return segment, position

    def _flags(self) -> Flags:
        """ACK alone, mostly."""
        rng, flags = self.rng, Flags.ACK
        for flag, chance in ((Flags.FIN, 0.015), (Flags.RST, 0.02), (Flags.SYN, 0.01)):
            flags |= flag if rng.random() < chance else Flags(0)
        flags ^= Flags.ACK if rng.random() < 0.02 else Flags(0)
        return flags | rng.choice([Flags(0), Flags.PSH, Flags.URG, Flags.ECE])

    def arrives(self, segment: Segment) -> dict[str, Any]:
        """What a segment does: the event, if there is one; what is stored; what is said then."""
        record, receiver = self.record, self.receiver
        had_fin, zero = receiver.fin_taken, not receiver.window
        self._said.clear()
        self._stored = None
        arrival.arrives(record, 0, segment)
        said = {word: int(self._said.get(word, False)) for word in ("acknowledges", "challenge")}
        event = {
            "acknowledgment": segment.acknowledgment,
            "sequence": segment.sequence,
            "window": segment.window,
            "empty": int(segment.length == 0),
            "fin": int(receiver.fin_taken and not had_fin),
            "reset": int(record.cause is Cause.RESET),
            "lost": int(record.cause is Cause.DATA_LOST),
            **said,
        }
        due = Due.NONE if receiver.ack_at is None else Due.LATER
        due = Due.NOW if self._said.get("now") else due
        self.seen.update(word for word in EVENT_WORDS if event[word])
        self.seen.update([f"due {due.name}"])
        self.seen["acknowledged at a zero window"] += zero and said["acknowledges"]
        self.seen["cut"] += bool(
            self._stored and self._stored[1] - self._stored[0] < len(segment.payload)
        )
        return {
            "event": event if any(event[word] for word in EVENT_WORDS) else None,
            "stored": self._stored,
            **self.note(due),
        }

    def release(self, count: int) -> dict[str, Any]:
        """Octets are not needed any more."""
        self.receiver.read(count)
        self.released += count
        return self.note(Due.NONE)

    def note(self, due: Due, begin: bool = False) -> dict[str, Any]:
        """What is said of the connection now, if anything is; as if an ACK went out."""
        receiver = self.receiver
        edge = receiver._edge
        receiver.announce(syn=False)
        if receiver.fin_taken:
            # Nothing follows the FIN: the reference lets the edge move, the engine does not.
            receiver._edge = edge
        self.seen["moved"] += receiver._edge != edge
        note = {
            "number": receiver.next_sequence,
            "edge": self.edge,
            "due": due.value,
            "fin": int(receiver.fin_taken),
            "begin": int(begin),
        }
        says = begin or due is not Due.NONE or receiver._edge != edge
        return {"note": note if says else None}


class Memory:
    """Pages of a memory that is too large to have all of it."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def write(self, address: int, octets: bytes) -> None:
        for at, value in enumerate(octets, address):
            self._pages.setdefault(at >> 12, bytearray(4096))[at & 4095] = value

    def read(self, address: int, count: int) -> bytes:
        at = range(address, address + count)
        return bytes(self._pages.get(each >> 12, bytes(4096))[each & 4095] for each in at)
