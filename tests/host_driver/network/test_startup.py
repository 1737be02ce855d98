"""The connection manager on a network: MPA startup, then the stream belongs to a QP."""

from collections.abc import Callable, Iterator

import pytest

from stagecoach.host_driver import (
    RTR,
    ConnectionRejected,
    QPState,
    StartupError,
    StartupTimeout,
    connect,
    listen,
)
from stagecoach.host_driver.network.address_claim import ProbeTimes
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.transport.base import ByteStream
from tests.host_driver.network.hardware_fake import HardwareFake
from tests.host_driver.network.joined import WallPort, joined_fakes, joined_hardware
from tests.host_driver.network.peer import Background
from tests.host_driver.startup_rig import PATIENCE, SHORT, RtrDevice, Side

AT_ONCE = ProbeTimes(0, 1000, 1000, 1000)


class NetworkDevice(RtrDevice):
    """A fake device whose connections are those of a network.

    Parameters
    ----------
    gives: to the engine of its port what it is given; else it sends and receives itself.
    """

    def __init__(self, port: WallPort | HardwareFake, number: int, *, gives: bool) -> None:
        super().__init__()
        settings = NetworkSettings.parse(f"192.0.2.{number}/24", bytes((2, 0, 0, 0, 0, number)))
        self.port = port
        self.network = Network(port, settings, AT_ONCE)
        self._gives = gives

    def listen(self, host: str, port: int) -> NetworkListener:  # type: ignore[override]
        return self.network.listen(host, port)

    def connect(  # type: ignore[override]
        self, host: str, port: int, timeout: float | None = None
    ) -> NetworkStream:
        return self.network.connect(host, port, timeout)

    def attach(self, connection: int, stream: ByteStream) -> None:
        if self._gives:
            self.network.attach(connection, stream)
        else:
            super().attach(connection, stream)

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        if self._gives:
            self.network.detach(connection, timeout)
        else:
            super().detach(connection, timeout)

    def close(self) -> None:
        super().close()
        self.network.close(0.1)
        self.port.close()


Joined = Callable[[], tuple[WallPort, WallPort] | tuple[HardwareFake, HardwareFake]]


def sides(joined: Joined, *, gives: bool) -> tuple[Side, Side]:
    # One after the other: probes of two interfaces for two addresses are no conflict.
    here, there = joined()
    return (
        Side(NetworkDevice(here, 1, gives=gives)),
        Side(NetworkDevice(there, 2, gives=gives)),
    )


@pytest.fixture(params=[joined_fakes, joined_hardware], ids=["fake", "hardware"])
def joined(request) -> Joined:
    return request.param


@pytest.fixture
def given(joined) -> Iterator[tuple[Side, Side]]:
    active, passive = sides(joined, gives=True)
    yield active, passive
    active.context.close()
    passive.context.close()


def test_both_ends_come_into_full_operation(given):
    active, passive = given
    with listen(passive.context, "") as listener:
        accepting = Background(
            lambda: listener.get_request().accept(passive.qp, private_data=b"welcome")
        )
        answer = connect(active.qp, "192.0.2.2", listener.port, private_data=b"hello")
        accepting.result()
    assert answer == b"welcome"
    assert active.qp.state == passive.qp.state == QPState.RTS
    for side in given:
        assert isinstance(side.device, NetworkDevice)
        (stream,) = side.device.port.streams.values()
        assert stream.attached == side.qp.qp_num
        assert not stream.received
    assert active.told()["emss"] == 1460
    active.qp.disconnect()
    assert next(iter(active.device.port.streams.values())).shut  # type: ignore[attr-defined]


def test_a_peer_may_reject(given):
    active, passive = given
    with listen(passive.context, "") as listener:
        rejecting = Background(lambda: listener.get_request().reject(b"not today"))
        with pytest.raises(ConnectionRejected) as rejected:
            connect(active.qp, "192.0.2.2", listener.port)
        rejecting.result()
    assert rejected.value.private_data == b"not today"


def test_a_port_without_a_listener_is_refused(given):
    with pytest.raises(StartupError, match=r"192\.0\.2\.2:99 refused the connection"):
        connect(given[0].qp, "192.0.2.2", 99)


def test_a_peer_that_is_not_there_is_named(given):
    with pytest.raises(StartupError, match=r"192\.0\.2\.3 does not answer ARP requests"):
        connect(given[0].qp, "192.0.2.3", 99, timeout=SHORT)


def test_a_peer_without_a_request_is_timed_out(given):
    active, passive = given
    with listen(passive.context, "", request_timeout=SHORT) as listener:
        stream = active.device.connect("192.0.2.2", listener.port)
        with pytest.raises(StartupTimeout):
            listener.get_request(PATIENCE)
        stream.close()


@pytest.mark.parametrize("rtr", [RTR.WRITE, RTR.READ, RTR.SEND])
def test_the_first_fpdu_after_the_startup_is_not_lost(joined, rtr):
    """The Responder waits for it with the stream still its own (RFC 6581, 9.2)."""
    active, passive = sides(joined, gives=False)
    with listen(passive.context, "") as listener:
        accepting = Background(lambda: listener.get_request().accept(passive.qp, rtr=rtr))
        connect(active.qp, "192.0.2.2", listener.port, peer_to_peer=True, rtr=rtr)
        accepting.result()
    assert active.qp.state == passive.qp.state == QPState.RTS
    active.context.close()
    passive.context.close()
