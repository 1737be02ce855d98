"""A simulated wire: an end that frames come from, impairments of both directions, a capture."""

from collections import Counter
from types import TracebackType
from typing import Protocol, Self

from stagecoach.sim.wire.address import Attachment, WireAddress
from stagecoach.sim.wire.clock import Clock, WallClock
from stagecoach.sim.wire.errors import FramingError, WireError
from stagecoach.sim.wire.impairments import PS_PER_US, Direction
from stagecoach.sim.wire.line import Line
from stagecoach.sim.wire.pair import open_pair
from stagecoach.sim.wire.stream import connect_stream, listen_stream
from stagecoach.sim.wire.tap import TapEnd, require_mtu
from stagecoach.sim.wire.wire_capture import WireCapture

MINIMUM_OCTETS = 14
"""The Ethernet header alone."""

FRAME_OVERHEAD = 18
"""Bytes of a frame besides its IP packet: the Ethernet header, and one VLAN tag."""

_QUEUE_PS = 1000 * PS_PER_US
"""So much may wait in front of a wire: a millisecond, 1.25 MB at 10 Gbit/s."""


class End(Protocol):
    """Where frames come from and go to. Nothing of it waits."""

    @property
    def connected(self) -> bool:
        """Whether a peer is there to take frames."""
        ...

    def fileno(self) -> int:
        """What is readable when `receive` has something to do; -1 when it never will."""
        ...

    def send(self, frame: bytes) -> bool:
        """Sends a frame; `False` if it has to be tried again later."""
        ...

    def receive(self) -> bytes | None:
        """The next frame of whatever length, or `None`."""
        ...

    def close(self) -> None:
        """Closes it; twice is allowed."""
        ...


def open_end(wire: Attachment, mtu: int) -> End:
    """Opens the end of a wire for IP packets of up to `mtu` bytes. Raises `WireError`."""
    match wire.kind:
        case "tap":
            end = TapEnd(wire.name, mtu + FRAME_OVERHEAD)
            try:
                require_mtu(wire.name, mtu)
            except WireError:
                end.close()
                raise
            return end
        case "unix":
            return connect_stream(wire.name)
        case "unix-listen":
            return listen_stream(wire.name)
        case _:
            return open_pair(wire.name)


class Wire:
    """The wire of an address, as the device's MAC sees it. Nothing here waits.

    Frames are from the destination address to the last byte before the FCS. Time is that of
    `clock`, without it the wall's. What the address calls pcap gets each frame when it arrives,
    at either side: lost ones are not in it, duplicated ones twice. Raises `WireError`.

    Two devices on a pair, or any peer with a wire of its own, have two wires one after the other,
    as with a switch between them: each has its rate and its impairments.

    Attributes
    ----------
    refused: what the other end sent that is no frame here, by name. `too_short`: below 14 bytes.
        `too_long`: above MTU and overhead, as of a peer with another MTU. Both take their time on
        the wire, and are dropped. `stream_invalid`: a stream announced an absurd length; its peer
        was disconnected.
    """

    def __init__(self, address: WireAddress, clock: Clock | None = None) -> None:
        self._clock = WallClock() if clock is None else clock
        self._maximum = address.mtu + FRAME_OVERHEAD
        self._tx = Line(address.tx, Direction.TX)
        self._rx = Line(address.rx, Direction.RX)
        self.refused: Counter[str] = Counter()
        self._gone: WireError | None = None
        self._end = open_end(address.wire, address.mtu)
        try:
            self._capture = None if address.pcap is None else WireCapture(address.pcap)
        except WireError:
            self._end.close()
            raise

    @property
    def connected(self) -> bool:
        """Whether a peer is at the other end. Frames are lost until then."""
        return self._gone is None and self._end.connected

    def fileno(self) -> int:
        """What is readable when something comes from the other end. Frames that are under way
        come by `next_arrival_ps`.
        """
        return self._end.fileno()

    @property
    def next_arrival_ps(self) -> int | None:
        """When, by the clock, the next frame arrives at either side; `None` if none is under
        way.
        """
        times = [line.next_arrival_ps for line in (self._tx, self._rx)]
        return min((time for time in times if time is not None), default=None)

    @property
    def counts(self) -> Counter[str]:
        """What became of frames, as `Line` counts them, in both directions together."""
        return self._tx.counts + self._rx.counts

    def send(self, frame: bytes) -> bool:
        """Sends a frame of the device. `False`, and the frame is not taken, while a millisecond of
        frames waits. Raises `ValueError` for a frame of a wrong length, `PeerGone` if the other
        end was closed.
        """
        if not MINIMUM_OCTETS <= len(frame) <= self._maximum:
            raise ValueError(
                f"the frame has {len(frame)} bytes; allowed: {MINIMUM_OCTETS} to {self._maximum}"
            )
        self.poll()
        if self._gone is not None:
            raise self._gone
        now = self._clock.now_ps()
        if self._tx.lag_ps(now) > _QUEUE_PS:
            return False
        self._tx.push(frame, now)
        return True

    def receive(self) -> bytes | None:
        """The next frame that has arrived at the device, or `None`. Raises `PeerGone` or
        `FramingError` after the last one.
        """
        self.poll()
        arrival = self._rx.first(self._clock.now_ps())
        if arrival is None:
            if self._gone is not None and self._rx.next_arrival_ps is None:
                raise self._gone
            return None
        time, frame = arrival
        self._rx.pop()
        self._record(time, frame, inbound=True)
        return frame

    def poll(self) -> None:
        """Takes what the other end has sent, and hands over what has arrived there by now."""
        if self._gone is not None:
            return
        now = self._clock.now_ps()
        try:
            while self._rx.lag_ps(now) <= _QUEUE_PS:
                frame = self._take()
                if frame is None:
                    break
                if MINIMUM_OCTETS <= len(frame) <= self._maximum:
                    self._rx.push(frame, now)
                    continue
                self.refused["too_short" if len(frame) < MINIMUM_OCTETS else "too_long"] += 1
                self._rx.pass_by(len(frame), now)
            while (arrival := self._tx.first(now)) is not None:
                time, frame = arrival
                if not self._end.send(frame):
                    break
                self._tx.pop()
                self._record(time, frame, inbound=False)
        except WireError as error:
            self._gone = error

    def _take(self) -> bytes | None:
        """What the other end has sent. Raises `WireError` if nothing will come any more."""
        try:
            return self._end.receive()
        except FramingError:
            self.refused["stream_invalid"] += 1
            if self._end.fileno() < 0:
                raise
            return None

    def close(self) -> None:
        """Closes it with its capture; twice is allowed. Frames under way are lost.

        Raises `WireError` if not all frames are in the capture.
        """
        self._end.close()
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _record(self, time_ps: int, frame: bytes, *, inbound: bool) -> None:
        if self._capture is not None:
            self._capture.frame(time_ps, frame, inbound=inbound)
