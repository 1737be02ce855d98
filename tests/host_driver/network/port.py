"""A `NetworkPort` in simulated time, whose engine keeps streams and says nothing on the wire."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

import pytest

from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.transport.base import DeviceClosed, StreamClosed, TransportError
from stagecoach.host_driver.transport.network import (
    ConnectionInfo,
    Ended,
    Established,
    FrameHead,
    Link,
)

MAXIMUM_FRAMES = 1024


@dataclass
class EngineStream:
    """A connection of the engine."""

    established: Established
    early: tuple[bytes, ...]
    received: bytearray = field(default_factory=bytearray)
    peer_closed: bool = False
    sent: bytearray = field(default_factory=bytearray)
    room: int = 1 << 16
    shut: bool = False
    attached: int | None = None
    segment_sizes: list[int] = field(default_factory=list)
    macs: list[bytes] = field(default_factory=list)
    fields: list[tuple[int, int]] = field(default_factory=list)
    in_flight: int = 0
    segments_received: int = 0


class FakePort:
    """Time goes on in `wait` alone, or by `now`.

    Attributes
    ----------
    now: microseconds. may_pass: whether time may go on. sent: frames that the driver sent.
    peer: takes each of them too, and may call `frame`. streams: of the engine, by handle.
    carrier, refused: of `link`.
    """

    engine = "fake"

    def __init__(self, maximum_connections: int = 16):
        self.maximum_connections = maximum_connections
        self.now = 1_000_000
        self.sent: list[bytes] = []
        self.peer: Callable[[bytes], None] | None = None
        self.streams: dict[int, EngineStream] = {}
        self.dropped_frames = 0
        self.frame_fates = {"full": 3}
        self.answers: list[IPv4Address] = []
        self.carrier = "up"
        self.refused: dict[str, int] = {}
        self.waits = 0
        self.may_pass: Callable[[], bool] = lambda: True
        self.closed = False
        self._frames: deque[bytes] = deque()
        self._ended: deque[Ended] = deque()
        self.doubtful: deque[int] = deque()
        self._handles = 0
        self._woken = False
        self._changed = threading.Condition()

    def answer(self, address: IPv4Address) -> bool:
        """The device would."""
        self.answers.append(address)
        return True

    def tell(self) -> None:
        """A stream has octets, room or FIN."""
        self.wake()

    def frame(self, octets: bytes) -> None:
        """A frame comes."""
        with self._changed:
            if len(self._frames) >= MAXIMUM_FRAMES:
                self.dropped_frames += 1
                return
            self._frames.append(octets)
            self._changed.notify_all()

    def end(
        self,
        handle: int,
        how: StreamEnd,
        *,
        closed_first: bool = False,
        peer_closed: bool = False,
    ) -> Ended:
        """The engine forgets a connection; its octets stay, as for a `take_ended` to come."""
        numbers = self.streams[handle].established
        ended = Ended(
            *(handle, how, (numbers.next_sent + 1) % 2**32, (numbers.next_received + 1) % 2**32),
            *(closed_first, peer_closed),
        )
        with self._changed:
            self._ended.append(ended)
            self._changed.notify_all()
        return ended

    def close(self) -> None:
        """The device is gone."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def now_us(self) -> int:
        return self.now

    def send_frame(self, frame: bytes) -> bool:
        if self.closed:
            raise DeviceClosed("the device was closed")
        self.sent.append(frame)
        if self.peer is not None:
            self.peer(frame)
        return True

    def receive_frame(self) -> bytes | None:
        return self._frames.popleft() if self._frames else None

    def take_ended(self) -> Ended | None:
        return self._ended.popleft() if self._ended else None

    def take_doubtful(self) -> int | None:
        return self.doubtful.popleft() if self.doubtful else None

    def wait(self, until_us: int | None) -> None:
        self.waits += 1
        with self._changed:
            if not (self._frames or self._ended or self._woken or self.closed):
                if until_us is None or (until_us > self.now and not self.may_pass()):
                    self._changed.wait(10)
                else:
                    self.now = max(self.now, until_us)
            self._woken = False
        if self.closed:
            raise DeviceClosed("the device was closed")

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def pause(self) -> AbstractContextManager[None]:
        return nullcontext()

    def new_lock(self) -> Any:
        return threading.RLock()

    def establish(self, connection: Established, early: tuple[bytes, ...] = ()) -> int:
        if len(self.streams) >= self.maximum_connections:
            raise TransportError("no room")
        self._handles += 1
        self.streams[self._handles] = EngineStream(connection, early)
        return self._handles

    def readable(self, handle: int) -> bool:
        stream = self.streams[handle]
        return bool(stream.received) or stream.peer_closed

    def send(self, handle: int, octets: bytes) -> int:
        stream = self.streams[handle]
        if stream.shut:
            raise StreamClosed("shut")
        taken = octets[: stream.room]
        stream.room -= len(taken)
        stream.sent += taken
        return len(taken)

    def receive(self, handle: int, maximum: int) -> bytes:
        stream = self.streams[handle]
        if not stream.received and stream.peer_closed:
            raise StreamClosed("the peer closed")
        octets = bytes(stream.received[:maximum])
        del stream.received[:maximum]
        return octets

    def attach(self, handle: int, connection: int) -> None:
        self.streams[handle].attached = connection

    def detach(self, connection: int, timeout: float) -> None:
        for stream in self.streams.values():
            if stream.attached == connection:
                stream.attached = None
                stream.shut = True

    def shutdown(self, handle: int) -> None:
        self.streams[handle].shut = True

    def abort(self, handle: int) -> None:
        if handle in self.streams:
            self.end(handle, StreamEnd.ABORTED)

    def set_segment_size(self, handle: int, octets: int) -> None:
        self.streams[handle].segment_sizes.append(octets)

    def set_remote_mac(self, handle: int, mac: bytes) -> None:
        self.streams[handle].macs.append(mac)

    def set_ip(self, handle: int, dscp: int, ttl: int) -> None:
        self.streams[handle].fields.append((dscp, ttl))

    def frame_heads(self) -> list[FrameHead]:
        return []

    def link(self) -> Link:
        return Link(self.carrier, self.refused)

    def info(self, handle: int) -> ConnectionInfo:
        stream = self.streams[handle]
        first = stream.established.next_sent
        sent = (first + len(stream.sent)) % 2**32
        return ConnectionInfo(
            *("ESTABLISHED", None, None, 1_000_000, 14600, 1 << 30),
            *(stream.established.maximum_segment_size, stream.established.window, 65535),
            *(stream.in_flight, 0, 0, stream.segments_received, len(stream.sent), 0, 0),
            *((sent - stream.in_flight) % 2**32, sent, stream.established.next_received),
        )


FAKE_ALONE = pytest.mark.parametrize("make_port", [FakePort], ids=["fake"])
"""A test of what a port with a real engine does otherwise, or does not have."""
