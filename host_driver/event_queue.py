"""The event queue of a device: which QPs stopped, and why."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from stagecoach.host_driver import entries, registers
from stagecoach.host_driver.answers import read_state
from stagecoach.host_driver.counters import query_dropped_events
from stagecoach.host_driver.device import Device
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.events import STREAM_ENDED, UNKNOWN_INDEX, AsyncEvent, read_event
from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.transport.network import NetworkTransport

EVENT_RING_ENTRIES = 256


class StoppableQP(Protocol):
    """A QP that is told of its event."""

    known_state: QPState

    def _stopped(self, event: AsyncEvent) -> None:
        """The device says that the QP has an error."""


class TellingSRQ(Protocol):
    """An SRQ that is told of its events."""

    def _told(self, event: AsyncEvent) -> bool:
        """Takes an event; whether the program is told of it."""

    def _events_lost(self) -> None:
        """Events did not come."""


class EventQueue:
    """The event ring, which the device writes; the caller holds the lock of the device.

    A device has its event queue. So that they are no circle, each call names the device.

    Parameters
    ----------
    device: the device, which has no event ring yet. qps, srqs: those that are open, by number.

    Attributes
    ----------
    events: all that came, the oldest first. lost: how many the device had no place for.
    """

    def __init__(
        self,
        device: Device,
        qps: Mapping[int, StoppableQP],
        srqs: Mapping[int, TellingSRQ],
    ):
        self._qps = qps
        self._srqs = srqs
        self.events: list[AsyncEvent] = []
        self.lost = 0
        self._closed = False
        self._cq = device.attr.max_cq  # the number of the event ring, after those of CQs
        self._ring = Ring(device.transport, EVENT_RING_ENTRIES, entries.EVENT.size)

    def begin(self, device: Device) -> None:
        """Gives the ring to the device, empty."""
        self._ring.memory[:] = bytes(len(self._ring.memory))
        self._number = 0
        device._enable_ring(self._cq, self._ring)
        self._dropped = query_dropped_events(device)
        device.write(registers.INTERRUPT_ENABLE, completion=1, event=1)
        self._arm(device)

    def process(self, device: Device, ask: bool) -> None:
        """Takes what the device wrote to the event ring; stops the QPs that it names.

        Of an event that could not be written, or had no place, its QP tells, when the device is
        asked: now with `ask`, else each `LOOKS`-th time, and when the ring was full.
        """
        ring = self._ring
        ask = ask or ring.is_due()
        taken, lost = 0, False
        try:
            # More do not come before the device is told what was taken.
            for _ in range(ring.entries):
                if self._closed:
                    break
                offset = ring.offset(self._number)
                if not ring.is_written(self._number):
                    number = self._cq
                    if not device._skip_lost(number, ring, self._number, ask or lost):
                        break
                    self._number = self._number + 1 & 0xFFFF
                    taken, lost = taken + 1, True
                    continue
                fields = entries.EVENT.unpack_from(ring.memory, offset)
                self._number = self._number + 1 & 0xFFFF
                taken += 1
                event = read_event(fields)
                if event.srq_num is None:
                    self._tell(device, event, self._qps.get(event.qp_num))
                else:
                    srq = self._srqs.get(event.srq_num)
                    if srq is not None and srq._told(event):
                        self.events.append(event)
            if lost:
                self._find_stopped(device)
        finally:
            if taken:
                device.write(registers.INTERRUPT_STATUS, event=1)
                self._arm(device)
        # After the doorbell, which made room: those that came before it are counted.
        if (ask or taken >= ring.entries) and not self._closed:
            self._find_dropped(device)

    def _find_dropped(self, device: Device) -> None:
        """Stops the QPs whose events had no place."""
        dropped = query_dropped_events(device)
        more = dropped - self._dropped & 0xFFFF
        self._dropped = dropped
        if more:
            self.lost += more
            self._find_stopped(device)

    def _find_stopped(self, device: Device) -> None:
        """Stops the QPs that have stopped and were not told of, and has SRQs tell again."""
        for srq in list(self._srqs.values()):
            srq._events_lost()
        for number, qp in list(self._qps.items()):
            if qp.known_state not in (QPState.INIT, QPState.RTS):
                continue
            state, cause = read_state(device, number)
            if state == QPState.ERR:
                self._tell(device, AsyncEvent(number, cause, UNKNOWN_INDEX, 0, b""), qp)

    def _tell(self, device: Device, event: AsyncEvent, qp: StoppableQP | None) -> None:
        """Keeps an event, and stops its QP if that is still there."""
        transport = device.transport
        if qp is not None and event.cause in STREAM_ENDED:
            if isinstance(transport, NetworkTransport):
                event = replace(event, stream_end=transport.stream_end(event.qp_num))
        self.events.append(event)
        if qp is not None:
            qp._stopped(event)

    def _arm(self, device: Device) -> None:
        """Has the next event raise the interrupt, at once if it is there."""
        device.write(registers.CQ_DOORBELL, cq=self._cq, consumer=self._number, arm=1)

    def disable(self, device: Device) -> None:
        """Takes the ring from the device."""
        device._disable_ring(self._cq)

    def close(self) -> None:
        """Frees the ring, which the device does not have any more; no event comes after this."""
        self._closed = True
        self._ring.close()
