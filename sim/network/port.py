"""The engine as the driver sees it: a `NetworkPort`, whose calls may come from any thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from ipaddress import IPv4Address
from typing import Any

from stagecoach.host_driver.network.ethernet import MAC_OCTETS
from stagecoach.host_driver.network.ip_fields import IpFields
from stagecoach.host_driver.transport.base import DeviceClosed, TransportTimeout
from stagecoach.host_driver.transport.network import (
    ConnectionInfo,
    Ended,
    Established,
    FrameHead,
    Link,
)
from stagecoach.sim.network.engine import Engine
from stagecoach.sim.network.flow import Flow
from stagecoach.sim.network.frame_log import FrameLog
from stagecoach.sim.network.timeline import Timeline
from stagecoach.sim.wire.impairments import PS_PER_US

_SECOND_US = 1_000_000


class EnginePort:
    """A `NetworkPort`.

    Parameters
    ----------
    engine: whose state is guarded by the lock of `timeline`. send: sends a frame; `False` if there
        is no room. log: of the frames. link: how the wire is.

    Attributes
    ----------
    closed: why there is no device any more, or `None`. link: how the wire is.
    """

    def __init__(
        self,
        engine: Engine,
        timeline: Timeline,
        send: Callable[[bytes], bool],
        log: FrameLog,
        link: Callable[[], Link],
    ) -> None:
        self.closed: str | None = None
        self._engine = engine
        self._timeline = timeline
        self._send = send
        self._log = log
        self.link = link
        self._woken = False

    @property
    def engine(self) -> str:
        """The reference model in software."""
        return "reference"

    @property
    def maximum_connections(self) -> int:
        """Connections that the engine keeps at once."""
        return self._engine.settings.maximum_connections

    def answer(self, address: IPv4Address) -> bool:
        """The reference TCP answers nothing."""
        return False

    @property
    def dropped_frames(self) -> int:
        """Frames that the queue of `receive_frame` had no room for."""
        return self._engine.dropped

    @property
    def frame_fates(self) -> dict[str, int]:
        """The reference TCP only counts segments with an urgent pointer."""
        return {"urgent": self._engine.urgent} if self._engine.urgent else {}

    def now_us(self) -> int:
        """The time."""
        return self._timeline._now_ps() // PS_PER_US

    @contextmanager
    def _changing(self) -> Iterator[int]:
        """Under the lock; gives the time, and has what follows from the block done."""
        with self._timeline.lock:
            self._require_open()
            yield self.now_us()
            self._timeline._changed()

    def _require_open(self) -> None:
        if self.closed is not None:
            raise DeviceClosed(self.closed)

    def close(self, why: str) -> None:
        """The device is gone; calls that wait raise `DeviceClosed`."""
        with self._timeline.lock:
            self.closed = self.closed or why
            self._timeline._changed()

    # Frames, and what the driver waits for.

    def send_frame(self, frame: bytes) -> bool:
        """Send a frame; `False` if there is no room."""
        with self._changing():
            return self._send(frame)

    def receive_frame(self) -> bytes | None:
        """The next frame for the driver, `None` if there is none."""
        with self._timeline.lock:
            self._require_open()
            return self._engine.frames.popleft() if self._engine.frames else None

    def take_ended(self) -> Ended | None:
        """The next connection that ended, `None` if there is none."""
        with self._timeline.lock:
            self._require_open()
            return self._engine.take_ended()

    def take_doubtful(self) -> int | None:
        """The next connection whose retransmissions are not answered, `None` if there is none."""
        with self._timeline.lock:
            self._require_open()
            return self._engine.doubtful.popleft() if self._engine.doubtful else None

    def wait(self, until_us: int | None) -> None:
        """Wait for frames, ends, news of a stream, `wake`, or a time."""
        until = None if until_us is None else until_us * PS_PER_US
        with self._timeline.lock:
            self._timeline._block(self._has_news, until, server=self)
            self._woken = self._engine.news = False
            self._require_open()

    def _has_news(self) -> bool:
        engine = self._engine
        ready = bool(engine.frames or engine.ended or engine.doubtful or engine.news)
        return ready or self._woken or self.closed is not None

    def wake(self) -> None:
        """End a `wait`."""
        with self._changing():
            self._woken = True

    def pause(self) -> AbstractContextManager[None]:
        """A program's thread waits in this block for something of the network."""
        return self._timeline._pause(self)

    def new_lock(self) -> Any:
        """A re-entrant lock: nothing here waits while a thread has one."""
        return threading.RLock()

    # Connections.

    def establish(self, connection: Established, early: tuple[bytes, ...] = ()) -> int:
        """Give a connection to the engine."""
        with self._changing() as now:
            return self._engine.establish(now, connection, early)

    @contextmanager
    def _flow(self, handle: int) -> Iterator[tuple[int, Flow]]:
        with self._changing() as now:
            flow = self._engine.flow(handle)
            try:
                yield now, flow
            finally:
                self._engine.serve(now, flow)

    def readable(self, handle: int) -> bool:
        """Whether there are bytes, or the end."""
        with self._timeline.lock:
            self._require_open()
            return self._engine.flow(handle).readable

    def send(self, handle: int, octets: bytes) -> int:
        """Write to the stream; how many bytes were taken."""
        with self._flow(handle) as (now, flow):
            return flow.send(now, octets)

    def receive(self, handle: int, maximum: int) -> bytes:
        """Take bytes of the stream."""
        with self._flow(handle) as (now, flow):
            return flow.receive(now, maximum)

    def attach(self, handle: int, connection: int) -> None:
        """Join a stream to the LLP connection of a QP."""
        with self._changing() as now:
            self._engine.attach(now, handle, connection)

    def detach(self, connection: int, timeout: float) -> None:
        """Take the stream from the LLP; FIN follows what the device has sent."""
        with self._changing():
            flow = self._engine.leave(connection)
        with self._timeline.lock:
            until = self._timeline._now_ps() + round(timeout * _SECOND_US) * PS_PER_US
            self._timeline._block(lambda: flow.left or self.closed is not None, until)
            self._require_open()
            if not flow.left:
                flow.shutdown(self.now_us())
                raise TransportTimeout(
                    f"detach of connection {connection}: not everything could be sent in time"
                )

    def shutdown(self, handle: int) -> None:
        """FIN after all that was sent."""
        with self._flow(handle) as (now, flow):
            flow.shutdown(now)

    def abort(self, handle: int) -> None:
        """RST."""
        with self._flow(handle) as (now, flow):
            flow.abort(now)

    def set_segment_size(self, handle: int, octets: int) -> None:
        """The path takes less."""
        if octets < 1:
            raise ValueError(f"segment size {octets}; allowed: 1 or more")
        with self._flow(handle) as (now, flow):
            flow.resize(now, octets)

    def set_remote_mac(self, handle: int, mac: bytes) -> None:
        """The peer has another MAC address."""
        if len(mac) != MAC_OCTETS:
            raise ValueError(f"MAC address of {len(mac)} bytes; allowed: {MAC_OCTETS}")
        with self._flow(handle) as (_, flow):
            flow.remote_mac = mac

    def set_ip(self, handle: int, dscp: int, ttl: int) -> None:
        """DSCP and TTL of all packets from now on."""
        fields = IpFields(dscp, ttl)
        with self._flow(handle) as (_, flow):
            flow.connection.dscp, flow.connection.ttl = fields.dscp, fields.ttl

    def frame_heads(self) -> list[FrameHead]:
        """The headers of the last frames, the oldest first."""
        with self._timeline.lock:
            self._require_open()
            return self._log.heads()

    def info(self, handle: int) -> ConnectionInfo:
        """How a connection does."""
        with self._timeline.lock:
            self._require_open()
            return self._engine.flow(handle).info()
