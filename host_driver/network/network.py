"""An interface with its connections: `listen`, `connect`, `ping`, and what can be looked at."""

import contextlib
import secrets
import socket
import threading
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Self

from stagecoach.host_driver.errors import require_integer
from stagecoach.host_driver.network.address_claim import RFC_5227, ClaimState, ProbeTimes
from stagecoach.host_driver.network.errors import (
    DuplicateAddress,
    NetworkSettingsError,
    NoNeighbour,
)
from stagecoach.host_driver.network.established import Connection
from stagecoach.host_driver.network.ethernet import mac_text
from stagecoach.host_driver.network.keep_alive import TWO_HOURS
from stagecoach.host_driver.network.neighbours import Neighbour
from stagecoach.host_driver.network.service import Service
from stagecoach.host_driver.network.settings import NetworkSettings
from stagecoach.host_driver.network.stream import NetworkListener, NetworkStream, text
from stagecoach.host_driver.network.turn import Turn
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import (
    DeviceClosed,
    StreamClosed,
    TransportError,
    TransportTimeout,
)
from stagecoach.host_driver.transport.network import ConnectionInfo, FrameHead, NetworkPort

DEFAULT_BACKLOG = 128
CLOSE_SECONDS = 2.0
PING_OCTETS = 56

_JOIN_SECONDS = 5.0
_ANY = ("", "0.0.0.0")
_MAXIMUM_PORT = 65535
# Headers of IPv4 and ICMP.
_PING_HEADERS = 28


@dataclass(frozen=True)
class ConnectionStatus:
    """One connection, handshake or TIME-WAIT.

    Attributes
    ----------
    state: of RFC 9293. qp: LLP connection that has its stream. soft_error: what the last ICMP
        error said that told of it. info: of the engine, if that has it.
    """

    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    qp: int | None = None
    soft_error: str | None = None
    info: ConnectionInfo | None = None


class Network:
    """Serves the port of a device, in a thread of its own, until it is closed.

    Parameters
    ----------
    port: of the device. settings: addresses and limits.
    times: of the probes for the address (RFC 5227); the constructor returns after them.

    Raises `DuplicateAddress` if another interface has the address. All timeouts are seconds of
    the port's clock. Calls may come from any thread; after the end they raise `DeviceClosed`.
    """

    def __init__(self, port: NetworkPort, settings: NetworkSettings, times: ProbeTimes = RFC_5227):
        self.settings = settings
        self._port = port
        self._turn = Turn(port)
        self._service = Service(self._turn, settings, times)
        self._connections = self._service.connections
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="stagecoach network", daemon=True)
        self._thread.start()
        claim = self._service.claim
        with self._turn.lock:
            self._turn.wait(lambda: claim.state is not ClaimState.PROBING)
        if claim.state is ClaimState.DUPLICATE:
            self.close()
            raise DuplicateAddress(
                f"address {settings.own} belongs to the interface {mac_text(claim.other or b'')} "
                "already; allowed: one that nobody has"
            )

    def _run(self) -> None:
        try:
            while not self._closing:
                self._port.wait(self._service.serve())
        except TransportError as error:
            self._turn.end(error)
        except BaseException as error:
            self._turn.end(TransportError(f"the network stopped: {error!r}"))
            raise

    def listen(
        self,
        host: str,
        port: int,
        backlog: int = DEFAULT_BACKLOG,
        *,
        dscp: int | None = None,
        ttl: int | None = None,
    ) -> NetworkListener:
        """Open a listener; an empty host stands for the local address, port 0 for any free one.

        dscp, ttl: of its connections, as `connect` has them. Raises `PortInUse`, `TransportError`
        for another address, and `NetworkSettingsError` for a DSCP or TTL that there is not.
        """
        _check_port(port, 0)
        fields = self.settings.ip_fields.changed(dscp, ttl)
        if backlog < 1:
            raise ValueError(f"backlog is {backlog}; allowed: 1 or more")
        own = self.settings.own
        if host not in _ANY and _address(host) != own:
            raise TransportError(
                f"cannot listen at {host}:{port}; allowed: {own}, or an empty host"
            )
        with self._turn.lock:
            self._turn.require_open()
            return self._connections.listen(port, backlog, fields)

    def connect(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        *,
        dscp: int | None = None,
        ttl: int | None = None,
    ) -> NetworkStream:
        """Open a stream to a listening peer.

        dscp, ttl: of all packets of the connection, from the SYN on; those of `NetworkSettings` if
        not given. Without a timeout a SYN is given up after `NetworkSettings.syn_timeout`. Raises
        `NoRoute`, `NoNeighbour`, `ConnectionRefused`, `TransportTimeout`, `PortInUse`, and
        `NetworkSettingsError` for a DSCP or TTL that there is not.
        """
        fields = self.settings.ip_fields.changed(dscp, ttl)
        _check_port(port, 1)
        remote = _address(host), port
        seconds = self.settings.syn_timeout if timeout is None else timeout
        with self._turn.lock:
            self._turn.require_open()
            if self._connections.engine.full:
                limit = self._port.maximum_connections
                raise TransportError(f"{limit} connections are open; allowed: {limit}")
            now_us = self._port.now_us()
            opening = self._connections.connect(remote, seconds, now_us, fields)
            try:
                self._turn.wait(lambda: opening.done)
            except BaseException:
                self._connections.openings.abandon(opening)
                if opening.stream is not None:
                    opening.stream.close()
                raise
            if opening.stream is None:
                assert opening.error is not None
                raise opening.error
            return opening.stream

    def attach(self, qp: int, stream: object) -> None:
        """Join a stream to the LLP connection of a QP; from now on only the device uses it.

        Raises `StreamClosed` if it has ended: as the end was, `ConnectionReset` for example.
        """
        engine = self._connections.engine
        if not isinstance(stream, NetworkStream):
            raise TransportError(
                f"stream is a {type(stream).__name__}; allowed: NetworkStream, as connect returns"
            )
        with self._turn.lock:
            connection = engine.of(stream)
            engine.join(connection, qp)  # first: it may end at once

        def take(handle: int) -> None:
            try:
                self._port.attach(handle, qp)
            except KeyError:
                with self._turn.lock:
                    self._take_ended()
                    raise stream.gone() from None

        try:
            stream.give_away(take)
        except BaseException:
            with self._turn.lock:
                connection.qp = None
            raise

    def _take_ended(self) -> None:
        """Take the ends of connections, whose threads hear of them in the network's next turn."""
        if self._service.take_ended(self._port.now_us()):
            self._port.wake()

    def detach(self, qp: int, timeout: float) -> None:
        """Take the stream from the LLP, and send FIN after what the device has sent.

        Raises `TransportError` if that was not possible in time.
        """
        try:
            self._port.detach(qp, timeout)
        finally:
            with self._turn.lock:
                connection = self._connections.engine.part(qp)
                if connection is not None:
                    self._connections.engine.orphan(connection)

    def stream_end(self, qp: int) -> StreamEnd | None:
        """How the stream of a QP ended, once the LLP has said that it is over.

        `None` if the QP has no stream. Good until `detach`.
        """
        with self._turn.lock:
            # The LLP may have told of it before this network's thread has looked.
            with contextlib.suppress(DeviceClosed):
                self._take_ended()
            return self._connections.engine.stream_end(qp)

    def set_ip(
        self, connection: NetworkStream | int, *, dscp: int | None = None, ttl: int | None = None
    ) -> None:
        """Change DSCP or TTL of a connection: of all packets that it sends from now on.

        connection: a stream, or the number of the QP that has one. What is not given stays.
        Raises `NetworkSettingsError` for a value that there is not, `StreamClosed` if the
        connection has ended.
        """
        with self._turn.lock:
            found = self._connection(connection)
            self._connections.engine.set_ip(found, found.fields.changed(dscp, ttl))

    def set_keep_alive(
        self, connection: NetworkStream | int, idle: float | None = TWO_HOURS
    ) -> None:
        """Switch the keep-alive of a connection on, or with `None` off (RFC 9293, 3.8.4).

        connection: a stream, or the number of the QP that has one. idle: seconds without a segment
        of the peer before it is probed; after 9 probes without an answer, `idle` but at most 75 s
        apart, the connection times out. Raises `NetworkSettingsError` for no time, `StreamClosed`
        if the connection has ended.
        """
        with self._turn.lock:
            self._connections.engine.set_keep_alive(self._connection(connection), idle)

    def _connection(self, connection: NetworkStream | int) -> Connection:
        """The one of a stream or of a QP."""
        engine = self._connections.engine
        self._turn.require_open()
        if isinstance(connection, NetworkStream):
            return engine.of(connection)
        of_qp = engine.of_qp(connection)
        if of_qp is None:
            raise StreamClosed(f"QP {connection} has no stream of this network")
        return of_qp

    def ping(self, host: str, timeout: float = 1.0, octets: int = PING_OCTETS) -> int:
        """Send an ICMP echo; returns the microseconds until its reply.

        Raises `TransportTimeout`, `NoRoute`, `NoNeighbour`; `NetworkSettingsError` if it is longer
        than the MTU.
        """
        most = self.settings.mtu - _PING_HEADERS
        if not 0 <= octets <= most:
            raise NetworkSettingsError(
                f"ping of {octets} bytes; allowed: 0 to {most}, as the MTU is {self.settings.mtu}"
            )
        destination = _address(host)
        echo, unreachable = self._service.echo, self._service.unreachable
        with self._turn.lock:
            self._turn.require_open()
            next_hop = self.settings.next_hop(destination)
            while next_hop in unreachable:
                unreachable.remove(next_hop)
            ping = echo.ping(destination, secrets.token_bytes(octets), self._port.now_us())
            try:
                until = self._turn.deadline(timeout)
                self._turn.wait(
                    lambda: ping.replied_us is not None or next_hop in unreachable, until
                )
            finally:
                echo.forget(ping)
            if ping.replied_us is not None:
                return ping.replied_us - ping.sent_us
            if next_hop in unreachable or self._service.neighbours.mac(next_hop) is None:
                words = f"{next_hop} does not answer ARP requests"
                raise NoNeighbour(self._turn.explain(words))
            words = f"{host} sent no reply in {timeout:g} s"
            raise TransportTimeout(self._turn.explain(words))

    def neighbours(self) -> list[Neighbour]:
        """What ARP knows."""
        with self._turn.lock:
            return self._service.neighbours.list(self._port.now_us())

    def frame_heads(self) -> list[FrameHead]:
        """The headers of the last frames, the oldest first. Raises `DeviceClosed`."""
        return self._port.frame_heads()

    def connections(self) -> list[ConnectionStatus]:
        """Listeners, handshakes, connections of the engine, and those in TIME-WAIT."""
        parts = self._connections
        with self._turn.lock:
            found = [
                ConnectionStatus(each.address, ("0.0.0.0", 0), "LISTEN")
                for each in parts.openings.listeners
            ]
            for handshake in parts.openings.handshakes:
                ends = text(handshake.local), text(handshake.remote)
                found.append(ConnectionStatus(*ends, handshake.state.value))
            for connection in parts.engine:
                ends = text(connection.ends[0]), text(connection.ends[1])
                info = None
                with contextlib.suppress(KeyError):
                    info = self._port.info(connection.handle)
                state = "CLOSED" if info is None else info.state
                found.append(
                    ConnectionStatus(*ends, state, connection.qp, connection.soft_error, info)
                )
            for local, remote in parts.time_wait.list():
                found.append(ConnectionStatus(text(local), text(remote), "TIME-WAIT"))
            return found

    @property
    def counters(self) -> dict[str, int]:
        """What was counted, by name; what never happened is not there."""
        with self._turn.lock:
            fates = {f"frames_{name}": count for name, count in self._port.frame_fates.items()}
            refused = self._port.link().refused
            return {
                **self._service.counters,
                **fates,
                **{f"wire_{name}": count for name, count in refused.items()},
                "frames_dropped": self._port.dropped_frames,
            }

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """End all connections: those that were closed have so many seconds to send what is left.

        All others are reset. May be called again.
        """
        with self._turn.lock:
            if self._closing:
                return
            openings, engine = self._connections.openings, self._connections.engine
            for listener in openings.listeners:
                listener.close()
            for connection in engine:
                if connection.abort_us is None:
                    engine.abort(connection)
            with contextlib.suppress(DeviceClosed):
                self._turn.wait(lambda: not len(engine), self._turn.deadline(timeout))
            for connection in engine:
                engine.abort(connection)
            self._closing = True
        self._turn.end(DeviceClosed("the network is closed"))
        with contextlib.suppress(DeviceClosed):
            self._port.wake()
        self._thread.join(_JOIN_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_port(port: int, least: int) -> None:
    require_integer("port", port)
    if not least <= port <= _MAXIMUM_PORT:
        raise ValueError(f"port {port}; allowed: {least} to {_MAXIMUM_PORT}")


def _address(host: str) -> IPv4Address:
    with contextlib.suppress(AddressValueError):
        return IPv4Address(host)
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise TransportError(f"no IPv4 address of {host!r} is known: {error}") from error
    return IPv4Address(found[0][4][0])
