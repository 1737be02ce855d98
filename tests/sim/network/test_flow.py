"""A connection of the engine: streams of a program, streams of a device, their ends."""

import random

import pytest

from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.model.tcp.segment import decode_packet
from tests.sim.network.rig import KIB, Link, Side

SECOND = 1_000_000


def payloads(side: Side) -> list[int]:
    return [len(decode_packet(frame[14:])[1].payload) for frame in side.sent]


def test_a_program_sends_and_receives_before_a_device_has_the_stream():
    link = Link()
    here, there = link.establish()
    active, passive = link.sides
    assert active.engine.flow(here).send(0, b"hello") == 5
    active.engine.serve(0, active.engine.flow(here))
    assert not passive.engine.flow(there).readable
    assert passive.engine.flow(there).receive(0, 9) == b""
    link.run(100)
    assert passive.engine.news
    flow = passive.engine.flow(there)
    assert flow.readable
    assert flow.receive(100, 3) + flow.receive(100, 9) == b"hello"


def test_a_program_sends_no_more_than_the_ring_holds():
    link = Link()
    here, _ = link.establish()
    flow = link.sides[0].engine.flow(here)
    assert flow.send(0, bytes(200 * KIB)) == 128 * KIB
    assert flow.send(0, bytes(9)) == 0
    link.sides[0].engine.serve(0, flow)
    link.run(25)
    assert 0 < flow.send(25, bytes(200 * KIB)) < 128 * KIB


def test_a_device_gets_what_a_program_has_not_taken_then_the_rest():
    link = Link()
    here, there = link.establish()
    active, passive = link.sides
    active.engine.flow(here).send(0, b"startup, first")
    active.engine.serve(0, active.engine.flow(here))
    link.run(100)
    assert passive.engine.flow(there).receive(100, 9) == b"startup, "
    passive.engine.attach(100, there, 3)
    assert passive.messages == [
        (LlpMessage.ATTACH, 3, 128 * KIB, b""),
        (LlpMessage.DATA, 3, 0, b"first"),
    ]
    active.engine.attach(100, here, 3)
    active.say(LlpMessage.FPDU, octets=b" and last")
    link.run(200)
    assert passive.received == b"first and last"


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.2])
def test_fpdus_of_both_devices_arrive_whole_whatever_is_lost(loss):
    rng = random.Random(f"fpdus {loss}")
    link = Link()
    link.attached()
    for side in link.sides:
        side.lost = lambda number: rng.random() < loss
    sent: list[list[bytes]] = [[], []]
    for number in range(60):
        for side, fpdus in zip(link.sides, sent, strict=True):
            fpdus.append(rng.randbytes(4 * rng.randint(6, 365)))
            side.say(LlpMessage.FPDU, octets=fpdus[-1])
        link.run(100 * number)
    link.run(200 * SECOND)
    for side, fpdus in zip(link.sides, sent[::-1], strict=True):
        assert side.received == b"".join(fpdus)
        assert side.told(LlpMessage.ACKNOWLEDGED)[-1] == sum(map(len, sent[link.sides.index(side)]))


def test_each_fpdu_begins_a_segment():
    link = Link()
    link.attached()
    active, passive = link.sides
    rng = random.Random("alignment")
    passive.lost = active.lost = lambda number: rng.random() < 0.05
    bounds, end = {0}, 0
    # More than the windows take: they wait, and several may go in one segment.
    for _ in range(100):
        count = 4 * rng.randint(6, 365)
        end += count
        bounds.add(end)
        active.say(LlpMessage.FPDU, octets=bytes(count))
    link.run(50 * SECOND)
    assert len(passive.received) == end
    first = decode_packet(active.sent[0][14:])[1].sequence
    for frame in active.sent:
        segment = decode_packet(frame[14:])[1]
        if segment.payload:
            begin = (segment.sequence - first) % 2**32
            assert {begin, begin + len(segment.payload)} <= bounds


def test_the_window_opens_when_the_device_releases():
    link = Link()
    handles = link.attached()
    active, passive = link.sides
    for _ in range(100):
        active.say(LlpMessage.FPDU, octets=bytes(1460))
    link.run(SECOND)
    # The ring is full, whatever was given to the device.
    assert 128 * KIB - 1460 < len(passive.received) <= 128 * KIB
    assert passive.engine.flow(handles[1]).info().receive_window < 1460
    passive.say(LlpMessage.RELEASED, value=64 * KIB)
    link.run(2 * SECOND)
    assert len(passive.received) == 146_000
    assert passive.engine.flow(handles[1]).info().receive_window >= 40 * KIB


def test_the_tx_ring_is_free_again_when_the_peer_has_acknowledged():
    link = Link()
    link.attached()
    active, passive = link.sides
    active.lost = lambda number: True
    active.say(LlpMessage.FPDU, octets=bytes(1000))
    link.run(SECOND)
    assert not active.told(LlpMessage.ACKNOWLEDGED)
    active.lost = lambda number: False
    link.run(20 * SECOND)
    assert active.told(LlpMessage.ACKNOWLEDGED) == [1000]
    assert passive.received == bytes(1000)


def test_a_device_that_closes_sends_fin_and_the_other_hears_of_the_end():
    link = Link()
    handles = link.attached()
    active, passive = link.sides
    active.say(LlpMessage.FPDU, octets=b"last")
    active.say(LlpMessage.CLOSE)
    link.run(SECOND)
    assert passive.received == b"last"
    assert passive.told(LlpMessage.ENDED) == [0]
    assert not active.told(LlpMessage.ENDED)
    # The other direction goes on.
    passive.say(LlpMessage.FPDU, octets=b"answer")
    link.run(2 * SECOND)
    assert active.received == b"answer"
    passive.say(LlpMessage.CLOSE)
    link.run(3 * SECOND)
    assert active.told(LlpMessage.ENDED) == [0]
    ends = [side.engine.take_ended() for side in link.sides]
    assert [end.how for end in ends if end] == [StreamEnd.CLOSED, StreamEnd.CLOSED]
    assert [end.handle for end in ends if end] == handles
    assert [end.closed_first for end in ends if end] == [True, False]
    assert [end.peer_closed for end in ends if end] == [True, True]
    assert ends[0] and ends[1] and ends[0].next_sent == ends[1].next_received


def test_a_reset_ends_it_in_both_directions():
    link = Link()
    here, there = link.attached()
    active, passive = link.sides
    active.engine.flow(here).abort(0)
    active.engine.serve(0, active.engine.flow(here))
    link.run(100)
    ended = active.engine.take_ended()
    assert ended is not None and ended.how is StreamEnd.ABORTED
    ended = passive.engine.take_ended()
    assert ended is not None and (ended.how, ended.handle) == (StreamEnd.RESET, there)
    assert not ended.peer_closed
    assert passive.told(LlpMessage.ENDED) == [1]
    # A program hears of it by what `take_ended` told.
    with pytest.raises(KeyError):
        passive.engine.flow(there).receive(100, 1)
    with pytest.raises(KeyError):
        passive.engine.flow(there).send(100, b"x")
    # What the device still sends is lost, and no error.
    passive.say(LlpMessage.FPDU, octets=bytes(100))
    passive.say(LlpMessage.RELEASED)
    passive.say(LlpMessage.DETACHED)


def test_a_reset_after_fin_tells_of_both():
    link = Link()
    here, _ = link.attached()
    active, passive = link.sides
    active.say(LlpMessage.CLOSE)
    link.run(SECOND)
    active.engine.flow(here).abort(SECOND)
    active.engine.serve(SECOND, active.engine.flow(here))
    link.run(2 * SECOND)
    ended = passive.engine.take_ended()
    assert ended is not None and (ended.how, ended.peer_closed) == (StreamEnd.RESET, True)
    assert passive.told(LlpMessage.ENDED) == [0]


def test_a_peer_that_is_silent_is_given_up():
    link = Link()
    link.attached()
    active = link.sides[0]
    active.lost = lambda number: True
    active.say(LlpMessage.FPDU, octets=bytes(100))
    link.run(300 * SECOND)
    ended = active.engine.take_ended()
    assert ended is not None and ended.how is StreamEnd.TIMED_OUT
    assert active.told(LlpMessage.ENDED) == [1]


def test_a_stream_that_left_its_device_ends_behind_what_was_sent():
    link = Link()
    link.attached()
    active, passive = link.sides
    flow = active.engine.leave(3)
    assert active.messages[-1][0] is LlpMessage.DETACH
    active.say(LlpMessage.FPDU, octets=b"under way")
    active.say(LlpMessage.DETACHED)
    assert flow.left
    # More than the ring holds.
    for _ in range(200):
        passive.say(LlpMessage.FPDU, octets=bytes(1000))
    link.run(SECOND)
    assert passive.told(LlpMessage.ACKNOWLEDGED)[-1] == 200_000
    assert passive.received == b"under way"
    assert passive.told(LlpMessage.ENDED) == [0]
    # What comes for nobody is taken, so that the peer can end it, too.
    passive.say(LlpMessage.CLOSE)
    link.run(2 * SECOND)
    assert len(active.engine) == len(passive.engine) == 0


def test_a_stream_that_has_ended_says_so_to_its_program():
    link = Link()
    here, there = link.establish()
    active, passive = link.sides
    active.engine.flow(here).send(0, b"x")
    active.engine.flow(here).shutdown(0)
    active.engine.serve(0, active.engine.flow(here))
    link.run(100)
    flow = passive.engine.flow(there)
    assert flow.receive(100, 9) == b"x"
    with pytest.raises(StreamClosed, match="no byte"):
        flow.receive(100, 0)
    with pytest.raises(StreamClosed, match="closed"):
        active.engine.flow(here).send(100, b"y")


def test_a_smaller_segment_size_is_told_to_the_device():
    link = Link()
    here, _ = link.attached()
    active = link.sides[0]
    active.engine.flow(here).resize(0, 500)
    assert active.messages[-1] == (LlpMessage.EMSS, 3, 500, b"")
    active.say(LlpMessage.FPDU, octets=bytes(1460))
    link.run(SECOND)
    assert max(payloads(active)) == 500


def test_a_segment_size_that_fell_before_is_told_with_the_stream():
    link = Link()
    here, _ = link.establish()
    active = link.sides[0]
    active.engine.flow(here).resize(0, 500)
    active.engine.attach(0, here, 3)
    assert active.messages[-1] == (LlpMessage.EMSS, 3, 500, b"")


def test_its_figures_are_those_of_the_wire():
    link = Link()
    here, there = link.attached()
    active, passive = link.sides
    active.lost = lambda number: number == 2
    for _ in range(8):
        active.say(LlpMessage.FPDU, octets=bytes(1000))
    link.run(SECOND)
    info, other = active.engine.flow(here).info(), passive.engine.flow(there).info()
    assert info.state == "ESTABLISHED"
    assert info.octets_sent == 8000
    assert info.retransmissions == 1
    assert info.segments_sent == len(active.sent) == 9
    assert info.segments_received == other.segments_sent == len(passive.sent)
    assert other.octets_received == 8000
    assert info.in_flight == info.queued == 0
    assert info.maximum_segment_size == 1460
    assert info.smoothed_rtt_us == pytest.approx(20, abs=5)
    assert info.next_sent == info.unacknowledged == other.next_received
