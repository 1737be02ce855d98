"""Malformed frames at a NIC with the TCP engine in gateware.

Each is counted by its cause and dropped, or answered as the reference TCP answers it. No octet
beside the rings changes, and a connection beside goes on.
"""

import os
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagecoach.host_driver.network import isn
from stagecoach.host_driver.transport.base import StreamClosed
from stagecoach.hw.interface.network_entries import FrameFate
from stagecoach.sim.model.tcp.checksum import checksum
from stagecoach.sim.model.tcp.segment import Flags, Segment
from tests.robustness.frame_peer import RING, SPACE, Attacked
from tests.robustness.guarded_memory import GuardedMemory, guard
from tests.tcp.frames import MTU, NotJudgedError, broken, fate_of, summed

FRAMES = 1200
PERIOD = 65_521
"""Of the peer's streams: a prime, so that the next turn of the ring is another one."""

FATES = set(FrameFate) - {FrameFate.LINK_ERROR, FrameFate.SHORT, FrameFate.FULL}
"""That a wire can bring about; a frame that has less than an Ethernet header is none."""

BESIDE = 50
"""After so many frames the bystander has its turn."""

pytestmark = [pytest.mark.usefixtures("compiled_nic"), pytest.mark.timeout(900)]


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[GuardedMemory]:
    return guard(monkeypatch)


@pytest.fixture
def attacked(
    memories: list[GuardedMemory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Attacked]:
    # Of initial sequence numbers: what the seed has shown once, it shows again.
    monkeypatch.setattr(isn.secrets, "token_bytes", random.Random(seed()).randbytes)
    made = Attacked(f"{tmp_path.name}-{os.getpid()}")
    yield made
    faults = made.nic.statistics()["faults"]
    made.close()
    assert not faults


def shown(segments: list[Segment]) -> list[tuple[object, ...]]:
    """Segments in words, those with octets first: the engine sends data that a segment allows
    before the ACK that answers it, the reference after that.
    """
    has_octets = any(each.length for each in segments)
    found: list[tuple[object, ...]] = []
    for each in sorted(segments, key=lambda each: not each.length):
        number = each.sequence if each.length or not has_octets else 0
        words = "|".join(flag.name or "" for flag in each.flags)
        octets = len(each.payload), zlib.crc32(each.payload)
        found.append((words, number, each.acknowledgment, *octets, each.options.sack))
    return found


def windows_differ(answers: list[Segment], expected: list[Segment]) -> int:
    """By how much, in units of their field."""
    windows = [max((each.window for each in side), default=0) for side in (answers, expected)]
    return abs(windows[0] - windows[1])


def _ip(header: bytes, octets: int, fragment: int = 0) -> bytes:
    """The header before so many octets, flags and offset of a fragment as in its field."""
    header = (
        header[:2] + (20 + octets).to_bytes(2) + header[4:6] + fragment.to_bytes(2) + header[8:]
    )
    header = header[:10] + bytes(2) + header[12:]
    return header[:10] + checksum(header).to_bytes(2) + header[12:]


class Attack:
    """Random frames to a connection, and what has to become of them.

    Attributes
    ----------
    seen: how often each fate, and what else happened. octets: of the peer's stream, `PERIOD` of
    them again and again. read: how many the NIC's program has read. at_edge: whether segments may
    touch the end of the window.
    """

    def __init__(self, attacked: Attacked, memories: list[GuardedMemory], seed: int) -> None:
        self.attacked, self.memories = attacked, memories
        self.rng = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.octets = b""
        self.read = 0
        self.at_edge = True
        self.connect()

    def connect(self) -> None:
        """Another connection; its numbers are about to wrap more often than not."""
        rng = self.rng
        near = rng.choice((SPACE, SPACE >> 1)) - rng.randrange(1 << 12)
        self.attacked.connect(rng.choice((near, near, rng.getrandbits(32))))
        self.octets = rng.randbytes(PERIOD)
        self.read = 0
        self.seen["connections"] += 1

    # Frames.

    def payload(self, offset: int, count: int) -> bytes:
        """Octets of the stream from RCV.NXT and `offset` on; also where it never was."""
        start = (self.position + offset) % PERIOD
        return (self.octets[start:] + self.octets)[:count]

    @property
    def position(self) -> int:
        """RCV.NXT, as a place in the peer's stream."""
        receiver = self.attacked.flow.connection.record.receiver
        return (receiver.next_sequence - self.attacked.first) % SPACE

    def segment(self) -> Segment:
        """Anything about the window, or far away from it."""
        rng, record = self.rng, self.attacked.flow.connection.record
        receiver, sender = record.receiver, record.sender
        count = rng.choice((0, 1, 3, 8, rng.randrange(1461), rng.randrange(1461), 1460))
        window = receiver.window
        offset = rng.choice(
            (
                *(0, 0, 0, 0, -1, 1, -count, -count // 2, rng.randrange(3000)),
                *(window, window - 1, window + 1, window - count, -rng.randrange(1, 3000)),
                *(SPACE >> 1, (SPACE >> 1) - 1, rng.getrandbits(32)),
            )
        )
        if not self.at_edge and window // 2 < offset < 2 * window:
            offset = 0
        una, following = sender.number(sender.una), sender.number(sender.max)
        acknowledgment = rng.choice(
            (
                *(following, following, following, una, una, following + 1, una - 1),
                *(una - 100_000, following + (SPACE >> 1), rng.getrandbits(32)),
            )
        )
        flags = Flags.ACK | rng.choice((Flags(0), Flags.PSH))
        kind = rng.random()
        if kind < 0.08:
            flags = Flags(rng.getrandbits(8))
        elif kind < 0.16:
            flags |= rng.choice((Flags.SYN, Flags.RST, Flags.URG, Flags.FIN))
        if flags & (Flags.FIN | Flags.RST) and offset == 0 and rng.random() < 0.8:
            offset = 5  # else most connections end soon
        sequence = receiver.next_sequence + offset
        fields = {"window": rng.choice((0, 1, 15_000, rng.getrandbits(16)))}
        payload = self.payload(offset, count)
        return self.attacked.segment(sequence, acknowledgment, flags, payload=payload, **fields)

    def with_options(self, frame: bytes) -> bytes:
        """Random ones, many of an illegal length; and an urgent pointer."""
        rng = self.rng
        options = b""
        for _ in range(rng.randrange(1, 4)):
            kind = rng.choice((0, 1, 2, 3, 4, 5, 8, rng.getrandbits(8)))
            length = rng.choice((0, 1, 2, 3, 4, 10, rng.getrandbits(8)))
            options += bytes((kind, length)) + rng.randbytes(rng.randrange(9))
        options = options[:40]
        options += rng.randbytes(-len(options) % 4)
        header, tcp = frame[14:34], frame[34:]
        tcp = tcp[:12] + bytes(((5 + len(options) // 4) << 4,)) + tcp[13:18]
        tcp += rng.randbytes(2) + options + frame[54:]
        return frame[:14] + _ip(header, len(tcp)) + summed(tcp)

    def with_field(self, frame: bytes) -> bytes:
        """One field that is wrong under checksums that are right."""
        rng, ethernet, header, tcp = self.rng, frame[:14], frame[14:34], frame[34:]
        match rng.randrange(7):
            case 0:
                # Another one in the segment would make options of octets.
                offset = 15 if len(tcp) < 60 and rng.random() < 0.5 else rng.randrange(5)
                tcp = tcp[:12] + bytes((offset << 4 | rng.randrange(16),)) + tcp[13:]
            case 1:
                tcp = rng.choice((bytes(2) + tcp[2:], tcp[:2] + bytes(2) + tcp[4:]))
            case 2:
                tcp = tcp[: rng.randrange(20)]
            case 3:
                header = bytes((rng.choice((4, 5, 6)) << 4 | rng.randrange(16),)) + header[1:]
            case 4:
                source = rng.choice((bytes(4), b"\x7f\0\0\1", b"\xe0\0\0\1", b"\xff" * 4))
                header = header[:12] + source + header[16:]
            case 5:
                ethernet = rng.choice((b"\xff" * 6, b"\1" + frame[1:6])) + ethernet[6:]
            case 6:
                return frame[: rng.randrange(14, 60)]
        return ethernet + _ip(header, len(tcp)) + summed(tcp)

    def fragments(self, frame: bytes) -> list[bytes]:
        """Two that overlap, or not."""
        header, octets = frame[14:34], frame[34:]
        cut = 8 * self.rng.randrange(1, max(2, len(octets) // 8))
        back = 8 * self.rng.randrange(cut // 8 + 1)
        pieces = ((0, octets[:cut], True), (cut - back, octets[cut - back :], False))
        return [
            frame[:14] + _ip(header, len(piece), at // 8 | more << 13) + piece
            for at, piece, more in self.rng.sample(pieces, 2)
        ]

    def frames(self) -> list[bytes]:
        """One of the segments, with anything wrong."""
        rng = self.rng
        frame = self.attacked.frame(self.segment())
        if rng.random() < 0.3 and len(frame) < 1400:
            frame = self.with_options(frame)
        kind = rng.random()
        if kind < 0.07 and len(frame) > 60:
            return self.fragments(frame)
        if kind < 0.25:
            frame = self.with_field(frame)
        elif kind < 0.5:
            frame = broken(rng, frame)
        # The wire carries no other ones.
        return [frame[: MTU + 18].ljust(14, b"\0")]

    # What becomes of them.

    def step(self) -> None:
        """Send a frame, and look at all that can be seen of it."""
        attacked, flow = self.attacked, self.attacked.flow
        if self.rng.random() < 0.3 and not flow.queued:
            attacked.stream_sends(self.rng.randbytes(self.rng.choice((1, 100, 3000))))
            attacked.run(500)
        try:
            frames = [(frame, FrameFate[fate_of(frame).name]) for frame in self.frames()]
        except NotJudgedError:
            return
        what = "; ".join(f"{fate.name}: {frame.hex()}" for frame, fate in frames)
        self.seen.update(fate.name for _, fate in frames)
        edge = flow.connection.record.receiver.window
        position, before = self.position, attacked.rings(flow)
        taken = any(fate in (FrameFate.SEGMENT, FrameFate.RAW) for _, fate in frames)
        sums, raw = self.sums(), attacked.fates["RAW"]
        for frame, fate in frames:
            attacked.send(frame, fate)
        self.compare(what)
        assert attacked.counts() == attacked.fates, what
        assert all(memory.is_whole for memory in self.memories), what
        if not taken:
            # The driver's network may have had an ARP reply meanwhile.
            assert self.sums() == sums or attacked.fates["RAW"] > raw, what
        elif not flow.over:
            after = attacked.rings(flow)
            assert after[1] == before[1], what
            self.check_ring(before[0], after[0], position, edge)
        self.finish()

    def sums(self) -> list[int]:
        """Of all memory but what the driver writes: descriptors and buffers of frames to send."""
        return [memory.sum for memory in self.memories[:2] + self.memories[4:]]

    def compare(self, what: str) -> None:
        """NIC and shadow say the same."""
        self.seen["answers"] += len(self.attacked.settle())
        answers, expected = shown(self.attacked.answers), shown(self.attacked.expected)
        assert answers == expected, what
        assert windows_differ(self.attacked.answers, self.attacked.expected) <= 2 * MTU >> 2, what
        self.attacked.answers.clear()
        self.attacked.expected.clear()
        self.at_edge = self.attacked.same_edge()

    def check_ring(self, before: bytes, after: bytes, position: int, window: int) -> None:
        """What is new are octets of the stream, at their places, in the window."""
        if before == after:
            return
        first = self.attacked.first + position
        for place in range(RING):
            if before[place] != after[place]:
                offset = (place - first) % RING
                assert offset < window
                assert after[place] == self.octets[(position + offset) % PERIOD]

    def finish(self) -> None:
        """Read what came and acknowledge what was sent; after an end, connect again."""
        attacked, flow = self.attacked, self.attacked.flow
        if unread := flow.unread:
            came = attacked.stream.receive_exactly(unread, 5)
            assert came == flow.receive(attacked.now_us, unread)
            start = self.read % PERIOD
            assert came == (self.octets[start:] + self.octets * 3)[:unread]
            self.read += unread
            attacked.serve(flow)
        if not flow.over and not flow.shut and flow.readable:
            self.seen["fin"] += 1
            attacked.stream.close()
            flow.shutdown(attacked.now_us)
            attacked.serve(flow)
        record = flow.connection.record
        if not flow.over and (record.sender.una != record.sender.max or flow.shut or unread):
            self.compare("after it was read")
            numbers = record.receiver.next_sequence, record.sender.number(record.sender.max)
            if flow.shut and self.rng.random() < 0.5:
                reset = attacked.segment(*numbers, Flags.RST)
                attacked.send(attacked.frame(reset), FrameFate.SEGMENT)
            else:
                ack = attacked.segment(*numbers, Flags.ACK, window=15_000)
                attacked.send(attacked.frame(ack), FrameFate.SEGMENT)
            self.compare("after what was sent is acknowledged")
        if flow.over:
            if not flow.shut:
                self.seen["reset"] += 1
                with pytest.raises(StreamClosed):
                    attacked.stream.receive_exactly(1, 5)
                attacked.stream.close()
            self.connect()

    def beside(self) -> None:
        """The other connection is as it was."""
        attacked = self.attacked
        there, back = self.rng.randbytes(2000), self.rng.randbytes(2000)
        attacked.beside.send(attacked.now_us, there)
        attacked.run(1000)
        assert attacked.beside_stream.receive_exactly(len(there), 5) == there
        attacked.beside_stream.sendall(back, 5)
        attacked.run(1000)
        assert attacked.beside.receive(attacked.now_us, len(back)) == back


def test_an_octet_beside_a_ring_is_noticed(attacked, memories):
    assert len(memories) > 4
    for memory in memories:
        for octets in memory._guards:
            assert memory.is_whole
            octets[-1] ^= 1
            assert not memory.is_whole
            octets[-1] ^= 1


def seed() -> int:
    """STAGECOACH_SEED, or always the same."""
    return int(os.environ.get("STAGECOACH_SEED", "0")) or 20261


@pytest.mark.slow
@pytest.mark.requirement("TCP-MUST-3", "TCP-MUST-5", "TCP-MUST-6", "TCP-MUST-7", "TCP-MUST-68")
@pytest.mark.requirement("TCP-3.1-01", "TCP-3.1-03", "TCP-3.4-01", "TCP-3.4-03", "IPV4-3.1-01")
@pytest.mark.requirement(
    "TCP-3.10.7.4-02", "TCP-3.10.7.4-03", "TCP-SHLD-2", "CC-3.2-01", "CC-3.2-02"
)
@pytest.mark.requirement("TCPSEC-3.2-01", "TCPSEC-3.2-02", "TCPSEC-3.2-03", "TCPSEC-4.2-01")
@pytest.mark.requirement("TCPSEC-5.2-02", "TCPSEC-7-01", "IP-1122-3.2.1.2-01", "WS-2.2-03")
def test_malformed_frames_are_dropped_or_answered_and_touch_nothing_else(attacked, memories):
    print(f"STAGECOACH_SEED={seed()}")
    attack = Attack(attacked, memories, seed())
    for count in range(FRAMES):
        attack.step()
        if count % BESIDE == 0:
            attack.beside()
    print(sorted(attack.seen.items()), sorted(attacked.others.items()))
    assert FATES <= {FrameFate[name] for name in attack.seen if name in FrameFate.__members__}
    assert attack.seen["connections"] > 1
