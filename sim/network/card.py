"""What simulated network cards have in common: device, channel and wire, served together."""

from abc import ABC, abstractmethod
from collections import deque

from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.host_driver.transport.network import Link
from stagecoach.sim.device import NEVER, Device, DeviceCallError
from stagecoach.sim.irq import Irq
from stagecoach.sim.network.channel import Channel
from stagecoach.sim.network.frame_log import FrameLog
from stagecoach.sim.network.timeline import Timeline
from stagecoach.sim.wire.errors import WireError
from stagecoach.sim.wire.impairments import PS_PER_US
from stagecoach.sim.wire.wire import Wire

BATCH = 64
"""Frames that are taken from the wire before anything else has its turn."""


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


class Card(ABC):
    """A `Member` of a timeline, whose lock guards all of it.

    Parameters
    ----------
    device: compiled, with the other end of `channel`. paced: it runs in `pace` alone.

    Attributes
    ----------
    unplugged: why the wire carries nothing any more, or `None`. log: of frames.
    irqs: interrupts that are high, or rose since they were waited for.
    """

    def __init__(
        self, device: Device, channel: Channel, wire: Wire, timeline: Timeline, *, paced: bool
    ) -> None:
        self.log = FrameLog()
        self.unplugged: WireError | None = None
        self.irqs: set[Irq] = set()
        self._device = device
        self._channel = channel
        self._wire = wire
        self._timeline = timeline
        self._paced = paced
        self._accesses: deque[Access] = deque()
        self._access: Access | None = None
        self._active = True
        self._due_us = NEVER

    @property
    @abstractmethod
    def closed(self) -> str | None:
        """Why there is no device any more."""

    @abstractmethod
    def close(self, why: str) -> None:
        """The device is gone; calls that wait raise `DeviceClosed`."""

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
            self.log.note(self._timeline._now_ps() // PS_PER_US, frame, sent=True)
        return taken

    def _receive(self) -> bytes | None:
        if self.unplugged is not None:
            return None
        try:
            return self._wire.receive()
        except WireError as error:
            self.unplugged = error
            return None

    def link(self) -> Link:
        """How the wire is."""
        # To look takes a peer that has come, as the thread that serves the wire does.
        with self._timeline.lock:
            if self.unplugged is not None:
                carrier = f"lost: {self.unplugged}"
            else:
                carrier = "up" if self._wire.connected else "down: no peer yet"
            return Link(carrier, dict(self._wire.refused))

    # As a member of the timeline.

    @abstractmethod
    def serve(self) -> bool:
        """Do what is due; whether there was anything."""

    @abstractmethod
    def next_ps(self) -> int | None:
        """When there is something to do."""

    @property
    def _arrival_ps(self) -> int | None:
        """When a frame arrives at either end of the wire."""
        return None if self.unplugged is not None else self._wire.next_arrival_ps

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
        due = self._due_us * PS_PER_US <= self._timeline._now_ps()
        return self._active or waiting or self._channel.posted or due

    def pace(self, cycles: int) -> None:
        """Let it run."""
        if self.closed is not None:
            self._active = self._channel.posted = False
            self._due_us = NEVER
            return
        try:
            if self._access is None and self._accesses:
                self._access = self._accesses.popleft()
                value = None if self._access.value is None else self._access.value
                self._device.begin_access(self._access.address, value)
            self._channel.posted = False
            paced = self._device.pace(cycles, self._timeline._now_ps())
        except DeviceCallError as error:
            self.close(str(error))
            return
        if paced.access_done and self._access is not None:
            self._access.value = paced.access_value
            self._access.status = paced.access_status
            self._access = None
        for irq, is_up in ((Irq.RNIC, paced.irq), (Irq.NETWORK, paced.network_irq)):
            if is_up:
                self.irqs.add(irq)
        self._active = bool(paced.busy)
        self._due_us = paced.due_us

    def access(self, address: int, value: int | None = None) -> int:
        """Access a register; returns what was read."""
        access = Access(address, value)
        with self._timeline.lock:
            self._accesses.append(access)
            self._timeline._block(lambda: access.over or self.closed is not None)
            if access.status is None:
                raise DeviceClosed(self.closed or "no time passes any more")
        self._device.require_access(address, access.status)
        return access.value or 0

    def wait_irq(self, irq: Irq, until_ps: int | None, *, server: object = None) -> bool:
        """Wait for an interrupt, until a time of the timeline; `server` as `_block` has it."""
        with self._timeline.lock:
            self._timeline._block(
                lambda: irq in self.irqs or self.closed is not None, until_ps, server=server
            )
            if irq not in self.irqs and self.closed is not None:
                raise DeviceClosed(self.closed)
            rose = irq in self.irqs
            self.irqs.discard(irq)
            return rose

    def wake_irq(self, irq: Irq) -> None:
        """End a `wait_irq` as if the interrupt had risen, also the next one."""
        with self._timeline.lock:
            self.irqs.add(irq)
            self._timeline._changed()
