"""What a simulated network card is made of: device, channel, engine and wire, served together."""

from collections import deque

from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.sim.device import Device, DeviceCallError
from stagecoach.sim.network.channel import Channel
from stagecoach.sim.network.engine import Engine, EngineSettings
from stagecoach.sim.network.frame_log import FrameLog
from stagecoach.sim.network.port import EnginePort
from stagecoach.sim.network.timeline import Timeline
from stagecoach.sim.wire.errors import WireError
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire

BATCH = 64
"""Frames that are taken from the wire before anything else has its turn."""

MAXIMUM_UNSENT = 4096
"""Segments that wait for the wire; more are lost, as in any queue."""


class Access:
    """A register access of a device that is paced: a read, or a write of a value."""

    def __init__(self, address: int, value: int | None) -> None:
        self.address = address
        self.value = value
        self.status: int | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended; `status` says how, `value` what was read."""
        return self.status is not None


class Card:
    """A `Member` of a timeline, whose lock guards all of it.

    Parameters
    ----------
    device: compiled, with the other end of `channel`. paced: it runs in `pace` alone.

    Attributes
    ----------
    port: for the driver. unplugged: why the wire carries nothing any more, or `None`.
    irq: whether the interrupt is high, or rose since it was waited for.
    """

    def __init__(
        self,
        device: Device,
        channel: Channel,
        wire: Wire,
        settings: EngineSettings,
        timeline: Timeline,
        *,
        paced: bool,
    ) -> None:
        self.engine = Engine(settings, self._send_segment, channel.post)
        self._log = FrameLog()
        self.port = EnginePort(self.engine, timeline, self._send, self._log)
        self.unplugged: WireError | None = None
        self.irq = False
        self._device = device
        self._channel = channel
        self._wire = wire
        self._timeline = timeline
        self._paced = paced
        self._unsent: deque[bytes] = deque()
        self._accesses: deque[Access] = deque()
        self._access: Access | None = None
        self._active = True

    # The wire.

    def _send(self, frame: bytes) -> bool:
        if self.unplugged is not None:
            return True
        try:
            taken = self._wire.send(frame)
        except WireError as error:
            self.unplugged = error
            return True
        if taken:
            self._log.note(self._timeline._now_ps() // PS_PER_US, frame, sent=True)
        return taken

    def _send_segment(self, frame: bytes) -> None:
        if self._unsent or not self._send(frame):
            if len(self._unsent) < MAXIMUM_UNSENT:
                self._unsent.append(frame)

    def _receive(self) -> bytes | None:
        if self.unplugged is not None:
            return None
        try:
            return self._wire.receive()
        except WireError as error:
            self.unplugged = error
            return None

    # As a member of the timeline.

    def serve(self) -> bool:
        """Messages of the device, frames of the wire, timers."""
        happened = False
        now = self._timeline._now_ps() // PS_PER_US
        self._channel.flush()
        for kind, lane, value, octets in self._channel.messages():
            self.engine.take_message(now, kind, lane, value, octets)
            happened = True
        arrival = self._wire.next_arrival_ps
        for _ in range(BATCH):
            if (frame := self._receive()) is None:
                break
            self._log.note(now, frame, sent=False)
            self.engine.take_frame(now, frame)
            happened = True
        # A frame that was handed over is there for the other end now.
        happened |= arrival != self._wire.next_arrival_ps
        deadline = self.engine.next_deadline()
        if deadline is not None and deadline <= now:
            self.engine.timer(now)
            happened = True
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()
            happened = True
        return happened

    def next_ps(self) -> int | None:
        """When there is something to do."""
        deadline = self.engine.next_deadline()
        times = [
            None if deadline is None else deadline * PS_PER_US,
            None if self.unplugged is not None else self._wire.next_arrival_ps,
        ]
        return min((time for time in times if time is not None), default=None)

    def descriptors(self) -> list[tuple[int, bool]]:
        """The sockets of device and wire."""
        files = [(self._channel.fileno(), self._channel.full)]
        if self.unplugged is None and self._wire.fileno() >= 0:
            files.append((self._wire.fileno(), False))
        return files

    # A device that is paced.

    def busy(self) -> bool:
        """Whether it has something to do in the next cycles."""
        waiting = self._access is not None or bool(self._accesses)
        return self._active or waiting or self._channel.posted

    def pace(self, cycles: int) -> None:
        """Let it run."""
        if self.port.closed is not None:
            self._active = self._channel.posted = False
            return
        try:
            if self._access is None and self._accesses:
                self._access = self._accesses.popleft()
                value = None if self._access.value is None else self._access.value
                self._device.begin_access(self._access.address, value)
            self._channel.posted = False
            paced = self._device.pace(cycles)
        except DeviceCallError as error:
            self.fail(str(error))
            return
        if paced.access_done and self._access is not None:
            self._access.value = paced.access_value
            self._access.status = paced.access_status
            self._access = None
        self.irq |= bool(paced.irq)
        self._active = bool(paced.busy)

    def access(self, address: int, value: int | None = None) -> int:
        """Access a register; returns what was read."""
        access = Access(address, value)
        with self._timeline.lock:
            self._accesses.append(access)
            self._timeline._block(lambda: access.over or self.port.closed is not None)
            if access.status is None:
                raise DeviceClosed(self.port.closed or "no time passes any more")
        self._device.require_access(address, access.status)
        return access.value or 0

    def wait_irq(self, seconds: float | None) -> bool:
        """Wait for the interrupt, so many seconds of the timeline."""
        with self._timeline.lock:
            until = None
            if seconds is not None:
                until = self._timeline._now_ps() + round(seconds * 1e6) * PS_PER_US
            self._timeline._block(lambda: self.irq or self.port.closed is not None, until)
            if not self.irq and self.port.closed is not None:
                raise DeviceClosed(self.port.closed)
            rose, self.irq = self.irq, False
            return rose

    def fail(self, why: str) -> None:
        """The device has ended by itself."""
        self.port.close(why)
