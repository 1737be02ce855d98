"""Keep-alive: off at first; probes only who is silent; ends only what does not answer."""

import math

import pytest

from stagecoach.host_driver.network.errors import ConnectionTimedOut, NetworkSettingsError
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.stream import NetworkStream
from stagecoach.host_driver.stream_end import StreamEnd
from tests.host_driver.network.port import EngineStream
from tests.host_driver.network.rig import ACK, OWN_MAC, SETTINGS, Rig

requirement = pytest.mark.requirement


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def joined(rig) -> tuple[NetworkStream, EngineStream]:
    """An established connection, whose keep-alive begins after 10 s."""
    stream, engine = rig.accepted(rig.listen())
    rig.connections.engine.set_keep_alive(rig.connections.engine.of(stream), 10)
    rig.know()
    return stream, engine


def probes(rig: Rig, seconds: float) -> int:
    """How many leave in this time."""
    return len(rig.segments(rig.run(seconds)))


@requirement("TCP-MUST-25")
def test_it_is_off_unless_it_is_asked_for(rig):
    rig.accepted(rig.listen())
    assert SETTINGS.keep_alive is None
    assert rig.connections.engine.next_us is None
    assert not probes(rig, 30_000)


@requirement("TCP-MUST-24", "TCP-MUST-27", "TCP-SHLD-12", "TCP-MAY-5", "TCP-MUST-29")
def test_a_peer_that_is_silent_is_probed_and_given_up(rig, joined):
    stream, engine = joined
    other, _ = rig.accepted(rig.connections.openings.listeners[0], 40001)
    engine.sent += b"12345"
    assert not probes(rig, 9.9)
    (probe,) = rig.segments(rig.run(0.2))
    last = (engine.established.next_sent + 4) % 2**32
    assert (probe.flags, probe.sequence, probe.acknowledgment) == (ACK, last, 1001)
    assert (probe.data, probe.window) == (b"", 65535 >> engine.established.receive_shift)
    assert probes(rig, 80) == 8
    rig.run(9.7)
    assert stream.open
    rig.run(0.2)
    with pytest.raises(ConnectionTimedOut, match="the connection timed out"):
        stream.receive_exactly(1)
    assert other.open
    assert rig.counters["ended_timed_out"] == 1


@requirement("TCP-MUST-26")
def test_no_probe_while_the_peer_is_heard_or_owes_an_answer(rig, joined):
    _, engine = joined
    for _ in range(5):
        engine.segments_received += 1
        assert not probes(rig, 9.9)
    engine.in_flight = 5
    assert not probes(rig, 1000)
    engine.in_flight = 0
    assert probes(rig, 40) > 1
    engine.segments_received += 1
    assert not probes(rig, 10)
    assert probes(rig, 1) == 1


def test_the_engine_says_that_a_peer_is_heard(make_port):
    rig = Rig(port=make_port())
    stream, engine = rig.accepted(rig.listen())
    rig.connections.engine.set_keep_alive(rig.connections.engine.of(stream), 10)
    rig.know()
    for _ in range(5):
        engine.segments_received += 1
        assert not probes(rig, 9.9)
    assert probes(rig, 1) == 1
    engine.segments_received += 1  # an answer
    assert probes(rig, 19) == 0
    assert probes(rig, 95) == 9
    assert rig.counters["ended_timed_out"] == 1


@requirement("TCP-MUST-24")
def test_a_qp_hears_of_a_peer_that_is_silent_and_it_can_be_switched_off(rig, joined):
    stream, _ = joined
    engine = rig.connections.engine
    connection = engine.of(stream)
    engine.set_keep_alive(connection, None)
    assert not probes(rig, 1000)
    engine.set_keep_alive(connection, 0.5)
    engine.join(connection, 3)
    rig.run(6)
    assert engine.stream_end(3) is StreamEnd.TIMED_OUT


@requirement("TCP-MUST-27")
def test_an_interface_may_have_it_for_all_connections(rig):
    settings = NetworkSettings(SETTINGS.address, OWN_MAC, keep_alive=2.5)
    rig = Rig(settings)
    rig.accepted(rig.listen())
    assert not probes(rig, 2.4)
    assert probes(rig, 0.2) == 1


@pytest.mark.parametrize("idle", [0, -1, math.nan, math.inf])
def test_no_time_is_refused(rig, joined, idle):
    connection = rig.connections.engine.of(joined[0])
    with pytest.raises(NetworkSettingsError, match=r"keep-alive after .* s; allowed: 1e-06"):
        rig.connections.engine.set_keep_alive(connection, idle)
    with pytest.raises(NetworkSettingsError):
        NetworkSettings(SETTINGS.address, OWN_MAC, keep_alive=idle)
