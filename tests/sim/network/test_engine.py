"""The engine's tables: which frames are whose, limits, LLP connections that come and go."""

from dataclasses import replace

import pytest

from stagecoach.host_driver.transport.base import TransportError
from stagecoach.sim.llp_messages import LlpMessage
from stagecoach.sim.model.tcp.segment import Flags, decode_packet, encode_packet
from stagecoach.sim.network.engine import MAXIMUM_FRAMES
from tests.sim.network.rig import MACS, Link


def test_frames_of_no_connection_are_the_drivers():
    link = Link()
    link.attached()
    active, passive = link.sides
    active.say(LlpMessage.FPDU, octets=bytes(100))
    (frame,) = active.sent
    others = [
        MACS[0] + frame[6:],  # for another card
        frame[:12] + b"\x86\xdd" + frame[14:],  # IPv6
        frame[:-1] + b"!",  # a wrong checksum
        frame[:36] + b"\0\1" + frame[38:],  # another port, with a wrong checksum
        frame[:20],
    ]
    for other in others:
        passive.engine.take_frame(0, other)
    assert list(passive.engine.frames) == others
    passive.engine.take_frame(0, frame)
    assert passive.received == bytes(100)
    assert len(passive.engine.frames) == len(others)


def test_frames_of_a_connection_that_ended_are_the_drivers():
    link = Link()
    here, _ = link.attached()
    active, passive = link.sides
    passive.say(LlpMessage.FPDU, octets=bytes(100))
    active.engine.flow(here).abort(0)
    active.engine.serve(0, active.engine.flow(here))
    assert len(active.engine) == 0
    active.engine.take_frame(0, passive.sent[0])
    assert list(active.engine.frames) == passive.sent


def test_frames_that_the_driver_does_not_take_are_dropped_and_counted():
    engine = Link().sides[0].engine
    for number in range(MAXIMUM_FRAMES + 7):
        engine.take_frame(0, b"\xff" * 12 + number.to_bytes(4, "big"))
    assert len(engine.frames) == MAXIMUM_FRAMES
    assert engine.dropped == 7
    assert engine.frames[0][12:] == bytes(4)


def test_urgent_segments_of_its_connections_are_counted_and_stay_in_the_stream():
    link = Link()
    here, there = link.establish()
    active, passive = link.sides
    active.engine.attach(0, here, 1)
    active.say(LlpMessage.FPDU, 1, octets=b"at once")
    packet, segment = decode_packet(active.sent[-1][14:])
    urgent = replace(segment, flags=segment.flags | Flags.URG, urgent=3)
    octets = encode_packet(urgent, packet.source, packet.destination)
    passive.engine.take_frame(0, active.sent[-1][:14] + octets)
    assert passive.engine.urgent == 1
    assert passive.engine.flow(there).receive(0, 9) == b"at once"


def test_frames_that_came_before_the_connection_are_its_own():
    link = Link()
    here, _ = link.establish()
    active, passive = link.sides
    established = passive.engine.flow(1).established
    active.engine.attach(0, here, 1)
    active.say(LlpMessage.FPDU, 1, octets=b"early")
    other = Link().sides[1]
    handle = other.engine.establish(0, established, tuple(active.sent))
    assert other.engine.flow(handle).receive(0, 9) == b"early"


def test_limits_and_known_ends_are_refused():
    link = Link()
    for port in range(4):
        link.establish(port=port + 1)
    with pytest.raises(TransportError, match="4 connections are established; allowed: 4"):
        link.establish(port=9)
    link = Link()
    link.establish()
    with pytest.raises(TransportError, match=r"has the connection .* already"):
        link.establish()


def test_an_unknown_handle_is_a_key_error():
    with pytest.raises(KeyError):
        Link().sides[0].engine.flow(1)


def test_an_llp_connection_has_one_stream():
    link = Link()
    first, _ = link.establish(port=1)
    second, _ = link.establish(port=2)
    side = link.sides[0]
    side.engine.attach(0, first, 3)
    with pytest.raises(TransportError, match="connection 3 has a stream already"):
        side.engine.attach(0, second, 3)
    with pytest.raises(TransportError, match="connection 2 has no stream"):
        side.engine.leave(2)
    side.engine.leave(3)
    with pytest.raises(TransportError, match="connection 3 has no stream"):
        side.engine.leave(3)


def test_messages_before_a_stream_has_left_are_still_its_own():
    link = Link()
    first, _ = link.establish(port=1)
    second, _ = link.establish(port=2)
    side = link.sides[0]
    side.engine.attach(0, first, 3)
    side.engine.leave(3)
    side.engine.attach(0, second, 3)
    side.say(LlpMessage.FPDU, octets=b"of the first")
    side.say(LlpMessage.DETACHED)
    side.say(LlpMessage.FPDU, octets=b"second")
    infos = [side.engine.flow(handle).info() for handle in (first, second)]
    assert [info.octets_sent for info in infos] == [12, 6]


def test_a_peer_that_moves_is_followed():
    link = Link()
    here, _ = link.attached()
    active, _ = link.sides
    active.say(LlpMessage.FPDU, octets=bytes(100))
    active.engine.flow(here).remote_mac = b"\2newer"
    active.say(LlpMessage.FPDU, octets=bytes(100))
    assert [frame[:6] for frame in active.sent] == [MACS[1], b"\2newer"]


@pytest.mark.requirement("TCP-MUST-20")
def test_a_connection_is_doubtful_once_until_it_is_answered():
    """RFC 9293, MUST-20: after R1 retransmissions."""
    link = Link()
    here, _ = link.attached()
    active, passive = link.sides
    active.say(LlpMessage.FPDU, octets=bytes(100))
    told = []
    for _ in range(5):
        now = active.engine.next_deadline()
        active.engine.timer(now)
        told.append(list(active.engine.doubtful))
    assert told == [[], [], [here], [here], [here]]
    passive.engine.take_frame(now, active.sent[0])
    passive.engine.timer(passive.engine.next_deadline())
    (answer,) = passive.sent
    active.engine.take_frame(now, answer)
    active.say(LlpMessage.FPDU, octets=bytes(100))
    for _ in range(3):
        active.engine.timer(active.engine.next_deadline())
    assert list(active.engine.doubtful) == [here, here]


def test_the_octets_of_an_ended_connection_can_be_taken_until_the_next_is_asked_for():
    link = Link()
    here, there = link.establish()
    active, passive = link.sides
    active.engine.flow(here).send(0, b"left over")
    active.engine.flow(here).shutdown(0)
    active.engine.serve(0, active.engine.flow(here))
    link.run(100)
    passive.engine.flow(there).connection.close(100)
    passive.engine.serve(100, passive.engine.flow(there))
    link.run(200)
    ended = passive.engine.take_ended()
    assert ended is not None
    assert passive.engine.flow(there).receive(200, 99) == b"left over"
    assert passive.engine.take_ended() is None
    with pytest.raises(KeyError):
        passive.engine.flow(there)


def test_sizes_of_the_rings_are_those_of_the_address():
    link = Link(rx_ring=1 << 18, tx_ring=1 << 19)
    link.attached()
    side = link.sides[0]
    assert side.told(LlpMessage.ATTACH) == [1 << 19]
    settings = replace(side.engine.settings, rto_minimum=200_000).tcp
    assert settings.receive_buffer == 1 << 18
    assert settings.delayed_ack == 40_000
