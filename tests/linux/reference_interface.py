"""The reference TCP as an `ours.Interface`, in the wall's time: one thread serves host and wire."""

import os
import secrets
import select
import threading
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from stagecoach.host_driver.network.errors import (
    ConnectionRefused,
    ConnectionReset,
    ConnectionTimedOut,
)
from stagecoach.host_driver.transport.base import StreamClosed, TransportTimeout
from stagecoach.sim.model.tcp.connection import Connection
from stagecoach.sim.model.tcp.host import Host
from stagecoach.sim.model.tcp.host import Listener as HostListener
from stagecoach.sim.model.tcp.state import Cause, Settings, State
from stagecoach.sim.wire.address import parse_wire
from stagecoach.sim.wire.clock import WallClock
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire
from tests.linux.link_layer import LinkLayer
from tests.linux.ours import PATIENCE

_ENDS: dict[Cause, tuple[type[StreamClosed], str]] = {
    Cause.RESET: (ConnectionReset, "reset by the peer"),
    Cause.TIMED_OUT: (ConnectionTimedOut, "given up after R2"),
}
# So that an impaired run of minutes does not end by R2 (RFC 9293, 3.8.3), nor waits for 2 MSL.
_R2_US = 1_000_000_000
_MSL_US = 1_000_000
# Frames of one turn, before streams are looked at.
_FRAMES = 64


class ReferenceInterface:
    """See `ours.Opener`: any window can be had."""

    def __init__(self, address: str, window: int | None = None) -> None:
        parsed = parse_wire(address)
        self.changed = threading.Condition()
        self.send_buffer = parsed.tx_ring
        self._clock = WallClock()
        self._wire = Wire(parsed, self._clock)
        settings = Settings(
            mss=parsed.mtu - 40,
            receive_buffer=parsed.rx_ring if window is None else window,
            rto_minimum=parsed.rto_min_ms * 1000,
            r2=_R2_US,
            r2_syn=_R2_US,
            msl=_MSL_US,
        )
        self._host = Host(parsed.ip, secrets.token_bytes(16), settings)
        self._link = LinkLayer(parsed.ip, parsed.mac, parsed.gateway)
        self._wake, self._waker = os.pipe()
        self._closing = False
        self._failure: BaseException | None = None
        self._wait_for_carrier()
        self._thread = threading.Thread(target=self._run, name="reference TCP", daemon=True)
        self._thread.start()

    def _wait_for_carrier(self) -> None:
        give_up = time.monotonic() + PATIENCE
        while not self._wire.connected:
            if time.monotonic() > give_up:
                raise TransportTimeout("the TAP has no carrier")
            time.sleep(0.005)

    @property
    def half_closes(self) -> bool:
        """RFC 9293, 3.6."""
        return True

    # Calls of the test.

    def listen(self, port: int) -> "ReferenceListener":
        """Take connections at a port."""
        with self.changed:
            return ReferenceListener(self, self._host.listen(port))

    def open(self, host: str, port: int, local_port: int | None = None) -> "ReferenceStream":
        """A connection that is established."""
        remote = IPv4Address(host), port
        connection = self.call(lambda now: self._host.connect(now, remote, local_port))
        opening = (State.SYN_SENT, State.SYN_RECEIVED)
        self.wait(lambda: connection.state not in opening, f"{host}:{port} is not open")
        if connection.cause is Cause.REFUSED:
            raise ConnectionRefused(f"{host}:{port} refused")
        return ReferenceStream(self, connection)

    def close(self) -> None:
        """End the thread and the wire; twice is allowed."""
        if self._closing:
            return
        self._closing = True
        os.write(self._waker, b"x")
        self._thread.join()
        self._wire.close()
        os.close(self._wake)
        os.close(self._waker)
        if self._failure is not None:
            raise self._failure

    # For streams.

    def call(self, what: Callable[[int], Any]) -> Any:
        """Do something with the host, at a time, and have sent what follows from it."""
        with self.changed:
            result = what(self._now())
        os.write(self._waker, b"x")
        return result

    def wait(self, until: Callable[[], Any], late: str) -> None:
        """Wait until something holds."""
        with self.changed:
            if not self.changed.wait_for(lambda: self._failure or until(), PATIENCE):
                raise TransportTimeout(f"{late} after {PATIENCE:g} s")
            if self._failure is not None:
                raise TransportTimeout(f"the reference TCP stopped: {self._failure!r}")

    # The thread.

    def _now(self) -> int:
        return self._clock.now_ps() // PS_PER_US

    def _run(self) -> None:
        try:
            while not self._closing:
                with self.changed:
                    seconds = self._turn()
                    self.changed.notify_all()
                if select.select([self._wire, self._wake], [], [], seconds)[0]:
                    while select.select([self._wake], [], [], 0)[0]:
                        os.read(self._wake, 1 << 12)
        except BaseException as error:
            self._failure = error
            with self.changed:
                self.changed.notify_all()

    def _turn(self) -> float | None:
        """What came and what is due; returns for how long nothing is."""
        host, link, wire = self._host, self._link, self._wire
        for _ in range(_FRAMES):
            frame = wire.receive()
            if frame is None:
                break
            packet = link.take(self._now(), frame)
            if packet is not None:
                host.packet_arrives(self._now(), packet)
                self._send()
        now = self._now()
        deadline = host.next_deadline()
        if deadline is not None and deadline <= now:
            host.timer(now)
        link.timer(now)
        self._send()
        wire.poll()
        arrival = wire.next_arrival_ps
        times = [host.next_deadline(), link.next_deadline]
        times.append(None if arrival is None else arrival // PS_PER_US + 1)
        if link.output:
            times.append(self._now() + 100)
        due = [at for at in times if at is not None]
        return max(0.0, (min(due) - self._now()) / 1e6) if due else None

    def _send(self) -> None:
        now = self._now()
        for packet in self._host.take_packets():
            self._link.send(now, packet)
        output = self._link.output
        while output and self._wire.send(output[0]):
            output.popleft()


class ReferenceListener:
    """See `ours.Listener`."""

    def __init__(self, interface: ReferenceInterface, listener: HostListener) -> None:
        self._interface = interface
        self._listener = listener

    def accept(self) -> "ReferenceStream":
        """The next connection."""
        accepted: list[Connection] = []

        def done() -> bool:
            connection = self._listener.accept()
            if connection is not None:
                accepted.append(connection)
            return bool(accepted)

        self._interface.wait(done, f"nobody connects to port {self._listener.port}")
        return ReferenceStream(self._interface, accepted[0])


class ReferenceStream:
    """See `ours.Stream`."""

    def __init__(self, interface: ReferenceInterface, connection: Connection) -> None:
        self._interface = interface
        self._connection = connection
        self._received = bytearray()

    @property
    def maximum_segment_size(self) -> int:
        """EMSS."""
        return self._connection.emss

    def sendall(self, octets: bytes) -> None:
        """Send all octets."""
        connection, most = self._connection, self._interface.send_buffer
        left = memoryview(octets)
        while left:
            self._interface.wait(
                lambda: connection.queued < most or connection.cause, f"{len(left)} bytes not sent"
            )
            self._require_alive()
            part = bytes(left[: most - connection.queued])
            self._interface.call(lambda now, part=part: connection.send(now, part))
            left = left[len(part) :]

    def receive_exactly(self, count: int) -> bytes:
        """The next octets."""
        connection, received = self._connection, self._received
        while len(received) < count:
            self._interface.wait(
                lambda: connection.unread or connection.finished or connection.cause,
                f"{len(received)} of {count} bytes came",
            )
            missing = count - len(received)
            part = self._interface.call(lambda now, most=missing: connection.receive(now, most))
            received += part
            if not part:
                self._require_alive()
                raise StreamClosed(f"closed after {len(received)} of {count} bytes")
        octets = bytes(received[:count])
        del received[:count]
        return octets

    def _require_alive(self) -> None:
        cause = self._connection.cause
        if cause is not None and cause is not Cause.CLOSED:
            kind, text = _ENDS.get(cause, (StreamClosed, cause.value))
            raise kind(text)

    def shutdown(self) -> None:
        """FIN."""
        self._interface.call(self._connection.close)

    def abort(self) -> None:
        """RST."""
        self._interface.call(self._connection.abort)

    def close(self) -> None:
        """FIN; octets that nobody took, or that still come, are answered by RST."""
        self._interface.call(lambda now: self._connection.close(now, discard=True))

    def wait_end(self) -> None:
        """Wait until it is over."""
        over = (State.CLOSED, State.TIME_WAIT)
        self._interface.wait(lambda: self._connection.state in over, "the connection is open")
        self._require_alive()
