"""What the driver of a TCP engine needs of a NIC at a serial port."""

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from stagecoach.host_driver.transport.base import TransportError
from stagecoach.host_driver.transport.network import FrameHead, Link, SharedMemory


class BoardLink(Protocol):
    """Registers, interrupt and board memory of a device at a link."""

    def read_register(self, address: int) -> int:
        """Return a 32-bit register."""

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register."""

    def read_board(self, address: int, octets: int) -> bytes:
        """Bytes of the board's memory."""

    def write_board(self, address: int, data: bytes) -> None:
        """Write bytes of the board's memory."""

    def wait_network(self, seconds: float | None) -> None:
        """Wait for the interrupt of the network, `wake_network`, or so long."""

    def wake_network(self) -> None:
        """End a `wait_network`."""


class BoardPiece:
    """A `SharedMemory` of the board.

    Attributes
    ----------
    address: of its first byte.
    """

    def __init__(self, link: BoardLink, address: int):
        self._link = link
        self.address = address

    def read(self, at: int, octets: int) -> bytes:
        """The bytes at a place."""
        return self._link.read_board(self.address + at, octets)

    def write(self, at: int, data: bytes) -> None:
        """Put bytes at a place."""
        self._link.write_board(self.address + at, data)

    def close(self) -> None:
        """Nothing: a session gives its memory back as a whole, at its end."""


class LinkHost:
    """A `NetworkHost`. The time is the wall's.

    Parameters
    ----------
    link: to the board. octets: of the board's memory, which is given away from its end on.

    Attributes
    ----------
    free: bytes from its beginning on that are not given away.
    """

    def __init__(self, link: BoardLink, octets: int):
        self._link = link
        self._octets = octets
        self.free = octets
        self._lock = threading.Lock()  # of `free`

    def allocate(self, octets: int, alignment: int = 8) -> SharedMemory:
        """Memory of the board. Raises `TransportError` if it has not so much any more."""
        with self._lock:
            address = (self.free - octets) // alignment * alignment
            if address < 0:
                raise TransportError(
                    f"the board's memory of {self._octets} bytes has no {octets} for the network "
                    f"beside the {self._octets - self.free} that are in use"
                )
            self.free = address
        return BoardPiece(self._link, address)

    def read_register(self, address: int) -> int:
        """Return a 32-bit register."""
        return self._link.read_register(address)

    def write_register(self, address: int, value: int) -> None:
        """Write a 32-bit register."""
        self._link.write_register(address, value)

    def now_us(self) -> int:
        """The time."""
        return time.monotonic_ns() // 1000

    def wait_network(self, until_us: int | None) -> None:
        """Wait for the interrupt of the network, `wake_network`, or a time."""
        seconds = None if until_us is None else max(0, until_us - self.now_us()) / 1e6
        self._link.wait_network(seconds)

    def wake_network(self) -> None:
        """End a `wait_network`."""
        self._link.wake_network()

    def pause(self) -> AbstractContextManager[None]:
        """The wall's time goes on anyway."""
        return nullcontext()

    def new_lock(self) -> Any:
        """The wall's time goes on anyway."""
        return threading.RLock()

    def frame_heads(self) -> list[FrameHead]:
        """None: frames of connections do not come to the host."""
        return []

    def link(self) -> Link:
        """The board does not tell of its wire."""
        return Link("up", {})
