"""The reference TCP: two of them over links that are clean, or lose, reorder and duplicate."""

import heapq
import itertools
import random
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.options import Options
from stagecoach.sim.model.tcp.segment import Flags, Segment, decode_packet, encode_packet
from stagecoach.sim.model.tcp.state import Cause, Settings, State, StateError

requirement = pytest.mark.requirement
HOSTS = (IPv4Address("192.0.2.1"), 40000), (IPv4Address("192.0.2.2"), 4420)
KEY = bytes(range(16))
DELAY_US = 1_000


class Link:
    """Two connections joined in simulated time; packets pass the codec."""

    def __init__(self, *settings: Settings, seed: int = 0, bad: float = 0.0) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self.bad = bad
        both = settings if len(settings) == 2 else (settings or (Settings(),)) * 2
        self.ends = [Connection(HOSTS[i], KEY, both[i]) for i in range(2)]
        self.wire: list[tuple[int, int, int, bytes]] = []
        self.number = itertools.count()
        self.log: list[tuple[int, int, Segment]] = []

    def flush(self) -> None:
        """Put onto the wire what the connections want to send."""
        for index, end in enumerate(self.ends):
            for segment in end.output:
                self.log.append((self.now, index, segment))
                octets = encode_packet(segment, HOSTS[index][0], HOSTS[1 - index][0])
                if self.random.random() < self.bad:
                    continue
                for _ in range(1 + (self.random.random() < self.bad)):
                    late = self.random.randrange(5_000) if self.random.random() < self.bad else 0
                    at = self.now + DELAY_US + late
                    heapq.heappush(self.wire, (at, next(self.number), 1 - index, octets))
            end.output.clear()

    def step(self) -> bool:
        """Go on to the next event; False if there is none."""
        self.flush()
        deadlines = [end.next_deadline() for end in self.ends]
        times = [at for at in deadlines if at is not None] + [item[0] for item in self.wire[:1]]
        if not times:
            return False
        self.now = max(self.now, min(times))
        if self.wire and self.wire[0][0] <= self.now:
            _, _, index, octets = heapq.heappop(self.wire)
            packet, segment = decode_packet(octets)
            self.ends[index].segment_arrives(self.now, segment, packet.source)
        else:
            for end in self.ends:
                end.timer(self.now)
        return True

    def run(self, until: int) -> None:
        """Run all events up to a time."""
        while self.step() and self.now < until:
            pass

    def connect(self) -> None:
        self.ends[1].listen()
        self.ends[0].open(self.now, HOSTS[1])
        while State.ESTABLISHED is not self.ends[0].state or self.ends[1].state is not (
            State.ESTABLISHED
        ):
            assert self.step()


def transfer(link: Link, streams: list[bytes], chunk: int) -> None:
    """Send a stream each way, read all, close both."""
    link.connect()
    sent, got = [0, 0], [b"", b""]
    closed = [False, False]
    for _ in range(400_000):
        for index, end in enumerate(link.ends):
            if sent[index] < len(streams[index]):
                count = link.random.randrange(1, chunk)
                end.send(link.now, streams[index][sent[index] : sent[index] + count])
                sent[index] += count
            elif not closed[index] and end.state in (State.ESTABLISHED, State.CLOSE_WAIT):
                end.close(link.now)
                closed[index] = True
            if link.random.random() < 0.5:
                got[index] += end.receive(link.now, link.random.randrange(1, 60_000))
        if not link.step():
            break
    for index, end in enumerate(link.ends):
        got[index] += end.receive(link.now)
        assert end.finished
        assert (end.state, end.cause) == (State.CLOSED, Cause.CLOSED)
        assert got[index] == streams[1 - index]


@requirement("TCP-3.6-01", "TCP-SHLD-31", "TCP-MUST-18")
@pytest.mark.parametrize("bad", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("buffer", [3_000, 20_000, 256 << 10])
@pytest.mark.parametrize("sack", [False, True])
def test_streams_arrive_over_a_bad_link(bad, buffer, sack):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    settings = Settings(receive_buffer=buffer, rto_minimum=10_000, sack=sack, r2=10**12)
    link = Link(settings, replace(settings, mss=536), seed=seed, bad=bad)
    streams = [chosen.randbytes(chosen.randrange(150_000)) for _ in range(2)]
    transfer(link, streams, 5_000)


@requirement("TCP-3.4-01")
def test_sequence_numbers_wrap_in_the_middle_of_a_transfer():
    link = Link()
    # The clock of the initial sequence number, set so that it ends 5000 below the wrap.
    link.ends[0].open(0, HOSTS[1])
    first = link.ends[0].output.pop().sequence
    link.ends[0] = Connection(HOSTS[0], KEY)
    link.now = 4 * ((1 << 32) - 5_000 - first)
    transfer(link, [bytes(range(256)) * 100, b"back"], 5_000)
    assert link.log[0][2].sequence == (1 << 32) - 5_000
    assert any(index == 0 and segment.sequence < 50_000 for _, index, segment in link.log)


@requirement("CC-3.2-01", "CC-3.2-03", "SACK-4-01")
def test_lost_segment_is_sent_again_after_three_duplicates_without_the_timer():
    link = Link()
    link.connect()
    link.flush()
    link.ends[0].send(link.now, bytes(8 * 1460))
    lost = link.ends[0].output.pop(0)
    began = link.now
    link.run(link.now + 10 * DELAY_US)
    assert link.ends[1].receive(link.now) == bytes(8 * 1460)
    again = [at for at, _, segment in link.log if segment.sequence == lost.sequence]
    assert again[-1] == began + 2 * DELAY_US
    sacks = [segment.options.sack for _, index, segment in link.log if index == 1][1:]
    edge = lost.sequence + 1460
    assert sacks[:3] == [((edge, edge + 1460 * count),) for count in (1, 2, 3)]


def shapes(link: Link) -> list[tuple[int, Flags]]:
    return [(index, segment.flags) for _, index, segment in link.log]


@requirement("TCP-MUST-14", "WS-2.2-04")
def test_handshake_and_options():
    link = Link(Settings(receive_buffer=256 << 10))
    link.connect()
    assert shapes(link) == [(0, Flags.SYN), (1, Flags.SYN | Flags.ACK), (0, Flags.ACK)]
    assert link.log[0][2].options == Options(mss=1460, window_scale=3, sack_permitted=True)
    assert (link.log[0][2].window, link.log[2][2].window) == (0xFFFF, (256 << 10) >> 3)


@requirement("TCP-MUST-10", "TCP-3.6-01", "TCP-MUST-13")
def test_simultaneous_open_and_close():
    link = Link()
    for index, end in enumerate(link.ends):
        end.open(0, HOSTS[1 - index])
    link.run(DELAY_US * 10)
    assert [end.state for end in link.ends] == [State.ESTABLISHED] * 2
    for end in link.ends:
        end.close(link.now)
    link.flush()
    link.step()
    assert link.ends[1].state is State.CLOSING
    while link.step() and link.wire:
        pass
    assert [end.state for end in link.ends] == [State.TIME_WAIT] * 2
    began = link.now
    link.run(10**9)
    assert link.now == began + 240_000_000
    assert [end.state for end in link.ends] == [State.CLOSED] * 2


@requirement("TCP-MUST-23")
def test_syn_without_answer_ends_after_r2():
    link = Link(bad=1.0)
    link.ends[0].open(0, HOSTS[1])
    link.run(10**9)
    times = [at for at, _, _ in link.log]
    assert times[:5] == [0, 1_000_000, 3_000_000, 7_000_000, 15_000_000]
    assert link.ends[0].cause is Cause.TIMED_OUT
    assert link.ends[0].suspect
    assert 180_000_000 <= link.now <= 240_000_000


def test_connection_without_listener_is_refused():
    link = Link()
    link.ends[0].open(0, HOSTS[1])
    link.run(10**9)
    assert link.ends[0].cause is Cause.REFUSED
    assert shapes(link) == [(0, Flags.SYN), (1, Flags.RST | Flags.ACK)]


@requirement("TCP-MUST-36")
def test_zero_window_is_probed_with_one_byte_until_it_opens():
    link = Link(Settings(receive_buffer=4_000))
    link.connect()
    link.ends[0].send(link.now, bytes(10_000))
    link.run(link.now + 20_000_000)
    sizes = [len(segment.payload) for _, index, segment in link.log if index == 0][2:]
    assert sizes[:3] == [1460, 1460, 1080]
    assert set(sizes[3:]) == {1}
    assert 4 <= len(sizes[3:]) <= 5
    assert link.ends[0].state is State.ESTABLISHED
    assert link.ends[1].receive(link.now) == bytes(4_000)


def one_segment(link: Link, **changes) -> Segment:
    """A segment from end 0 to end 1 as it would be sent now, changed."""
    link.ends[0]._record.send_ack(link.now)
    segment = link.ends[0].output.pop()
    return replace(segment, **changes)


@requirement("TCPSEC-3.2-01", "TCPSEC-3.2-02", "TCPSEC-3.2-03", "TCPSEC-4.2-01")
@pytest.mark.parametrize(
    ("offset", "flags", "answered", "state"),
    [
        (0, Flags.RST, False, State.CLOSED),
        (1, Flags.RST, True, State.ESTABLISHED),
        (-1, Flags.RST, False, State.ESTABLISHED),
        (0, Flags.SYN, True, State.ESTABLISHED),
        (-5, Flags.SYN, True, State.ESTABLISHED),
    ],
)
def test_reset_and_syn_are_taken_as_rfc5961_says(offset, flags, answered, state):
    link = Link()
    link.connect()
    link.flush()
    end = link.ends[1]
    segment = one_segment(link, flags=flags)
    segment = replace(segment, sequence=(segment.sequence + offset) % (1 << 32))
    end.segment_arrives(link.now, segment, HOSTS[0][0])
    assert end.state is state
    assert [answer.flags for answer in end.output] == [Flags.ACK] * answered


def test_reading_sends_no_ack_if_the_field_cannot_announce_more():
    link = Link(Settings(receive_buffer=256 << 10, window_scaling=False))
    link.connect()
    for _ in range(3):
        assert link.ends[1].receive(link.now) == b""
    assert link.ends[1].output == []


def test_reset_in_time_wait_is_no_failure():
    link = Link()
    link.connect()
    end = link.ends[1]
    end.close(link.now)
    while link.ends[0].state is not State.CLOSE_WAIT:
        assert link.step()
    link.ends[0].close(link.now)
    while link.ends[0].state is not State.CLOSED:
        assert link.step()
    assert (end.state, link.ends[0].cause) == (State.TIME_WAIT, Cause.CLOSED)
    reset = Segment(HOSTS[0][1], HOSTS[1][1], end._record.receiver.next_sequence, flags=Flags.RST)
    end.segment_arrives(link.now, reset, HOSTS[0][0])
    assert (end.state, end.cause) == (State.CLOSED, Cause.CLOSED)


def test_challenge_acks_are_limited():
    link = Link()
    link.connect()
    segment = one_segment(link, flags=Flags.SYN)
    for _ in range(30):
        link.ends[1].segment_arrives(link.now, segment, HOSTS[0][0])
    assert len(link.ends[1].output) == 10


@requirement("TCP-MUST-24", "TCP-MUST-29")
def test_keep_alive_probes_then_resets():
    link = Link(Settings(keep_alive=7_200_000_000), Settings())
    link.connect()
    link.flush()
    link.run(link.now + 7_300_000_000)
    assert link.ends[0].state is State.ESTABLISHED
    link.bad = 1.0
    link.run(10**11)
    assert link.ends[0].cause is Cause.KEEP_ALIVE
    assert link.log[-1][2].flags == Flags.RST | Flags.ACK


@requirement("TCP-SHLD-18", "TCP-SHLD-19")
def test_second_segment_is_acknowledged_at_once_and_a_single_one_late():
    link = Link()
    link.connect()
    link.flush()
    link.log.clear()
    link.ends[0].send(link.now, bytes(10))
    began = link.now
    while len(link.log) < 2 and link.step():
        pass
    assert link.log[1][:2] == (began + DELAY_US + 40_000, 1)
    link.log.clear()
    link.ends[0].send(link.now, bytes(2 * 1460))
    began = link.now
    while len(link.log) < 3 and link.step():
        pass
    assert link.log[2][:2] == (began + DELAY_US, 1)


def test_calls_in_wrong_states_are_refused():
    end = Connection(HOSTS[0], KEY)
    with pytest.raises(StateError, match="not in CLOSED"):
        end.send(0, b"a")
    end.listen()
    with pytest.raises(StateError, match="not in LISTEN"):
        end.listen()
