"""A card whose device has an LLP port, with the reference TCP behind it."""

from collections import deque

from stagecoach.sim.device import Device
from stagecoach.sim.network.card import BATCH, Card
from stagecoach.sim.network.channel import LlpChannel
from stagecoach.sim.network.engine import Engine, EngineSettings
from stagecoach.sim.network.port import EnginePort
from stagecoach.sim.network.timeline import Timeline
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire

MAXIMUM_UNSENT = 4096
"""Segments that wait for the wire; more are lost, as in any queue."""


class ReferenceCard(Card):
    """A `Card` with an engine.

    Attributes
    ----------
    port: for the driver.
    """

    _channel: LlpChannel

    def __init__(
        self,
        device: Device,
        channel: LlpChannel,
        wire: Wire,
        settings: EngineSettings,
        timeline: Timeline,
        *,
        paced: bool,
    ) -> None:
        super().__init__(device, channel, wire, timeline, paced=paced)
        self.engine = Engine(settings, self._send_segment, channel.post)
        self.port = EnginePort(self.engine, timeline, self._send, self.log, self.link)
        self._unsent: deque[bytes] = deque()

    @property
    def closed(self) -> str | None:
        """Why there is no device any more."""
        return self.port.closed

    def close(self, why: str) -> None:
        """The device is gone; calls that wait raise `DeviceClosed`."""
        self.port.close(why)

    def _send_segment(self, frame: bytes) -> None:
        if self._unsent or not self._send(frame):
            if len(self._unsent) < MAXIMUM_UNSENT:
                self._unsent.append(frame)

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
            self.log.note(now, frame, sent=False)
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
        times = [None if deadline is None else deadline * PS_PER_US, self._arrival_ps]
        return min((time for time in times if time is not None), default=None)
