"""Streams of a `HardwarePort`, on a NIC whose engine is the reference TCP."""

import random
from collections.abc import Iterator

import pytest

from stagecoach.host_driver.network import ethernet, ipv4, tcp
from stagecoach.host_driver.network.errors import NetworkSettingsError
from stagecoach.host_driver.network.hardware.flow import PIECES
from stagecoach.host_driver.network.tcp import Flag, Segment
from stagecoach.host_driver.network_registers import NetworkOpcode
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    StreamClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.network import Ended, NetworkHost, NetworkPort
from tests.host_driver.network.hardware_pair import FIRST, MACS, RING, Pair, established
from tests.host_driver.network.rig import segment_frame

SPACE = 1 << 32


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    for port in made.ports:
        port.close("the test is over")


def ended(port: NetworkPort) -> list[Ended]:
    found = []
    while (each := port.take_ended()) is not None:
        found.append(each)
    return found


def test_it_is_a_port_on_a_host(pair):
    assert isinstance(pair.ports[0], NetworkPort)
    assert isinstance(pair.nics[0], NetworkHost)
    assert pair.ports[0].engine == "gateware"
    assert pair.ports[0].maximum_connections == 4
    assert pair.ports[0].mtu == 1500
    assert pair.ports[0].now_us() == pair.nics[0].now


def test_octets_go_both_ways(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    assert not two.readable(there)
    assert one.send(here, b"MPA ID Req Frame") == 16
    pair.run()
    assert two.readable(there)
    assert two.receive(there, 4) == b"MPA "
    assert two.receive(there, 100) == b"ID Req Frame"
    assert two.receive(there, 100) == b""
    assert two.send(there, b"MPA ID Rep Frame") == 16
    pair.run()
    assert one.receive(here, 100) == b"MPA ID Rep Frame"


def test_more_than_a_ring_goes_through_both_rings(pair):
    """Numbers and rings wrap; the sender waits for room, the receiver's window closes and opens."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (one, two), (here, there) = pair.ports, pair.joined()
    data = rng.randbytes(5 * RING + 17)
    sent, received = 0, bytearray()
    while len(received) < len(data):
        sent += one.send(here, data[sent : sent + rng.choice([1, 1000, 20_000, 300_000])])
        pair.run(2000)
        received += two.receive(there, rng.choice([1, 5000, 16_383, 16_384, 200_000]))
    assert received == data
    assert not two.readable(there)


def test_a_full_ring_takes_no_more(pair):
    (one, two), (here, there) = pair.ports, pair.joined(window=1 << 20)
    data = bytes(range(256)) * (RING // 128)
    assert one.send(here, data) == RING
    assert one.send(here, b"x") == 0
    pair.run(100_000)
    assert two.receive(there, RING) == data[:RING]
    assert one.send(here, data[RING:]) == len(data) - RING


def test_sends_that_are_not_acknowledged_are_few(pair):
    """Each takes a place of the engine's list, in which the LLP has to have its own."""
    (one, two), (here, there) = pair.ports, pair.joined()
    assert sum(one.send(here, b"x") for _ in range(200)) == PIECES
    pair.run(1000)
    assert one.send(here, b"y") == 1
    pair.run(1000)
    assert two.receive(there, 1000) == PIECES * b"x" + b"y"


def test_a_send_without_room_has_wait_return(pair):
    (one, _), (here, _) = pair.ports, pair.joined()
    one.send(here, bytes(RING + 1))
    before = pair.nics[0].now
    pair.nics[0].wire = lambda frame: None
    one.wait(None)
    assert pair.nics[0].now - before <= 1000


def test_octets_that_came_before_are_the_device_s_when_it_is_attached(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    one.send(here, b"startup and the first FPDU")
    pair.run()
    assert two.receive(there, 8) == b"startup "
    two.attach(there, 3)
    one.send(here, b", and another one")
    pair.run()
    lane = pair.nics[1].lanes[3]
    assert bytes(lane.device) == b"and the first FPDU, and another one"
    for call in (lambda: two.receive(there, 1), lambda: two.send(there, b"x")):
        with pytest.raises(StreamClosed, match="connection 3 of the device has the stream"):
            call()
    with pytest.raises(TransportError, match="connection 3 has a stream already"):
        two.attach(two.establish(established(1, 4001)), 3)


def test_a_lane_that_there_is_not_is_refused(pair):
    here, _ = pair.joined()
    with pytest.raises(TransportError, match="refused network command 6, ATTACH"):
        pair.ports[0].attach(here, 4)


def test_detach_sends_fin_and_what_comes_then_is_discarded(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    two.attach(there, 0)
    one.send(here, bytes(RING))
    pair.run(10_000)
    two.detach(0, 1.0)
    pair.run()
    with pytest.raises(TransportError, match="connection 0 has no stream"):
        two.detach(0, 1.0)
    with pytest.raises(StreamClosed):
        one.receive(here, 0)
    sent = 0
    while sent < 3 * RING:
        sent += one.send(here, bytes(50_000))
        pair.run(5000)
        two.take_doubtful()  # it looks at what is there
    one.shutdown(here)
    pair.run(1000)
    (first,), (second,) = ended(two), ended(one)
    assert (first.how, first.closed_first, first.peer_closed) == (StreamEnd.CLOSED, True, True)
    assert (second.how, second.closed_first, second.peer_closed) == (StreamEnd.CLOSED, False, True)
    assert first.next_received == (FIRST[0] + RING + sent + 1) % SPACE
    assert first.next_sent == (FIRST[1] + 1) % SPACE


def test_what_a_device_has_not_read_is_released_when_it_lets_go(pair):
    """Its window was closed: the peer could not even send FIN."""
    (one, two), (here, there) = pair.ports, pair.joined()
    two.attach(there, 0)
    pair.nics[1].lanes[0].reads = False
    assert one.send(here, bytes(RING)) == RING
    pair.run(50_000)
    assert one.info(here).send_window == two.info(there).receive_window == 0
    two.detach(0, 1.0)
    pair.run(1000)
    # An MSS and the unit of the window at most are not.
    assert one.info(here).send_window >= RING - 1460 - 4
    one.send(here, b"more")
    one.shutdown(here)
    pair.run(1000)
    assert [each.how for each in (*ended(one), *ended(two))] == [StreamEnd.CLOSED] * 2


def test_detach_in_vain_is_told_and_its_fin_follows_later(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    two.attach(there, 0)
    pair.nics[1].busy_reads[NetworkOpcode.DETACH] = 1 << 30
    pair.nics[1].while_busy[NetworkOpcode.DETACH] = lambda: pair.nics[1].run_to(
        pair.nics[1].now + 1000
    )
    with pytest.raises(TransportTimeout, match=r"detach of connection 0: not everything .* 0\.5 s"):
        two.detach(0, 0.5)
    with pytest.raises(TransportError, match="connection 0 has no stream"):
        two.detach(0, 0.5)
    two.wait(None)
    assert pair.nics[1].commands[-1] is NetworkOpcode.DETACH
    pair.nics[1]._busy = 0
    pair.nics[1].busy_reads.clear()
    two.wait(pair.nics[1].now)
    assert pair.nics[1].commands[-1] is not NetworkOpcode.DETACH
    pair.run()
    assert one.readable(here)
    two.attach(two.establish(established(1, 4001)), 0)


def test_shutdown_keeps_the_window_open_and_reads_nothing(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    one.send(here, b"unread")
    pair.run()
    two.shutdown(there)
    two.shutdown(there)
    with pytest.raises(StreamClosed, match="this end of the connection is closed"):
        two.send(there, b"x")
    sent = 6
    while sent < 2 * RING:
        sent += one.send(here, bytes(50_000))
        pair.run(5000)
        assert two.receive(there, 1000) == b""
    assert pair.nics[1].commands.count(NetworkOpcode.DISCARD) == 0
    assert two.info(there).state == "FIN-WAIT-2"
    assert one.info(here).state == "CLOSE-WAIT"
    one.shutdown(here)
    pair.run()
    assert [each.closed_first for each in (*ended(one), *ended(two))] == [False, True]


def test_what_was_not_read_is_there_until_the_next_take_ended(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    one.send(here, b"last words")
    one.shutdown(here)
    pair.run()
    two.receive(there, 5)
    two._engine.close(two._flows[there])
    pair.run()
    assert two.readable(there)
    assert two.take_ended().handle == there
    assert two.receive(there, 3) == b"wor"
    assert two.receive(there, 30) == b"ds"
    with pytest.raises(StreamClosed, match="no byte"):
        two.receive(there, 1)
    assert two.take_ended() is None
    with pytest.raises(KeyError):
        two.receive(there, 1)


@pytest.mark.parametrize("attached", [False, True])
def test_abort_resets_both_ends(pair, attached):
    (one, two), (here, there) = pair.ports, pair.joined()
    one.send(here, b"lost")
    pair.run()
    if attached:
        two.attach(there, 1)
    one.abort(here)
    one.abort(here)
    pair.run()
    (mine,), (other,) = ended(one), ended(two)
    assert (mine.how, other.how) == (StreamEnd.ABORTED, StreamEnd.RESET)
    with pytest.raises(KeyError):
        one.send(here, b"x")
    if attached:
        two.detach(1, 1.0)
    assert not pair.nics[0].engine and not pair.nics[1].engine


def test_a_number_whose_stream_a_device_has_is_not_used_again(pair):
    two = pair.ports[1]
    handles = [two.establish(established(1, 4000 + each)) for each in range(4)]
    for lane, handle in enumerate(handles):
        two.attach(handle, lane)
        two.abort(handle)
    assert len(ended(two)) == 4
    with pytest.raises(TransportError, match="4 connections are established, or ended with a QP"):
        two.establish(established(1, 5000))
    two.detach(2, 1.0)
    two.establish(established(1, 5000))


def test_the_same_ends_may_be_used_again_while_a_device_has_the_last_stream(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    two.attach(there, 0)
    one.abort(here)
    pair.run()
    assert len(ended(one)) == len(ended(two)) == 1
    here, again = pair.joined()
    two.attach(again, 1)
    one.send(here, b"another one")
    pair.run()
    assert bytes(pair.nics[1].lanes[1].device) == b"another one"
    two.detach(0, 1.0)
    one.send(here, b", still there")
    pair.run()
    assert bytes(pair.nics[1].lanes[1].device) == b"another one, still there"


def test_handles_are_never_used_again(pair):
    one, seen = pair.ports[0], set()
    for _ in range(10):
        handle = one.establish(established(0))
        assert handle not in seen
        seen.add(handle)
        one.abort(handle)
        assert [each.handle for each in ended(one)] == [handle]
    assert pair.nics[0].commands.count(NetworkOpcode.FORGET) == 10


def test_no_place_in_the_hash_is_said_and_leaks_nothing(pair):
    one, nic = pair.ports[0], pair.nics[0]
    nic.refuses = True
    for _ in range(10):
        with pytest.raises(TransportError, match=r"no place for the connection .*4000.* 0 others"):
            one.establish(established(0))
    nic.refuses = False
    for each in range(4):
        one.establish(established(0, 4000 + each))
    with pytest.raises(TransportError, match=r"has the connection .* already"):
        one.establish(established(0))


def test_segments_longer_than_the_mtu_allows_are_refused(pair):
    with pytest.raises(TransportError, match="segments of 1461 bytes; allowed: 1 to 1460"):
        pair.ports[0].establish(established(0, maximum_segment_size=1461))
    here, _ = pair.joined()
    for octets in (0, 1461):
        with pytest.raises(ValueError, match=f"segment size {octets}; allowed: 1 to 1460"):
            pair.ports[0].set_segment_size(here, octets)


def test_what_changes_of_a_connection_is_in_its_next_frames(pair):
    (one, _), (here, _) = pair.ports, pair.joined()
    one.set_segment_size(here, 500)
    one.set_ip(here, 46, 8)
    one.send(here, bytes(501))
    frames = [ethernet.decode(frame, frame[:6]) for frame in pair.nics[0].sent]
    datagrams = [ipv4.decode(frame.payload) for frame in frames]
    assert [len(tcp.decode(datagram).data) for datagram in datagrams] == [500, 1]
    assert {(datagram.header[1], datagram.ttl) for datagram in datagrams} == {(46 << 2, 8)}
    moved = bytes.fromhex("020000000099")
    one.set_remote_mac(here, moved)
    one.send(here, b"x")
    assert pair.nics[0].sent[-1][:12] == moved + MACS[0]
    with pytest.raises(ValueError, match="MAC address of 5 bytes; allowed: 6"):
        one.set_remote_mac(here, moved[1:])
    with pytest.raises(NetworkSettingsError, match="DSCP 64"):
        one.set_ip(here, 64, 8)
    with pytest.raises(NetworkSettingsError, match="TTL 0"):
        one.set_ip(here, 0, 0)


@pytest.mark.parametrize("agreed", [False, True])
@pytest.mark.requirement("SACK-3-01")
def test_blocks_are_sent_if_both_ends_agreed_on_them(pair, agreed):
    two, nic = pair.ports[1], pair.nics[1]
    two.establish(established(1, selective_acknowledgments=agreed))
    nic.frame(peer_segment(5, ACK, b"later"))
    frame = ethernet.decode(nic.sent[-1], nic.sent[-1][:6])
    options = tcp.decode(ipv4.decode(frame.payload)).options
    assert bool(options) == agreed


@pytest.mark.parametrize(
    ("changes", "cwnd", "rto"),
    [
        ({}, 14_600, 10_000),
        ({"round_trip_us": 100_000}, 14_600, 300_000),
        ({"round_trip_us": 0}, 14_600, 10_000),
        ({"round_trip_us": 30_000_000}, 14_600, 60_000_000),
        ({"round_trip_us": None}, 14_600, 1_000_000),
        ({"round_trip_us": None, "syn_lost": True}, 1460, 3_000_000),
        ({"maximum_segment_size": 536}, 5360, 10_000),
        ({"maximum_segment_size": 1}, 10, 10_000),
    ],
)
@pytest.mark.requirement("TCP-MUST-18", "TCP-MUST-19")
def test_windows_and_timeout_begin_as_the_handshake_left_them(pair, changes, cwnd, rto):
    here, _ = pair.joined(**changes)
    info = pair.ports[0].info(here)
    assert (info.congestion_window, info.rto_us) == (cwnd, rto)
    assert info.smoothed_rtt_us == changes.get("round_trip_us", 1000)


def test_info_says_how_a_connection_does(pair):
    (one, two), (here, there) = pair.ports, pair.joined()
    pair.loses = lambda frame: True
    one.send(here, bytes(20_000))
    info = one.info(here)
    assert (info.state, info.in_flight, info.queued) == ("ESTABLISHED", 14_600, 5400)
    assert info.unacknowledged == FIRST[0]
    assert info.next_sent == (FIRST[0] + 14_600) % SPACE
    assert (info.maximum_segment_size, info.send_window) == (1460, 65535)
    assert info.next_received == two.info(there).next_sent == FIRST[1]
    assert info.receive_window == RING
    assert (info.segments_sent, info.retransmissions) == (10, 0)
    assert (info.octets_sent, info.segments_received, info.octets_received) == (14_600, 0, 0)
    one.abort(here)
    with pytest.raises(KeyError):
        one.info(here)


def test_segments_of_a_connection_are_counted_from_its_begin_on(pair):
    """Whatever the engine has counted of its number before, and across the wrap of counts."""
    one, two = pair.ports
    for port in range(4000, 4006):  # more than there are numbers
        here, there = pair.joined(port)
        before = len(pair.passed)
        lost = [True]
        pair.loses = lambda frame, lost=lost: bool(lost) and lost.pop()
        assert one.send(here, bytes(2000)) == 2000
        pair.run(100_000)
        assert two.receive(there, 5000) == bytes(2000)
        assert two.send(there, bytes(10)) == 10
        pair.run(100_000)
        mine, theirs = one.info(here), two.info(there)
        assert (mine.octets_sent, mine.octets_received) == (2000, 10)
        assert (theirs.octets_sent, theirs.octets_received) == (10, 2000)
        assert (mine.retransmissions, theirs.retransmissions) == (1, 0)
        assert mine.segments_sent == theirs.segments_received + 1
        assert theirs.segments_sent == mine.segments_received
        assert mine.segments_sent + theirs.segments_sent == len(pair.passed) - before + 1
        one.shutdown(here)
        pair.run(1000)
        assert (one.info(here).octets_sent, two.info(there).octets_received) == (2000, 2000)
        two.shutdown(there)
        pair.run(100_000)
        ended(one), ended(two)


@pytest.mark.requirement("TCP-MUST-20", "TCP-SHLD-9")
def test_a_connection_without_answers_is_doubtful_once(pair):
    (one, _), (here, _) = pair.ports, pair.joined()
    pair.loses = lambda frame: True
    one.send(here, b"x")
    pair.run(10_000_000)
    assert one.take_doubtful() == here
    assert one.take_doubtful() is None
    pair.run(200_000_000)
    (mine,) = ended(one)
    assert mine.how is StreamEnd.TIMED_OUT
    assert one.take_doubtful() is None


def peer_segment(sequence: int, flags: int, data: bytes = b"", port: int = 4000) -> bytes:
    """A frame from end 0 to end 1, `sequence` octets after its first one."""
    connection = established(1, port)
    numbers = (FIRST[0] + sequence) % SPACE, FIRST[1]
    segment = Segment(connection.remote, connection.local, *numbers, flags, 16384, b"", data)
    return segment_frame(segment, MACS[0])


ACK, FIN, RST = Flag.ACK, Flag.FIN, Flag.RST


@pytest.mark.parametrize("how", ["early", "waiting", "later"])
def test_frames_that_came_before_the_engine_had_the_connection_are_not_lost(pair, how):
    """Out of order, twice, with FIN; one of another connection is the driver's."""
    two, nic = pair.ports[1], pair.nics[1]
    frames = [
        peer_segment(5, ACK, b"world"),
        peer_segment(0, ACK, b"hello"),
        peer_segment(3, ACK, b"lowo"),
        peer_segment(10, FIN | ACK),
    ]
    stranger = peer_segment(0, ACK, b"x", 4999)
    if how == "waiting":
        for frame in (*frames, stranger):
            nic.frame(frame)
    handle = two.establish(established(1), tuple(frames) if how == "early" else ())
    if how == "early":
        nic.frame(stranger)
    if how == "later":  # they were on their way to memory
        for frame in (*frames, stranger):
            nic.raw(frame)
    assert two.receive(handle, 100) == b"helloworld"
    with pytest.raises(StreamClosed):
        two.receive(handle, 1)
    assert two.receive_frame() == stranger
    assert two.receive_frame() is None


def test_a_frame_that_leaves_the_queue_after_establish_goes_to_the_engine(pair):
    two, nic = pair.ports[1], pair.nics[1]
    handle = two.establish(established(1))
    nic.raw(peer_segment(0, ACK, b"late"))
    assert two.receive_frame() is None
    assert two.receive(handle, 100) == b"late"


def test_late_octets_for_a_stream_of_the_device_are_dropped(pair):
    two, nic = pair.ports[1], pair.nics[1]
    handle = two.establish(established(1))
    two.attach(handle, 0)
    nic.raw(peer_segment(0, ACK, b"late"))
    nic.raw(peer_segment(0, RST))
    (mine,) = ended(two)
    assert mine.how is StreamEnd.RESET
    assert two.lost_segments == 1
    assert not nic.lanes[0].device


@pytest.mark.parametrize("sequence", [-5, -1460, RING - 3, RING, RING + 5000, 1 << 31])
def test_an_early_segment_writes_nothing_where_the_ring_may_not_take_it(pair, sequence):
    two = pair.ports[1]
    good = peer_segment(0, ACK, b"good")
    bad = peer_segment(sequence, ACK, b"bad" * 2)
    handle = two.establish(established(1, receive_window=RING), (good, bad))
    assert two.receive(handle, 100) == (b"goodd" if sequence == -1 else b"good")
    two.info(handle)
    free = two._flows[handle].rx.read((FIRST[0] + 5) % SPACE, RING - 5)
    assert free[-3:] == (b"bad" if sequence == RING - 3 else bytes(3))
    assert not any(free[:-3])


def test_closed_ports_say_why(pair):
    one = pair.ports[0]
    here, _ = pair.joined()
    one.attach(here, 1)
    one.close("somebody closed it")
    one.close("again")
    assert not pair.nics[0].mapped
    assert not pair.nics[0].engine
    for call in (
        lambda: one.send_frame(bytes(60)),
        one.receive_frame,
        one.take_ended,
        lambda: one.info(here),
        lambda: one.wait(None),
        lambda: one.wake(),
        lambda: one.dropped_frames,
    ):
        with pytest.raises(DeviceClosed, match="somebody closed it"):
            call()


def test_a_device_that_is_gone_can_be_closed(pair):
    pair.joined()
    pair.nics[0].close()
    pair.ports[0].close("gone")
