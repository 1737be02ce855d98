"""What the driver needs of a device that has memory of its own."""

from typing import Protocol, runtime_checkable

from stagecoach.host_driver.transport.base import Transport


@runtime_checkable
class MemoryTransport(Transport, Protocol):
    """A `Transport` that reaches the device's own memory.

    The device has it at `hw.interface.device_memory.DEVICE_MEMORY_BASE`; offsets here are from
    there on. The driver names none after the end.
    """

    @property
    def memory_octets(self) -> int:
        """Bytes of that memory; 0 if the device has none, or the transport does not reach it."""
        ...

    def read_memory(self, offset: int, octets: int) -> bytes:
        """A copy of so many bytes."""
        ...

    def write_memory(self, offset: int, data: memoryview) -> None:
        """Write bytes; returns when the device finds them there."""
        ...


def memory_of(transport: Transport) -> int:
    """Bytes of memory that a transport reaches: none with one that knows nothing of it."""
    octets: int = getattr(transport, "memory_octets", 0)
    return octets
