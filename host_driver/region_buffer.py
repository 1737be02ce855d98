"""Buffers of a program that memory regions are made of."""

import mmap
from numbers import Integral
from typing import Any

from stagecoach.host_driver.transport.base import Transport

_BUFFER = "a writable, C-contiguous buffer of at least one byte"


def view_of(data: Any) -> memoryview:
    """A view of what is to be written, as bytes. Raises `TypeError` for what has none."""
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise TypeError(f"data is {data!r}; allowed: a C-contiguous buffer, as bytes are") from None


def require_part(offset: int, length: int, whole: int, what: str = "a region") -> None:
    """Raises `ValueError` unless so many bytes from `offset` on are in what has `whole` of them."""
    if not (0 <= offset and 0 <= length <= whole - offset):
        raise ValueError(
            f"{length} bytes at offset {offset} of {what} of {whole}; allowed: offset "
            f"and length from 0 on, with a sum up to {whole}"
        )


class HostBuffer:
    """Memory of the program that a device reads and writes itself.

    Parameters
    ----------
    buffer: any writable, contiguous buffer, or a number of bytes, of any type, but no bool: new
        memory then.

    Attributes
    ----------
    buf: the buffer. length: in bytes.

    Raises `TypeError` for another buffer, `ValueError` for a number below 1.
    """

    def __init__(self, buffer: Any):
        if not isinstance(buffer, bool) and isinstance(buffer, Integral):
            if buffer < 1:
                raise ValueError(f"a region of {buffer} bytes; allowed: 1 or more")
            buffer = mmap.mmap(-1, int(buffer))
        try:
            view = memoryview(buffer)
        except TypeError:
            raise TypeError(
                f"buffer is {buffer!r}; allowed: {_BUFFER}, or a number of bytes"
            ) from None
        with view:
            if "O" in view.format:
                raise TypeError("cannot register Python objects; allowed: a buffer of plain bytes")
            if view.readonly or not view.c_contiguous or view.nbytes == 0:
                raise TypeError(
                    f"cannot register {type(buffer).__name__}: read-only {view.readonly}, "
                    f"C-contiguous {view.c_contiguous}, {view.nbytes} bytes; allowed: {_BUFFER}"
                )
            self.length = view.nbytes
        self.buf = buffer

    def map(self, transport: Transport) -> int:
        """Lets the device reach it; returns its address there."""
        return transport.map_memory(self.buf)

    def unmap(self, transport: Transport, address: int) -> None:
        """Takes it back."""
        transport.unmap_memory(address)

    def _part(self, offset: int, octets: int) -> memoryview:
        require_part(offset, octets, self.length)
        with memoryview(self.buf) as view, view.cast("B") as whole:
            return whole[offset : offset + octets]

    def read(self, offset: int, octets: int) -> bytes:
        """A copy of so many bytes."""
        with self._part(offset, octets) as part:
            return bytes(part)

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """Copies bytes there."""
        with self._part(offset, len(data)) as part:
            part[:] = data
