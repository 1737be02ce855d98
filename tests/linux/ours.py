"""What a case asks of the end under test. Names and errors are those of the driver's streams.

Each call that waits gives up after `PATIENCE` seconds, with `TransportTimeout`.
"""

from typing import Protocol

PATIENCE = 120.0


class Stream(Protocol):
    """One connection."""

    @property
    def maximum_segment_size(self) -> int:
        """Octets of data in the longest segment now."""
        ...

    def sendall(self, octets: bytes) -> None:
        """Send all octets; waits until there is room for the last one."""
        ...

    def receive_exactly(self, count: int) -> bytes:
        """The next `count` octets; takes nothing beyond them.

        Raises `StreamClosed` if the peer closed it before, `ConnectionReset`.
        """
        ...

    def shutdown(self) -> None:
        """Send FIN after all that was sent; the peer may go on."""
        ...

    def abort(self) -> None:
        """Send RST and forget the connection."""
        ...

    def close(self) -> None:
        """Send FIN; nobody reads any more."""
        ...

    def wait_end(self) -> None:
        """Wait until both ends have closed it. Raises `ConnectionReset` if that is how it ends."""
        ...


class Listener(Protocol):
    """A port that takes connections."""

    def accept(self) -> Stream:
        """The next connection."""
        ...


class Interface(Protocol):
    """An interface with its address."""

    @property
    def half_closes(self) -> bool:
        """Whether a stream still receives after `shutdown`."""
        ...

    def listen(self, port: int) -> Listener:
        """Take connections at a port."""
        ...

    def open(self, host: str, port: int, local_port: int | None = None) -> Stream:
        """A connection to a peer, when it is established. Raises `ConnectionRefused`."""
        ...

    def close(self) -> None:
        """End all of it, the capture too; twice is allowed."""
        ...


class Opener(Protocol):
    """Makes an interface."""

    def __call__(self, address: str, window: int | None) -> Interface:
        """Of an address as `sim.wire.address` has it; the wire is up when this returns.

        window: octets of the receive buffer of each connection, if the default will not do; the
        implementation takes the next that it can have.
        """
        ...
