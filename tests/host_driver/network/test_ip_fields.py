"""DSCP and TTL of a connection, in all packets of it that the driver makes."""

from collections.abc import Iterable

import pytest

from stagecoach.host_driver.network.errors import ConnectionReset, NetworkSettingsError
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.tcp import Segment
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import StreamClosed
from tests.host_driver.network.peer import Peer
from tests.host_driver.network.port import FAKE_ALONE, FakePort
from tests.host_driver.network.rig import (
    ACK,
    FIN,
    LINUX,
    OWN,
    OWN_MAC,
    PEER,
    SETTINGS,
    SYN,
    Rig,
    segment_frame,
)
from tests.host_driver.network.test_network import started

LOCAL, REMOTE = (OWN, 4420), (PEER, 40000)
EXPEDITED = IpFields(46, 7)
SENT = (46 << 2, 7)  # the two bits of ECN are none of DSCP


def fields(frames: Iterable[bytes]) -> set[tuple[int, int]]:
    """Second octet and TTL of the headers of IP packets, as they are on the wire."""
    return {(frame[15], frame[22]) for frame in frames if frame[12:14] == b"\x08\0"}


@pytest.fixture
def rig(make_port) -> Rig:
    rig = Rig(port=make_port())
    rig.know()
    return rig


@pytest.mark.requirement("TCP-MUST-48", "TCP-MUST-49", "TCP-SHLD-22", "IP-1122-3.2.1.6-01")
@pytest.mark.requirement("IP-1122-3.2.1.7-02", "IP-1122-3.4-01")
def test_an_opening_has_those_of_its_program_from_the_first_syn(rig):
    opening = rig.connections.connect((PEER, 4420), 180, rig.port.now, EXPEDITED)
    rig.run(4)
    assert len(rig.segments(rig.port.sent)) == 3 and fields(rig.port.sent) == {SENT}
    handshake = opening.handshake
    ends = handshake.remote, handshake.local
    number = handshake.next_sent
    wrong = rig.take(segment_frame(Segment(*ends, 5000, number + 9, SYN | ACK, 64240, LINUX)))
    assert len(wrong) == 1 and fields(wrong) == {SENT}  # RST
    last = rig.take(segment_frame(Segment(*ends, 5000, number, SYN | ACK, 64240, LINUX)))
    assert len(last) == 1 and fields(last) == {SENT}
    assert opening.stream is not None
    given = rig.port.streams[opening.stream.handle].established
    assert (given.dscp, given.ttl) == (46, 7)


@pytest.mark.requirement("TCP-MUST-48", "TCP-MUST-49")
def test_connections_of_a_listener_have_those_of_the_listener(rig):
    listener = rig.connections.listen(4420, 8, EXPEDITED)
    answers = rig.take(segment_frame(Segment(REMOTE, LOCAL, 1000, 0, SYN, 64240, LINUX)))
    answers += rig.run(2)  # and again
    far = Segment(REMOTE, LOCAL, 9000 + (1 << 20), 1, ACK, 502)
    answers += rig.take(segment_frame(far))
    assert len(answers) >= 3 and fields(answers) == {SENT}
    rig.port.sent.clear()
    _, engine = rig.accepted(listener, 40001)
    assert fields(rig.port.sent) == {SENT}
    assert (engine.established.dscp, engine.established.ttl) == (46, 7)


@FAKE_ALONE
@pytest.mark.requirement("TCP-SHLD-21", "TCP-SHLD-22")
def test_they_change_during_a_connection_and_hold_in_time_wait(rig):
    stream, engine = rig.accepted(rig.listen())
    (connection,) = rig.connections.engine
    assert connection.fields == IpFields()
    rig.connections.engine.set_ip(connection, EXPEDITED)
    assert engine.fields == [(46, 7)]
    (challenge,) = rig.take(segment_frame(Segment(REMOTE, LOCAL, 1, 0, SYN, 64240, LINUX)))
    assert fields([challenge]) == {SENT}
    rig.port.end(stream.handle, StreamEnd.CLOSED, closed_first=True)
    rig.take()
    again = Segment(REMOTE, LOCAL, 1001, 5, FIN | ACK, 502)
    (answer,) = rig.take(segment_frame(again))
    assert fields([answer]) == {SENT}


def test_a_segment_of_no_connection_is_answered_with_those_of_the_interface():
    rig = Rig(NetworkSettings(SETTINGS.address, OWN_MAC, ttl=33, dscp=10))
    (reset,) = rig.take(segment_frame(Segment(REMOTE, LOCAL, 1, 5, ACK, 502)))
    assert fields([reset]) == {(0, 33)}
    rig.know()
    rig.open()
    assert fields(rig.port.sent) == {(10 << 2, 33)}


def test_a_program_sets_them_for_a_stream_or_its_qp():
    port = FakePort(maximum_connections=4)
    Peer(port, 4420)
    with started(port) as network:
        stream = network.connect("192.0.2.1", 4420, 5, dscp=46)
        engine = port.streams[stream.handle]
        assert (engine.established.dscp, engine.established.ttl) == (46, 64)
        network.set_ip(stream, ttl=5)
        network.attach(3, stream)
        network.set_ip(3, dscp=0)
        assert engine.fields == [(46, 5), (0, 5)]
        with pytest.raises(StreamClosed, match="QP 4 has no stream of this network"):
            network.set_ip(4, dscp=0)
        port.end(stream.handle, StreamEnd.RESET)
        network.listen("", 9).close()
        while network.connections():
            pass
        with pytest.raises(ConnectionReset, match="the peer reset the connection"):
            network.set_ip(stream, dscp=0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dscp": 64}, "DSCP 64; allowed: 0 to 63"),
        ({"dscp": -1}, "DSCP -1; allowed: 0 to 63"),
        ({"dscp": "EF"}, "DSCP 'EF'; allowed: 0 to 63"),
        ({"ttl": 0}, "TTL 0; allowed: 1 to 255"),
        ({"ttl": 256}, "TTL 256; allowed: 1 to 255"),
        ({"ttl": 1.5}, "TTL 1.5; allowed: 1 to 255"),
    ],
)
def test_what_no_header_can_have_is_refused_before_anything_is_sent(change, text):
    port = FakePort(maximum_connections=4)
    Peer(port, 4420)
    with started(port) as network:
        stream = network.connect("192.0.2.1", 4420, 5)
        before = len(port.sent)
        for call in (
            lambda: network.connect("192.0.2.1", 4420, 5, **change),
            lambda: network.listen("", 4420, **change),
            lambda: network.set_ip(stream, **change),
            lambda: NetworkSettings(SETTINGS.address, OWN_MAC, **change),
        ):
            with pytest.raises(NetworkSettingsError) as refused:
                call()
            assert str(refused.value) == text
        assert len(port.sent) == before
        assert port.streams[stream.handle].fields == []
        network.listen("", 4420).close()  # the port is free
    assert isinstance(network, Network)
