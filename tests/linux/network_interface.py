"""What a simulated card has as an `ours.Interface`: the driver's network, and the engine.

No device is behind it: streams are those that no QP has.
"""

import contextlib
import time
from collections import deque
from ipaddress import IPv4Address

from stagecoach.host_driver.network.address_claim import SHORT
from stagecoach.host_driver.network.errors import ConnectionReset
from stagecoach.host_driver.network.network import Network
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream
from stagecoach.host_driver.transport.base import StreamClosed, TransportTimeout
from stagecoach.host_driver.transport.network import Link, NetworkPort
from stagecoach.sim.network.engine import Engine, EngineSettings
from stagecoach.sim.network.frame_log import FrameLog
from stagecoach.sim.network.port import EnginePort
from stagecoach.sim.network.timeline import WallTime
from stagecoach.sim.wire.address import parse_wire
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire
from tests.linux.ours import PATIENCE

_CONNECTIONS = 8


class DriverInterface:
    """An `ours.Interface` by the driver's network and an engine, but for `close`."""

    def __init__(self, port: NetworkPort, network: Network) -> None:
        self.port = port
        self.network = network

    @property
    def half_closes(self) -> bool:
        """What the peer still sends after `shutdown` is taken and dropped."""
        return False

    def listen(self, port: int) -> "CaseListener":
        """Take connections at a port."""
        return CaseListener(self, self.network.listen("", port))

    def open(self, host: str, port: int, local_port: int | None = None) -> "CaseStream":
        """A connection that is established."""
        if local_port is None:
            return CaseStream(self, self.network.connect(host, port, PATIENCE))
        network = self.network
        ends = (network.settings.own, local_port), (IPv4Address(host), port)
        # `Network.connect` chooses the port itself.
        with network._turn.lock:
            opening = network._connections.openings.connect(
                *(ends, PATIENCE, self.port.now_us(), network.settings.ip_fields)
            )
            network._turn.wait(lambda: opening.done)
        if opening.stream is None:
            assert opening.error is not None
            raise opening.error
        return CaseStream(self, opening.stream)

    def close(self) -> None:
        """End all of it."""
        raise NotImplementedError


class NetworkInterface(DriverInterface):
    """See `ours.Opener`: any window can be had."""

    def __init__(self, address: str, window: int | None = None) -> None:
        parsed = parse_wire(address)
        self._time = WallTime()
        self._wire = Wire(parsed, self._time.clock)
        self._unsent: deque[bytes] = deque()
        give_up = time.monotonic() + PATIENCE
        while not self._wire.connected:
            if time.monotonic() > give_up:
                raise TransportTimeout("the TAP has no carrier")
            time.sleep(0.005)
        buffer = parsed.rx_ring if window is None else window
        engine = EngineSettings(
            parsed.mac,
            parsed.mtu,
            buffer,
            parsed.tx_ring,
            parsed.rto_min_ms * 1000,
            _CONNECTIONS,
        )
        self._engine = Engine(engine, self._send_segment, lambda *_: None)
        port = EnginePort(
            self._engine, self._time, self._wire.send, FrameLog(), lambda: Link("up", {})
        )
        self._port = port
        self._time._add(self)
        settings = NetworkSettings(
            parsed.ip,
            parsed.mac,
            parsed.gateway,
            parsed.mtu,
            receive_buffer=buffer,
            maximum_segment_lifetime=1,
        )
        super().__init__(port, Network(port, settings, SHORT))
        self._closed = False

    def close(self) -> None:
        """End all of it."""
        if self._closed:
            return
        self._closed = True
        self.network.close()
        self._port.close("closed")
        self._time._remove(self)
        self._wire.close()

    # As a member of its time.

    def _send_segment(self, frame: bytes) -> None:
        if self._unsent or not self._wire.send(frame):
            self._unsent.append(frame)

    def serve(self) -> bool:
        """Frames and timers."""
        happened = False
        now = self._time._now_ps() // PS_PER_US
        arrival = self._wire.next_arrival_ps
        while (frame := self._wire.receive()) is not None:
            self._engine.take_frame(now, frame)
            happened = True
        happened |= arrival != self._wire.next_arrival_ps
        deadline = self._engine.next_deadline()
        if deadline is not None and deadline <= now:
            self._engine.timer(now)
            happened = True
        while self._unsent and self._wire.send(self._unsent[0]):
            self._unsent.popleft()
            happened = True
        return happened

    def next_ps(self) -> int | None:
        """When there is something to do."""
        deadline = self._engine.next_deadline()
        times = [None if deadline is None else deadline * PS_PER_US, self._wire.next_arrival_ps]
        if self._unsent:
            times.append(self._time._now_ps() + 10**9)
        return min((each for each in times if each is not None), default=None)

    def descriptors(self) -> list[tuple[int, bool]]:
        """That of the TAP."""
        return [(self._wire.fileno(), False)]

    def busy(self) -> bool:
        """There is no device."""
        return False

    def pace(self, cycles: int) -> None:
        """There is no device."""


class CaseListener:
    """See `ours.Listener`."""

    def __init__(self, interface: DriverInterface, listener: NetworkListener) -> None:
        self._interface = interface
        self._listener = listener

    def accept(self) -> "CaseStream":
        """The next connection."""
        return CaseStream(self._interface, self._listener.accept(PATIENCE))


class CaseStream:
    """See `ours.Stream`."""

    def __init__(self, interface: DriverInterface, stream: NetworkStream) -> None:
        self._interface = interface
        self._stream = stream

    @property
    def maximum_segment_size(self) -> int:
        """As the engine has it."""
        return self._interface.port.info(self._stream.handle).maximum_segment_size

    def sendall(self, octets: bytes) -> None:
        """Send all octets."""
        self._stream.sendall(octets, PATIENCE)

    def receive_exactly(self, count: int) -> bytes:
        """The next octets."""
        return self._stream.receive_exactly(count, PATIENCE)

    def shutdown(self) -> None:
        """FIN."""
        with contextlib.suppress(KeyError):
            self._interface.port.shutdown(self._stream.handle)

    def abort(self) -> None:
        """RST."""
        self._interface.port.abort(self._stream.handle)

    def close(self) -> None:
        """FIN or RST."""
        self._stream.close()

    def wait_end(self) -> None:
        """Wait until it is over."""
        ends = self._stream.local_address, self._stream.peer_address
        give_up = time.monotonic() + PATIENCE
        while any(
            (each.local, each.remote) == ends and each.state != "TIME-WAIT"
            for each in self._interface.network.connections()
        ):
            if time.monotonic() > give_up:
                raise TransportTimeout("the connection is open")
            time.sleep(0.01)
        try:
            self._stream.receive_exactly(1, 0)
        except ConnectionReset:
            raise
        except StreamClosed:
            pass
