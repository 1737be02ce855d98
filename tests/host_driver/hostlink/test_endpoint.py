"""Two ends of the link, and what a line between them may do."""

import random
from collections.abc import Callable

import pytest

from stagecoach.host_driver.crc32c import crc32c
from stagecoach.host_driver.hostlink.endpoint import Counters, Endpoint
from stagecoach.host_driver.hostlink.frames import Deframer, Frame, parse
from stagecoach.hw.interface.hostlink import (
    ESCAPE,
    FIRST_MESSAGE,
    FLAG,
    MAXIMUM_PAYLOAD,
    WINDOW,
    Kind,
)
from stagecoach.sim.model.crc32c import crc32c as model_crc32c
from tests.hostlink.faults import Faults

RETRY = 0.2


def test_crc_is_that_of_the_model():
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4 names no such string; its usual check
    rng = random.Random(1)
    for octets in (b"", rng.randbytes(1), rng.randbytes(311)):
        assert crc32c(octets) == model_crc32c(octets)


def test_a_frame_comes_back_whatever_its_octets():
    rng = random.Random(2)
    payloads = [b"", bytes(range(256)), bytes([0x7D, 0x7E] * 152), rng.randbytes(MAXIMUM_PAYLOAD)]
    frames = [Frame(0x7E, 0x7D, number, payload) for number, payload in enumerate(payloads)]
    line = b"".join(frame.pack() for frame in frames)
    assert line.count(FLAG) == len(frames)
    deframer = Deframer()
    assert [frame for octet in line for frame in deframer.take(bytes([octet]))] == frames


@pytest.mark.parametrize("payload", [b"", b"\x7e\x7d\x20", bytes(40)])
def test_one_wrong_octet_is_found_wherever_it_is(payload):
    good = Frame(0x22, 1, 2, payload).pack()[:-1]
    for at in range(len(good)):
        for change in (0x01, 0x20, 0xFF):
            changed = good[:at] + bytes([good[at] ^ change]) + good[at + 1 :]
            if FLAG not in changed:
                assert parse(changed) is None
        assert parse(good[:at] + good[at + 1 :]) is None
        assert parse(good[:at] + b"\x55" + good[at:]) is None


def test_frames_that_are_too_short_or_too_long_are_broken():
    assert parse(Frame(0x22, 0, 0, bytes(MAXIMUM_PAYLOAD)).pack()[:-1]) is not None
    assert parse(Frame(0x22, 0, 0, bytes(MAXIMUM_PAYLOAD + 1)).pack()[:-1]) is None
    assert parse(b"") is None and parse(bytes(6)) is None and parse(b"\x7d") is None
    deframer = Deframer()
    assert deframer.take(bytes(100_000)) == []
    assert deframer.take(bytes([FLAG])) == [None]
    assert deframer.take(Frame(0x22, 5, 6).pack()) == [Frame(0x22, 5, 6)]


class Line:
    """Two ends, whose octets arrive a little later, if they arrive."""

    def __init__(self, faults: "Faults | OneFault"):
        self.faults = faults
        self.ends = (Endpoint(RETRY, 1e9), Endpoint(RETRY, 1e9))
        self.came: tuple[list, list] = ([], [])
        self.on_the_way = [b"", b""]
        self.now = 0.0
        self.outstanding = 0

    def step(self) -> None:
        for number in (0, 1):
            octets, self.on_the_way[number] = self.on_the_way[number], b""
            self.came[number].extend(self.ends[number].input(octets, self.now))
        for number in (0, 1):
            out = self.ends[number].output(self.now)
            self.on_the_way[1 - number] += self.faults.apply(out)
        self.outstanding = max(self.outstanding, *(len(end._sent) for end in self.ends))
        self.now += 0.01


@pytest.mark.parametrize("share", [0.0, 0.0003, 0.003])
def test_every_message_arrives_once_and_in_order(share):
    rng = random.Random(f"endpoint {share}")
    line = Line(Faults(rng, share, share, share))
    sent: tuple[list, list] = ([], [])
    for _ in range(600):
        for number in (0, 1):
            if rng.random() < 0.7:
                message = (rng.randrange(0x10, 0x30), rng.randbytes(rng.choice([0, 1, 9, 80])))
                sent[number].append(message)
                line.ends[number].send(*message)
        line.step()
    for _ in range(100_000):
        if all(end.idle for end in line.ends):
            break
        line.step()
    assert line.came == (sent[1], sent[0])
    assert line.outstanding <= WINDOW
    again = sum(end.counters.sent_again for end in line.ends)
    assert (again > 0) == (share > 0) == (line.faults.count > 0)


class OneFault:
    """Does one thing to the octet at a place, of all that cross a line, and nothing else."""

    def __init__(self, place: int, becomes: Callable[[int], bytes]):
        self.place = place
        self.becomes = becomes
        self.crossed = 0

    def apply(self, octets: bytes) -> bytes:
        at = self.place - self.crossed
        self.crossed += len(octets)
        if not 0 <= at < len(octets):
            return octets
        return octets[:at] + self.becomes(octets[at]) + octets[at + 1 :]


FAULTS: dict[str, Callable[[int], bytes]] = {
    "lost": lambda octet: b"",
    "changed": lambda octet: bytes([octet ^ 0x20]),
    "duplicated": lambda octet: bytes([octet, octet]),
    "a flag after it": lambda octet: bytes([octet, FLAG]),
    "an escape after it": lambda octet: bytes([octet, ESCAPE]),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind >= FIRST_MESSAGE])
def test_no_message_suffers_from_any_wrong_octet(kind, fault):
    """Each octet of the message, of the next one, and of the acknowledgements, one at a time."""
    sent = [(int(kind), bytes([FLAG, 1, ESCAPE, 0x20, 5])), (int(Kind.REGISTER_READ), bytes(2))]
    place, crossed = 0, 1
    while place < crossed:
        line = Line(OneFault(place, FAULTS[fault]))
        line.ends[0].send(*sent[0])
        line.step()
        line.ends[0].send(*sent[1])
        while not (line.ends[0].idle and line.ends[1].idle):
            line.step()
            line.now += 0.1
            assert line.now < 10
        assert line.came == ([], sent), f"octet {place} {fault}"
        place, crossed = place + 1, line.faults.crossed
    assert place > 40


def test_nothing_is_repeated_on_a_good_line_before_its_time():
    end = Endpoint(RETRY, 5.0)
    end.send(Kind.REGISTER_READ, bytes(2))
    assert end.deadline() is None
    first = end.output(1.0)
    assert first and end.output(1.0 + 0.9 * RETRY) == b""
    assert end.deadline() == pytest.approx(1.0 + RETRY)
    assert end.output(1.0 + 1.01 * RETRY) == first
    # Twice as long then.
    assert end.output(1.0 + 2.9 * RETRY) == b""
    assert end.output(1.0 + 3.1 * RETRY) == first
    assert not end.is_lost(5.9) and end.is_lost(6.0)
    end.input(Frame(Kind.ACKNOWLEDGE, 0, 1).pack(), 6.0)
    assert end.idle and end.deadline() is None and not end.is_lost(100.0)


def test_an_acknowledgement_of_what_was_not_sent_is_ignored():
    end = Endpoint(RETRY, 5.0)
    end.send(0x10)
    end.output(0.0)
    for number in (2, 17, 0xFF):
        end.input(Frame(Kind.ACKNOWLEDGE, 0, number).pack(), 0.0)
        assert not end.idle
    end.input(Frame(Kind.ACKNOWLEDGE, 0, 1).pack(), 0.0)
    assert end.idle


def test_a_gap_is_rejected_once_and_a_repeated_message_is_taken_once():
    counters = Counters()
    end = Endpoint(RETRY, 5.0, counters)
    deframer = Deframer()

    def give(*numbers: int) -> tuple[list, list]:
        octets = b"".join(Frame(0x20, number, 0, bytes([number])).pack() for number in numbers)
        came = [payload[0] for _, payload in end.input(octets, 0.0)]
        answers = deframer.take(end.output(0.0))
        return came, [(frame.kind, frame.acknowledge) for frame in answers if frame]

    assert give(0) == ([0], [(Kind.ACKNOWLEDGE, 1)])
    assert give(2, 3) == ([], [(Kind.REJECT, 1)])
    assert give(4) == ([], [(Kind.ACKNOWLEDGE, 1)])
    assert give(1, 2, 3) == ([1, 2, 3], [(Kind.ACKNOWLEDGE, 4)])
    assert give(2, 3) == ([], [(Kind.ACKNOWLEDGE, 4)])
    assert give(5) == ([], [(Kind.REJECT, 4)])
    assert (counters.rejects_sent, counters.messages_received) == (2, 4)
