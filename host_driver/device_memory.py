"""Buffers in a device's own memory, as DM of verbs (`ibv_alloc_dm`)."""

from collections.abc import Iterator
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.dropped import Droppable, Open
from stagecoach.host_driver.errors import require_integer, require_type
from stagecoach.host_driver.region_buffer import require_part, view_of
from stagecoach.host_driver.transport.base import Transport
from stagecoach.host_driver.transport.memory import MemoryTransport
from stagecoach.hw.interface.device_memory import DEVICE_MEMORY_BASE

_WHAT = "device memory"

_PIECE = 1 << 12


class DeviceMemory(Droppable):
    """A buffer in the device's own memory, such as the DDR3 of a board.

    `MR(pd, memory, access)` makes a region of it, which the device reads and writes without the
    host. A program that sets it up reads and writes it through the transport, which may be slow: in
    pieces of 4 KiB, between which other threads have their turn with the context. What a peer does
    meanwhile comes in between; a `write` to a word at which an atomic is under way may be lost.

    Parameters
    ----------
    context: the open device; `context.attr.max_dm_size` is the size of its memory.
    octets: bytes of the buffer. It begins at a multiple of 64, and holds what was there before.

    Attributes
    ----------
    address: of the first byte, for the device. length: in bytes.

    Raises `NoDeviceMemory` if the device has none, `DeviceMemoryExhausted` if it has no gap of so
    many bytes, `ValueError` for less than one.

    With an open `context` of a device without memory of its own:

    >>> DeviceMemory(context, 4096)
    Traceback (most recent call last):
        ...
    stagecoach.host_driver.errors.NoDeviceMemory: the device has no memory of its own; allowed: a
    board with memory, or a simulated device with memory=256MiB
    """

    def __init__(self, context: Context, octets: int):
        require_type("context", context, Context)
        require_integer("octets", octets)
        if octets < 1:
            raise ValueError(f"device memory of {octets} bytes; allowed: 1 or more")
        self.context = context
        self.length = int(octets)
        self.children: WeakKeyDictionary[Open, None] = WeakKeyDictionary()
        """Regions that are open."""
        with context.lock:
            context._require_open()
            self._offset = context.memory_allocator.take(self.length)
            context._adopt(self)
            self._opened(context)
        self._transport = cast(MemoryTransport, context.transport)

    @property
    def address(self) -> int:
        """Where the device finds the first byte."""
        return DEVICE_MEMORY_BASE + self._offset

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<DeviceMemory: {self.length} bytes at 0x{self.address:x}{state}>"

    def _require_open(self) -> None:
        """Raises `ValueError` if it is closed: its bytes may be those of another one."""
        if self._closed:
            raise ValueError(f"{self!r}; allowed: one that is open")

    def read(self, offset: int, octets: int) -> bytes:
        """A copy of so many bytes from `offset` on.

        Raises `ValueError` if they are not all in the buffer, or it is closed.
        """
        require_part(offset, octets, self.length, _WHAT)
        found = bytearray()
        for at, count in _pieces(octets):
            with self.context.lock:
                self._require_open()
                found += self._transport.read_memory(self._offset + offset + at, count)
        return bytes(found)

    def write(self, offset: int, data: Any) -> None:
        """Copies `data`, any C-contiguous buffer, to `offset`. Raises as `read` does."""
        with view_of(data) as source:
            require_part(offset, source.nbytes, self.length, _WHAT)
            for at, count in _pieces(source.nbytes):
                with self.context.lock:
                    self._require_open()
                    piece = source[at : at + count]
                    self._transport.write_memory(self._offset + offset + at, piece)

    def close(self) -> None:
        """Frees it; closes its regions before."""
        with self.context.lock:
            if self._closed:
                return
            for region in list(self.children):
                region.close()
            self._closed = True
            self.context._forget(self)
            self.context.memory_allocator.give(self._offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pieces(octets: int) -> Iterator[tuple[int, int]]:
    """Places and lengths of what is moved at once; of nothing an empty one."""
    for at in range(0, max(octets, 1), _PIECE):
        yield at, min(_PIECE, octets - at)


class RegisteredMemory:
    """What a region needs of a `DeviceMemory`, as of a `HostBuffer`.

    Attributes
    ----------
    buf: the memory. length: in bytes.
    """

    def __init__(self, memory: DeviceMemory):
        self.buf = memory
        self.length = memory.length

    def map(self, transport: Transport) -> int:
        """Its address. Raises `ValueError` if it is closed, or that of another device."""
        self.buf._require_open()
        if self.buf.context.transport is not transport:
            raise ValueError(f"{self.buf!r} of another device; allowed: one of the region's PD")
        return self.buf.address

    def unmap(self, transport: Transport, address: int) -> None:
        """Nothing: the device always reaches its memory."""

    def read(self, offset: int, octets: int) -> bytes:
        """A copy of so many bytes."""
        return self.buf.read(offset, octets)

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """Copies bytes there."""
        self.buf.write(offset, data)
