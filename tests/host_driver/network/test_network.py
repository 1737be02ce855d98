"""A network with its thread: connections, streams and listeners as programs use them."""

import re
import threading
from collections.abc import Callable, Iterator

import pytest

from stagecoach.host_driver.network.address_claim import SHORT
from stagecoach.host_driver.network.arp import ArpPacket, Operation
from stagecoach.host_driver.network.errors import (
    ConnectionRefused,
    ConnectionReset,
    ConnectionTimedOut,
    DuplicateAddress,
    NetworkSettingsError,
    NoNeighbour,
    NoRoute,
    PortInUse,
)
from stagecoach.host_driver.network.ethernet import BROADCAST
from stagecoach.host_driver.network.neighbours import NeighbourState
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import (
    ByteStream,
    DeviceClosed,
    Listener,
    StreamClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.network import NetworkPort
from tests.host_driver.network.peer import Background, Peer
from tests.host_driver.network.port import FAKE_ALONE, EngineStream, FakePort
from tests.host_driver.network.rig import OWN, PEER, PEER_MAC, SETTINGS, arp_frame


@pytest.fixture
def port(make_port) -> FakePort:
    return make_port(maximum_connections=4)


@pytest.fixture
def peer(port) -> Peer:
    return Peer(port, 4420)


def started(port: FakePort) -> Network:
    """A network whose time goes on only while a thread waits there for something."""
    network = Network(port, SETTINGS, SHORT)
    waits = network._turn._waits

    def waiting() -> bool:
        return any(end is None or end > port.now for end in list(waits.values()))

    port.may_pass = waiting
    return network


@pytest.fixture
def network(port, peer) -> Iterator[Network]:
    with started(port) as network:
        yield network


def arrives(engine: EngineStream, octets: bytes) -> None:
    """The peer sends octets."""
    engine.received += octets


def later(port: FakePort, action: Callable[[], None], count: int = 3) -> None:
    """Have something come that a stream waits for, `count` waits from now on."""
    plain, left = port.wait, [count]

    def wait(until_us: int | None) -> None:
        left[0] -= 1
        if left[0] == 0:
            action()
        if left[0] >= 0:
            port.tell()
        plain(until_us)

    port.wait = wait  # type: ignore[method-assign]


def test_it_is_what_the_driver_needs(network, port):
    assert isinstance(port, NetworkPort)
    with network.listen("", 0) as listener, network.connect("192.0.2.1", 4420) as stream:
        assert isinstance(listener, Listener)
        assert isinstance(stream, ByteStream)


def test_a_connection_is_opened_and_octets_go_both_ways(network, port):
    stream = network.connect("192.0.2.1", 4420, 5)
    assert stream.peer_address == ("192.0.2.1", 4420)
    assert stream.maximum_segment_size == 1460
    stream.sendall(b"MPA ID Req Frame", 1)
    engine = port.streams[stream.handle]
    assert engine.sent == b"MPA ID Req Frame"
    engine.received += b"MPA ID Rep Frame"
    stream.wait_readable(1)
    assert stream.receive_exactly(4, 1) == b"MPA "
    assert bytes(engine.received) == b"ID Rep Frame"  # nothing beyond was taken


def test_octets_that_come_later_are_waited_for(network, port):
    stream = network.connect("192.0.2.1", 4420)
    engine = port.streams[stream.handle]
    engine.received += b"ab"
    later(port, lambda: arrives(engine, b"cd"), 20)
    assert stream.receive_exactly(4, 10) == b"abcd"
    later(port, lambda: arrives(engine, b"e"), 20)
    stream.wait_readable(10)
    assert stream.receive_exactly(1) == b"e"


@FAKE_ALONE
def test_a_send_waits_for_room(network, port):
    stream = network.connect("192.0.2.1", 4420)
    engine = port.streams[stream.handle]
    engine.room = 3
    with pytest.raises(TransportTimeout, match="2 of 5 bytes not sent in 0 s"):
        stream.sendall(b"abcde", 0)
    later(port, lambda: setattr(engine, "room", 100), 20)
    stream.sendall(b"de", 10)
    assert engine.sent == b"abcde"
    assert not engine.shut


@pytest.mark.parametrize("timeout", [0, 0.25])
def test_times_are_the_port_s(network, port, timeout):
    stream = network.connect("192.0.2.1", 4420)
    port.streams[stream.handle].received += b"abc"
    began = port.now
    with pytest.raises(TransportTimeout, match=f"3 of 5 bytes came in {timeout} s"):
        stream.receive_exactly(5, timeout)
    assert port.now - began == timeout * 1_000_000
    assert stream.receive_exactly(3, 0) == b"abc"
    with pytest.raises(TransportTimeout, match=f"nothing came in {timeout} s"):
        stream.wait_readable(timeout)
    with pytest.raises(ValueError, match="count is -1; allowed: 0 or more"):
        stream.receive_exactly(-1)


def test_a_thread_that_waits_for_nobody_does_not_keep_the_network_busy(network, port):
    accepting = Background(lambda: network.listen("", 5000).accept(1000))
    with pytest.raises(TransportTimeout):
        accepting.result()
    assert port.waits < 200


def test_the_end_of_the_stream_is_told(network, port):
    stream = network.connect("192.0.2.1", 4420)
    engine = port.streams[stream.handle]
    engine.received += b"ab"
    engine.peer_closed = True
    with pytest.raises(StreamClosed, match="the peer closed the stream after 2 of 3 bytes"):
        stream.receive_exactly(3, 1)
    assert stream.receive_exactly(2, 0) == b"ab"
    with pytest.raises(StreamClosed):
        stream.wait_readable(1)


def test_a_peer_that_refuses_or_is_silent_is_named(network, port, peer):
    with pytest.raises(ConnectionRefused, match=r"192\.0\.2\.1:80 refused the connection"):
        network.connect("192.0.2.1", 80)
    peer.silent = True
    began = port.now
    with pytest.raises(TransportTimeout, match=r"192\.0\.2\.1:4420 does not answer in 2 s"):
        network.connect("192.0.2.1", 4420, 2)
    assert port.now - began == 2_000_000
    with pytest.raises(NoNeighbour, match=r"192\.0\.2\.9 does not answer ARP requests"):
        network.connect("192.0.2.9", 4420)
    with pytest.raises(NoRoute):
        network.connect("192.0.2.2", 4420)
    with pytest.raises(ValueError, match="port 0; allowed: 1 to 65535"):
        network.connect("192.0.2.1", 0)
    with pytest.raises(TransportError, match="no IPv4 address of 'no such host'"):
        network.connect("no such host", 4420)
    assert not network.connections()


@pytest.mark.parametrize("carrier", ["down: no peer yet", "lost: unix:/w: it went"])
def test_silence_is_explained_by_a_wire_that_carries_nothing(network, port, peer, carrier):
    stream = network.connect("192.0.2.1", 4420)
    peer.silent = True
    port.carrier = carrier
    silent = TransportTimeout, "4420 does not answer in 2 s"
    late = TransportTimeout, "nothing came in 1 s"
    for (error, text), call in (
        (silent, lambda: network.connect("192.0.2.1", 4420, 2)),
        ((NoNeighbour, "answer ARP requests"), lambda: network.connect("192.0.2.9", 4420)),
        ((TransportTimeout, "sent no reply in 1 s"), lambda: network.ping("192.0.2.1", 1)),
        ((NoNeighbour, "answer ARP requests"), lambda: network.ping("192.0.2.9", 10)),
        ((TransportTimeout, "0 of 2 bytes came in 1 s"), lambda: stream.receive_exactly(2, 1)),
        (late, lambda: stream.wait_readable(1)),
    ):
        with pytest.raises(error, match=re.escape(f"{text} (carrier {carrier})") + "$"):
            call()


def test_a_connection_that_timed_out_tells_what_the_wire_had_to_do_with_it(network, port):
    reset = network.connect("192.0.2.1", 4420)
    late = network.connect("192.0.2.1", 4420)
    port.carrier = "lost: unix:/w: it went"
    port.end(reset.handle, StreamEnd.RESET)
    port.end(late.handle, StreamEnd.TIMED_OUT)
    with pytest.raises(ConnectionTimedOut, match=r"nothing \(carrier lost: unix:/w: it went\)$"):
        late.receive_exactly(1, 1)
    port.carrier = "up"
    with pytest.raises(ConnectionTimedOut, match="carrier lost"):
        late.sendall(b"a")
    with pytest.raises(ConnectionReset, match=r"the peer reset the connection$"):
        reset.receive_exactly(1, 1)


def test_what_the_wire_refused_is_counted(network, port):
    assert "wire_too_long" not in network.counters
    port.refused["too_long"] = 7
    assert network.counters["wire_too_long"] == 7


def test_no_more_connections_are_opened_than_the_engine_has(network):
    for _ in range(4):
        network.connect("192.0.2.1", 4420)
    with pytest.raises(TransportError, match="4 connections are open; allowed: 4"):
        network.connect("192.0.2.1", 4420)


def test_a_peer_is_accepted(network, port, peer):
    listener = network.listen("192.0.2.2", 0)
    accepting = Background(listener.accept)
    peer.open((OWN, listener.address[1]))
    stream = accepting.result()
    assert stream.peer_address == ("192.0.2.1", 40000)
    assert stream.local_address == listener.address


@pytest.mark.requirement("TCP-MUST-43")
def test_a_listener_checks_its_arguments(network):
    """The own address, or none."""
    with pytest.raises(TransportError, match=r"cannot listen at 127\.0\.0\.1:1; allowed: 192\.0"):
        network.listen("127.0.0.1", 1)
    with pytest.raises(ValueError, match="port 65536; allowed: 0 to 65535"):
        network.listen("", 65536)
    with pytest.raises(TypeError, match="port is '80'; allowed: an integer"):
        network.listen("", "80")
    with pytest.raises(ValueError, match="backlog is 0; allowed: 1 or more"):
        network.listen("", 1, 0)
    with network.listen("0.0.0.0", 7), pytest.raises(PortInUse):
        network.listen("", 7)


def test_a_listener_that_closes_wakes_whoever_accepts(network):
    listener = network.listen("", 0)
    accepting = Background(listener.accept)
    listener.close()
    with pytest.raises(StreamClosed, match="the listener was closed"):
        accepting.result()


def test_a_ping_measures_the_time(network, port, peer):
    assert network.ping("192.0.2.1") == 0
    peer.silent = True
    began = port.now
    with pytest.raises(TransportTimeout, match=r"192\.0\.2\.1 sent no reply in 1\.5 s"):
        network.ping("192.0.2.1", 1.5)
    assert port.now - began == 1_500_000
    with pytest.raises(NoNeighbour, match=r"192\.0\.2\.9 does not answer ARP requests"):
        network.ping("192.0.2.9", 10)
    with pytest.raises(NoNeighbour):  # before the last request
        network.ping("192.0.2.9", 0.5)
    with pytest.raises(ValueError, match="1473 bytes; allowed: 0 to 1472"):
        network.ping("192.0.2.1", octets=1473)
    with pytest.raises(NoRoute):
        network.ping("192.0.2.255")


def test_what_there_is_can_be_looked_at(network, port, peer):
    listener = network.listen("", 4420)
    stream = network.connect("192.0.2.1", 4420)
    network.attach(3, stream)
    states = {each.state: each for each in network.connections()}
    assert states["LISTEN"].local == listener.address
    found = states["ESTABLISHED"]
    assert (found.remote, found.qp) == (("192.0.2.1", 4420), 3)
    assert found.info is not None and found.info.maximum_segment_size == 1460
    (neighbour,) = network.neighbours()
    assert (neighbour.address, neighbour.mac) == (PEER, PEER_MAC)
    assert neighbour.state is NeighbourState.REACHABLE
    assert network.counters["established"] == 1
    assert network.counters["frames_dropped"] == 0
    port.end(stream.handle, StreamEnd.CLOSED, closed_first=True)
    port.frame(b"")
    with pytest.raises(TransportTimeout):
        listener.accept(0.1)
    assert {each.state for each in network.connections()} == {"LISTEN", "TIME-WAIT"}


def test_a_stream_is_given_to_a_device_once_and_whole(network, port):
    stream = network.connect("192.0.2.1", 4420)
    engine = port.streams[stream.handle]
    engine.received += b"abc"
    with pytest.raises(TransportTimeout):
        stream.receive_exactly(4, 0)
    with pytest.raises(TransportError, match="3 bytes of the stream are not taken; allowed: none"):
        network.attach(1, stream)
    stream.receive_exactly(3)
    engine.received += b"of the LLP"
    network.attach(1, stream)
    assert engine.attached == 1
    assert bytes(engine.received) == b"of the LLP"
    stream.close()
    assert not engine.shut
    for call in (lambda: stream.sendall(b"x"), lambda: stream.receive_exactly(1, 0)):
        with pytest.raises(StreamClosed, match="closed or given to a device"):
            call()
    with pytest.raises(StreamClosed):
        network.attach(2, stream)
    with pytest.raises(TransportError, match="stream is a str; allowed: NetworkStream"):
        network.attach(1, "socket")


def test_a_detached_connection_may_not_wait_for_ever(network, port):
    stream = network.connect("192.0.2.1", 4420)
    network.attach(1, stream)
    network.detach(1, 2.0)
    assert port.streams[stream.handle].shut
    listener = network.listen("", 1)
    with pytest.raises(TransportTimeout):
        listener.accept(61)
    assert network.counters["fin_timeouts"] == 1
    assert {each.state for each in network.connections()} == {"LISTEN"}


@pytest.mark.requirement("ACD-2.1.1-01")
def test_an_address_of_somebody_else_is_not_used(port):

    def other(frame: bytes) -> None:
        port.frame(arp_frame(ArpPacket(Operation.REPLY, PEER_MAC, OWN, bytes(6), OWN), BROADCAST))

    port.peer = other
    text = "address 192.0.2.2 belongs to the interface 02:00:00:00:00:01 already; allowed: one that"
    with pytest.raises(DuplicateAddress, match=text):
        Network(port, SETTINGS, SHORT)
    assert not [each for each in threading.enumerate() if each.name == "stagecoach network"]


@FAKE_ALONE
@pytest.mark.requirement("TCP-MUST-24", "TCP-MUST-28")
def test_keep_alive_waits_two_hours_unless_the_caller_says_so(network):
    stream, listener = network.connect("192.0.2.1", 4420), network.listen("", 1)

    def probes(seconds: float) -> int:
        before = network.counters.get("keep_alive_probes", 0)
        with pytest.raises(TransportTimeout):
            listener.accept(seconds)
        return network.counters.get("keep_alive_probes", 0) - before

    network.attach(5, stream)
    network.set_keep_alive(5)
    assert probes(7199) == 0
    assert probes(2) == 1
    network.set_keep_alive(stream, 30)
    assert probes(91) == 3
    network.set_keep_alive(stream, None)
    assert probes(9000) == 0
    with pytest.raises(NetworkSettingsError):
        network.set_keep_alive(stream, 0)
    with pytest.raises(StreamClosed, match="QP 6 has no stream of this network"):
        network.set_keep_alive(6)


def test_a_network_that_is_closed_ends_all_waits_and_connections(port, peer):
    network = started(port)
    used, closed = network.connect("192.0.2.1", 4420), network.connect("192.0.2.1", 4420)
    listener = network.listen("", 1)
    waiting = [Background(listener.accept), Background(lambda: used.receive_exactly(1))]
    closed.close()
    network.close()
    network.close()
    for each in waiting:
        with pytest.raises((StreamClosed, DeviceClosed)):
            each.result()
    for call in (
        lambda: network.connect("192.0.2.1", 4420),
        lambda: network.listen("", 0),
        lambda: network.ping("192.0.2.1"),
        lambda: used.sendall(b"x"),
    ):
        with pytest.raises(DeviceClosed, match="the network is closed"):
            call()
    assert port.streams[closed.handle].shut
    used.close()
    assert not [each for each in threading.enumerate() if each.name == "stagecoach network"]


def test_what_was_closed_has_two_seconds_to_send_what_is_left(port, peer):
    network = started(port)
    used, closed = network.connect("192.0.2.1", 4420), network.connect("192.0.2.1", 4420)
    closed.sendall(b"last words")
    closed.close()
    ends: list[int] = []
    plain = port.abort
    port.abort = lambda handle: (ends.append(port.now), plain(handle))  # type: ignore[method-assign]
    began = port.now
    network.close()
    assert [end - began for end in ends] == [0, 2_000_000]
    assert port.streams[closed.handle].shut and not port.streams[used.handle].shut


def test_a_device_that_ends_ends_all_waits(port, peer):
    network = Network(port, SETTINGS, SHORT)
    stream = network.connect("192.0.2.1", 4420)
    later(port, port.close, 10)
    with pytest.raises(DeviceClosed, match="the device was closed"):
        stream.receive_exactly(1)
    network._thread.join(10)
    with pytest.raises(DeviceClosed):
        network.listen("", 0)
    network.close()


def test_streams_of_many_threads_do_not_disturb_each_other(network, port):
    streams = [network.connect("192.0.2.1", 4420) for _ in range(4)]
    readers = [Background(lambda s=stream: s.receive_exactly(3)) for stream in streams]
    for number, stream in enumerate(streams):
        port.streams[stream.handle].received += bytes((number,)) * 3
        port.tell()
    assert [each.result() for each in readers] == [bytes((n,)) * 3 for n in range(4)]


def test_a_stream_that_the_device_refuses_stays_usable(network, port):
    stream = network.connect("192.0.2.1", 4420)

    def refuse(handle: int, qp: int) -> None:
        raise TransportError("no such connection")

    port.attach = refuse  # type: ignore[method-assign]
    with pytest.raises(TransportError, match="no such connection"):
        network.attach(99, stream)
    stream.sendall(b"still here", 1)
    assert port.streams[stream.handle].sent == b"still here"


def test_a_connect_that_is_interrupted_leaves_nothing(network, port, peer, monkeypatch):
    def interrupted(done: Callable[[], bool], until_us: int | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(network._turn, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.connect("192.0.2.1", 4420)
    assert not network.connections()
