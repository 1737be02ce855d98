"""A card whose device has an Ethernet port, and the TCP engine in gateware behind it."""

from contextlib import AbstractContextManager
from typing import Any

from stagecoach.host_driver.network.hardware.memory import AlignedMemory
from stagecoach.host_driver.transport.base import DeviceClosed, Transport
from stagecoach.host_driver.transport.network import FrameHead, Link
from stagecoach.sim.device import NEVER, Device, DeviceCallError
from stagecoach.sim.irq import Irq
from stagecoach.sim.network.card import BATCH, Card
from stagecoach.sim.network.channel import Channel
from stagecoach.sim.network.timeline import Timeline
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire

_FULL_PS = 1000 * PS_PER_US
"""So long a frame waits at most until it is tried again whether the device has room."""


class GatewareCard(Card):
    """A `Card` that carries frames between device and wire.

    Nothing is lost between them: while the wire takes nothing, frames wait in the device; while the
    device takes nothing, they wait in the wire.
    """

    def __init__(
        self, device: Device, channel: Channel, wire: Wire, timeline: Timeline, *, paced: bool
    ) -> None:
        super().__init__(device, channel, wire, timeline, paced=paced)
        self._closed: str | None = None
        self._unsent: bytes | None = None

    @property
    def closed(self) -> str | None:
        """Why there is no device any more."""
        return self._closed

    def close(self, why: str) -> None:
        """The device is gone; calls that wait raise `DeviceClosed`."""
        with self._timeline.lock:
            self._closed = self._closed or why
            self._timeline._changed()

    def serve(self) -> bool:
        """Frames of the device and of the wire."""
        happened = False
        now = self._timeline._now_ps() // PS_PER_US
        self._channel.flush()
        for _ in range(BATCH):
            frame = self._unsent if self._unsent is not None else self._channel.receive()
            self._unsent = None
            if frame is None:
                break
            if not self._send(frame):
                self._unsent = frame
                break
            happened = True
        arrival = self._wire.next_arrival_ps
        for _ in range(BATCH):
            if self._channel.full or (frame := self._receive()) is None:
                break
            self.log.note(now, frame, sent=False)
            self._channel.send(frame)
            happened = True
        if self._channel.full and self.unplugged is None:
            self._wire.poll()  # what was sent arrives even so
        # A frame that was handed over is there for the other end now.
        return happened | (arrival != self._wire.next_arrival_ps)

    def next_ps(self) -> int | None:
        """When there is something to do."""
        times = [self._arrival_ps]
        if self._paced and self._due_us != NEVER:
            times.append(self._due_us * PS_PER_US)
        first = min((time for time in times if time is not None), default=None)
        if self._channel.full and first is not None:
            # What has arrived for the device is late already.
            return max(first, self._timeline._now_ps() + _FULL_PS)
        return first


class GatewareHost:
    """What the driver of the engine needs of a simulated device: a `NetworkHost`.

    Parameters
    ----------
    transport: for registers and memory. device: compiled. paced: it runs as `card` lets it.
    """

    def __init__(
        self,
        transport: Transport,
        device: Device,
        card: GatewareCard,
        timeline: Timeline,
        *,
        paced: bool,
    ) -> None:
        self._transport = transport
        self._device = device
        self._card = card
        self._timeline = timeline
        self._paced = paced

    def read_register(self, address: int) -> int:
        """Return a 32-bit register."""
        return self._transport.read_register(address)

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register."""
        self._transport.write_register(address, value)

    def allocate(self, octets: int, alignment: int = 8) -> AlignedMemory:
        """Memory of this process."""
        return AlignedMemory(self._transport, octets, alignment)

    def now_us(self) -> int:
        """The time."""
        return self._timeline._now_ps() // PS_PER_US

    def wait_network(self, until_us: int | None) -> None:
        """Wait for the interrupt of the network, `wake_network`, or a time."""
        if self._paced:
            until = None if until_us is None else until_us * PS_PER_US
            self._card.wait_irq(Irq.NETWORK, until, server=self)
            return
        seconds = None if until_us is None else max(0, until_us - self.now_us()) / 1e6
        try:
            self._device.wait_irq(seconds, Irq.NETWORK)
        except DeviceCallError as error:
            raise DeviceClosed(str(error)) from error

    def wake_network(self) -> None:
        """End a `wait_network`."""
        if self._paced:
            self._card.wake_irq(Irq.NETWORK)
        else:
            self._device.wake_irq(Irq.NETWORK)

    def pause(self) -> AbstractContextManager[None]:
        """A program's thread waits in this block for something of the network."""
        return self._timeline._pause(self)

    def new_lock(self) -> Any:
        """A lock that lets the time pass for those that wait for it."""
        return self._timeline._new_lock()

    def frame_heads(self) -> list[FrameHead]:
        """The headers of the last frames, the oldest first."""
        with self._timeline.lock:
            return self._card.log.heads()

    def link(self) -> Link:
        """How the wire is."""
        return self._card.link()
