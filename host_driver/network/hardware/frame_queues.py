"""The rings through which the driver has frames and notices, and sends frames."""

from dataclasses import dataclass

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.entries import EntryLayout
from stagecoach.host_driver.network.hardware.commands import NetworkCommands
from stagecoach.host_driver.transport.base import TransportError
from stagecoach.host_driver.transport.network import ETHERNET_HEADER_OCTETS, NetworkHost
from stagecoach.hw.interface.network_entries import (
    FRAME_DESCRIPTOR,
    FRAME_DESCRIPTOR_OCTETS,
    NETWORK_ENTRY,
    NETWORK_ENTRY_OCTETS,
    NetworkKind,
    slot_octets,
)

MOST_LOG2 = 15
"""Of the places of a ring."""

_ENTRY = EntryLayout(NETWORK_ENTRY)
_DESCRIPTOR = EntryLayout(FRAME_DESCRIPTOR)
_NUMBERS = 1 << 16


@dataclass(frozen=True)
class QueueSizes:
    """Base 2 logarithms of places: of the network queue, of slots for received frames, of frames
    that are sent; 0 to 15. Raises `ValueError`.
    """

    queue_log2: int = 10
    slots_log2: int = 9
    frames_log2: int = 8

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value <= MOST_LOG2:
                raise ValueError(f"{name} is {value}; allowed: 0 to {MOST_LOG2}")


@dataclass(frozen=True)
class Entry:
    """An entry of the network queue, as `NETWORK_ENTRY` names its fields, with a frame if it is
    one; `None` as the frame if memory could not be written.
    """

    kind: NetworkKind
    connection: int
    sequence: int
    acknowledgment: int
    flags: int
    frame: bytes | None = None


class ReceiveQueue:
    """The network queue, and the slots of its frames.

    All calls are under one lock of the caller. The rings are empty, at number 0.
    """

    def __init__(self, host: NetworkHost, sizes: QueueSizes, mtu: int):
        self._log2, self._slots = sizes.queue_log2, 1 << sizes.slots_log2
        self._slot_octets = slot_octets(mtu)
        places = 1 << self._log2
        octets = places * NETWORK_ENTRY_OCTETS
        self.memory = host.allocate(octets, octets)
        self.memory.write(0, bytes(octets))  # no entry is there
        octets = self._slots * self._slot_octets
        self.slots = host.allocate(octets, octets)
        self._consumer = self._slot_consumer = 0
        self._told = 0, 0

    def _is_written(self, number: int) -> bool:
        place = number % (1 << self._log2) * NETWORK_ENTRY_OCTETS
        phase = 1 ^ (number >> self._log2 & 1)
        last = self.memory.read(place + NETWORK_ENTRY_OCTETS - 1, 1)
        return last[0] & 1 == phase

    @property
    def ready(self) -> bool:
        """Whether an entry is there."""
        return self._is_written(self._consumer)

    @property
    def broken(self) -> bool:
        """Whether the next entry will never be there: those after it are."""
        return not self.ready and self._log2 > 0 and self._is_written(self._consumer + 1)

    def take(self) -> Entry:
        """The next entry, which is there; its places may be used again when `free` was called.

        Raises `TransportError` for a kind that there is not.
        """
        number = self._consumer
        place = number % (1 << self._log2) * NETWORK_ENTRY_OCTETS
        fields = _ENTRY.unpack_from(memoryview(self.memory.read(place, NETWORK_ENTRY_OCTETS)), 0)
        kind, connection, sequence, acknowledgment, flags, octets, slot = (
            int(fields[name])
            for name in (
                *("kind", "connection", "sequence", "acknowledgment", "flags"),
                *("octets", "slot"),
            )
        )
        if kind > max(NetworkKind):
            raise TransportError(
                f"entry {number} of the network queue has kind {kind}; "
                f"allowed: 0 to {max(NetworkKind)}"
            )
        self._consumer = (number + 1) % _NUMBERS
        frame = None
        if kind == NetworkKind.FRAME:
            if octets > self._slot_octets:
                raise TransportError(
                    f"entry {number} of the network queue has a frame of {octets} bytes; "
                    f"allowed: up to {self._slot_octets}"
                )
            at = slot % self._slots * self._slot_octets
            frame = self.slots.read(at, octets) if octets else None
            self._slot_consumer = (slot + 1) % _NUMBERS
        return Entry(NetworkKind(kind), connection, sequence, acknowledgment, flags, frame)

    def free(self, commands: NetworkCommands) -> None:
        """Tell the device what was read since this was called last."""
        consumers = self._consumer, self._slot_consumer
        if consumers != self._told:
            self._told = consumers
            queue, slot = consumers
            commands.write(registers.NETWORK_CONSUMERS, queue_consumer=queue, slot_consumer=slot)

    def close(self) -> None:
        """Take the memory back from the device."""
        self.memory.close()
        self.slots.close()


class SendQueue:
    """Descriptors of frames that are sent, and a buffer for each of them.

    All calls are under one lock of the caller. The ring is empty, at number 0.
    """

    def __init__(self, host: NetworkHost, sizes: QueueSizes, mtu: int):
        self._places = 1 << sizes.frames_log2
        self._buffer_octets = slot_octets(mtu)
        self._most = mtu + ETHERNET_HEADER_OCTETS
        octets = self._places * FRAME_DESCRIPTOR_OCTETS
        self.memory = host.allocate(octets, octets)
        self.buffers = host.allocate(self._places * self._buffer_octets)
        self._producer = self._done = 0

    def send(self, commands: NetworkCommands, frame: bytes) -> bool:
        """Have a frame sent; `False` if there is no place. Raises `ValueError` for its length."""
        if not ETHERNET_HEADER_OCTETS <= len(frame) <= self._most:
            raise ValueError(
                f"frame of {len(frame)} bytes; allowed: {ETHERNET_HEADER_OCTETS} to {self._most}"
            )
        if self._full:
            self._done = commands.read(registers.NETWORK_SENT)["consumer"]
            if self._full:
                return False
        place = self._producer % self._places
        at = place * self._buffer_octets
        self.buffers.write(at, frame)
        address = self.buffers.address + at
        descriptor = _DESCRIPTOR.pack(address=address, octets=len(frame))
        self.memory.write(place * FRAME_DESCRIPTOR_OCTETS, descriptor)
        self._producer = (self._producer + 1) % _NUMBERS
        commands.write(registers.NETWORK_PRODUCER, producer=self._producer)
        return True

    @property
    def _full(self) -> bool:
        return (self._producer - self._done) % _NUMBERS >= self._places

    def close(self) -> None:
        """Take the memory back from the device."""
        self.memory.close()
        self.buffers.close()
