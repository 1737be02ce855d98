"""Buffers of a program that a device may reach."""

import ctypes
from typing import Any

from stagecoach.host_driver.transport.base import TransportError

Exported = ctypes.Array[ctypes.c_char]
"""The bytes of a buffer, which cannot be resized or closed while this lives."""


def export(buffer: Any) -> Exported:
    """The bytes of a writable, contiguous buffer. Raises `TransportError` for another one."""
    with memoryview(buffer) as view:
        octets, readonly, contiguous = view.nbytes, view.readonly, view.c_contiguous
    if readonly or not contiguous or octets == 0:
        raise TransportError(
            f"buffer of type {type(buffer).__name__} is {octets} bytes, "
            f"{'read-only' if readonly else 'writable'}, "
            f"{'contiguous' if contiguous else 'not contiguous'}; "
            "allowed: at least 1 byte, writable and C-contiguous"
        )
    return (ctypes.c_char * octets).from_buffer(buffer)
