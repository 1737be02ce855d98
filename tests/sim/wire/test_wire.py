"""A wire with its end, impairments and capture."""

import os
import random
import select
import socket
import time

import pytest

from stagecoach.sim.capture.file import read_packets
from stagecoach.sim.wire.address import parse_wire
from stagecoach.sim.wire.clock import CYCLE_PS, CycleClock
from stagecoach.sim.wire.errors import FramingError, NoSuchWire, PeerGone, WireError
from stagecoach.sim.wire.stream import connect_stream, listen_stream
from stagecoach.sim.wire.wire import Wire
from tests.sim.capture.tshark import fields

FRAME = bytes(range(60))
FRAME_CYCLES = 11  # 10.5, up to the next one


@pytest.fixture
def name():
    return f"test-{os.getpid()}-{time.monotonic_ns()}"


def address(wire: str, more: str = ""):
    return parse_wire(f"sim://?wire={wire}&ip=192.0.2.2/24{more}")


def joined(name: str, clock: CycleClock, more: str = "") -> tuple[Wire, Wire]:
    """Two wires of a pair; only the first has impairments."""
    wires = (Wire(address(f"pair:{name}", more), clock), Wire(address(f"pair:{name}"), clock))
    assert wires[0].connected
    return wires


def test_a_frame_arrives_after_its_time_on_both_wires(name):
    clock = CycleClock()
    first, second = joined(name, clock)
    with first, second:
        assert first.send(FRAME)
        assert first.next_arrival_ps == 67_200  # 10.5 cycles
        arrived = {}
        for cycle in range(30):
            first.poll()
            if second.receive() == FRAME:
                arrived[cycle] = True
            clock.advance(1)
        # The second wire takes it in the first whole cycle.
        assert list(arrived) == [FRAME_CYCLES + FRAME_CYCLES]


def exchange(name: str, seed: int, more: str) -> list[tuple[int, int, bytes]]:
    """Random frames in both directions: what arrives where, in which cycle."""
    draw = random.Random(seed)
    clock = CycleClock()
    wires = joined(name, clock, more)
    arrived = []
    for cycle in range(20_000):
        for side, wire in enumerate(wires):
            if cycle < 15_000 and draw.random() < 0.02:
                wire.send(draw.randbytes(draw.randint(60, 1514)))
            while (frame := wire.receive()) is not None:
                arrived.append((cycle, side, frame))
        clock.advance(1)
    for wire in wires:
        wire.close()
    return arrived


def test_a_run_in_cycles_repeats_to_the_digit(name):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    more = "&loss=0.1&duplicate=0.1&reorder=0.1&corrupt=0.1&delay_us=2&seed=1"
    first = exchange(name, seed, more)
    assert len(first) > 100
    assert exchange(name, seed, more) == first
    assert exchange(name, seed, more.replace("seed=1", "seed=2")) != first


def test_each_direction_has_its_impairments(name):
    clock = CycleClock()
    first, second = joined(name, clock, "&tx_loss=1")
    with first, second:
        assert first.send(FRAME)
        assert second.send(FRAME)
        second_got = []
        first_got = []
        for _ in range(100):
            first_got.append(first.receive())
            second_got.append(second.receive())
            clock.advance(1)
    assert first_got.count(FRAME) == 1
    assert not any(second_got)


def test_a_wire_that_is_busy_takes_no_more(name):
    clock = CycleClock()
    first, second = joined(name, clock)
    with first, second:
        frame = bytes(1514)
        taken = 0
        while first.send(frame):
            taken += 1
        # A millisecond is 156,250 cycles; the last one may end after it.
        assert taken == 156_250 * 8 // (1514 + 24) + 1
        clock.advance(2 * 156_250)
        arrived = 0
        for _ in range(10 * taken):
            first.poll()
            arrived += second.receive() is not None
            clock.advance(200)
        assert arrived == taken
        assert first.send(frame)


def test_a_peer_that_sends_more_than_the_rate_has_to_wait(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peer = listen_stream("wire.sock")
    clock = CycleClock()
    frame = bytes(1514)
    with Wire(address("unix:wire.sock", "&rate_gbps=0.001"), clock) as wire:
        assert peer.connected
        for _ in range(2):  # what the socket holds, and what is read of it in one piece
            while peer.send(frame):
                pass
            wire.poll()
        assert not peer.send(frame)  # one frame fills more than a millisecond
        for arrived in range(100):
            assert wire.receive() is None
            clock.advance(12_304 * 156_250 // 1000)  # 12,304 bits at 1 Mbit/s
            assert wire.receive() == frame, arrived
        assert peer.send(frame)
    peer.close()


@pytest.mark.parametrize("length", [0, 13, 1519])
def test_frames_of_other_lengths_are_refused(name, length):
    with Wire(address(f"pair:{name}")) as wire:
        with pytest.raises(ValueError, match=f"has {length} bytes; allowed: 14 to 1518"):
            wire.send(bytes(length))


def test_a_capture_has_what_arrived(name, tmp_path):
    path = tmp_path / "wire.pcapng"
    clock = CycleClock()
    more = f"&pcap={path}&loss=0.2&duplicate=0.2&seed=4"
    first, second = joined(name, clock, more)
    outbound, inbound = [], []
    with first, second:
        for number in range(100):
            assert first.send(number.to_bytes(4, "big") * 15)
            assert second.send(number.to_bytes(4, "little") * 15)
            for _ in range(2 * FRAME_CYCLES):
                clock.advance(1)
                first.poll()
                if (frame := second.receive()) is not None:
                    outbound.append(frame)
                if (frame := first.receive()) is not None:
                    inbound.append(frame)
        for _ in range(20 * FRAME_CYCLES):
            clock.advance(1)
            first.poll()
            if (frame := second.receive()) is not None:
                outbound.append(frame)
            if (frame := first.receive()) is not None:
                inbound.append(frame)
    assert len(set(outbound)) < 100
    assert len(set(inbound)) < 100
    directions = [row[0] for row in fields(path, "frame.packet_flags_direction")]
    packets = list(zip(directions, read_packets(path), strict=True))
    assert [packet.octets for way, packet in packets if way == "0x00000002"] == outbound
    assert [packet.octets for way, packet in packets if way == "0x00000001"] == inbound
    for way, packet in packets:
        if way == "0x00000002":
            # It began 22 cycles after the one before, or after its first copy, and took 10.5.
            start = 22 * int.from_bytes(packet.octets[:4], "big") * CYCLE_PS
            assert packet.time_ns in {(start + n * 67_200) // 1000 for n in (1, 2)}


def test_by_the_wall_clock_a_program_can_wait_for_frames(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peer = listen_stream("wire.sock")
    with Wire(address("unix:wire.sock", "&delay_us=1000")) as wire:
        assert peer.connected
        before = time.monotonic_ns()
        assert peer.send(FRAME)
        assert select.select([wire], [], [], 10)[0]
        while (frame := wire.receive()) is None:
            assert time.monotonic_ns() - before < 10e9
        assert time.monotonic_ns() - before >= 1e6
        assert frame == FRAME
    peer.close()


def test_what_was_under_way_arrives_before_the_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peer = listen_stream("wire.sock")
    clock = CycleClock()
    with Wire(address("unix:wire.sock", "&delay_us=1"), clock) as wire:
        assert peer.connected
        assert peer.send(FRAME)
        peer.close()
        assert wire.receive() is None
        assert not wire.connected
        clock.advance(1000)
        assert wire.receive() == FRAME
        with pytest.raises(PeerGone):
            wire.receive()
        with pytest.raises(PeerGone):
            wire.send(FRAME)


def test_frames_of_wrong_lengths_are_counted_and_do_no_harm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peer = listen_stream("wire.sock")
    clock = CycleClock()
    with Wire(address("unix:wire.sock"), clock) as wire:
        assert peer.connected
        for length in (0, 13, 14, 1518, 1519, 9018):
            assert peer.send(bytes(length))
        wire.poll()
        clock.advance(10_000)
        assert [len(wire.receive() or b"") for _ in range(3)] == [14, 1518, 0]
        assert wire.refused == {"too_short": 2, "too_long": 2}
        assert wire.connected
    peer.close()


def test_frames_that_are_too_short_take_their_time(tmp_path, monkeypatch):
    """However many a peer sends, they end a look at the wire as frames do."""
    monkeypatch.chdir(tmp_path)
    peer = listen_stream("wire.sock")
    clock = CycleClock()
    with Wire(address("unix:wire.sock", "&rate_gbps=0.001"), clock) as wire:
        assert peer.connected
        for _ in range(100):
            assert peer.send(b"")
        wire.poll()
        assert 0 < wire.refused["too_short"] < 20  # each takes 0.19 of a millisecond
        clock.advance(10**7)
        wire.poll()
        assert wire.refused["too_short"] < 100
    peer.close()


def test_two_devices_of_different_mtu_lose_what_is_too_long_and_nothing_else(name):
    clock = CycleClock()
    wide = Wire(address(f"pair:{name}", "&mtu=9000"), clock)
    narrow = Wire(address(f"pair:{name}"), clock)
    with wide, narrow:
        assert wide.connected
        arrived = []
        for frame in (FRAME, bytes(9014), FRAME[::-1]):
            assert wide.send(frame)
            for _ in range(4000):
                wide.poll()
                arrived += [found for found in [narrow.receive()] if found is not None]
                clock.advance(1)
        assert arrived == [FRAME, FRAME[::-1]]
        assert narrow.refused == {"too_long": 1}


def test_a_stream_of_something_else_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Wire(address("unix-listen:wire.sock")) as wire:
        with socket.socket(socket.AF_UNIX) as other:
            other.connect("wire.sock")
            other.send(b"GET / HTTP/1.1\r\n")
            assert wire.receive() is None
            assert not wire.connected
        assert wire.refused == {"stream_invalid": 1}
        peer = connect_stream("wire.sock")  # the next one may come
        assert wire.connected
        peer.close()
    peer = listen_stream("wire.sock")
    with Wire(address("unix:wire.sock")) as wire:
        assert peer.connected
        with socket.socket(fileno=os.dup(peer.fileno())) as same:
            same.send(b"\xff" * 4)
        with pytest.raises(FramingError, match="announced a frame of 4294967295 bytes, and was"):
            wire.receive()
        assert wire.refused == {"stream_invalid": 1}
    peer.close()


def test_an_end_that_cannot_be_opened_leaves_no_capture(tmp_path):
    path = tmp_path / "wire.pcapng"
    with pytest.raises(NoSuchWire):
        Wire(address(f"unix:{tmp_path}/none", f"&pcap={path}"))
    assert not path.exists()


@pytest.mark.parametrize("frames", [1, 1000])  # the file's buffer holds some
def test_a_capture_that_gets_full_is_told_at_the_end_and_leaves_the_wire_alone(name, frames):
    clock = CycleClock()
    first, second = joined(name, clock, "&pcap=/dev/full")
    with second:
        arrived = 0
        for _ in range(frames):
            assert first.send(FRAME)
            for _ in range(4):
                clock.advance(FRAME_CYCLES)
                first.poll()
                arrived += second.receive() is not None
        assert arrived == frames
        with pytest.raises(WireError, match=r"^pcap=/dev/full: No space left on device$"):
            first.close()
        first.close()


def test_a_capture_that_cannot_be_written_is_told(name):
    with pytest.raises(WireError, match=r"pcap=/no/such/wire.pcapng: No such file or directory"):
        Wire(address(f"pair:{name}", "&pcap=/no/such/wire.pcapng"))
    with Wire(address(f"pair:{name}")) as wire:  # its name is free
        assert not wire.connected
