"""What transports have in common whose devices borrow the kernel's TCP sockets for their LLP."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from stagecoach.host_driver.transport import sockets
from stagecoach.host_driver.transport.base import ByteStream, TransportError
from stagecoach.host_driver.transport.sockets import SocketListener, SocketStream


@dataclass(frozen=True)
class RecordedStream:
    """A stream that was attached while recording: its ends, and its bytes before that."""

    number: int  # `Record.stream`
    connection: int
    local_address: tuple[str, int]
    peer_address: tuple[str, int]
    startup: list[sockets.StartupOctets]


class SocketLender:
    """The part of a `Transport` that makes streams and hands them over.

    Parameters
    ----------
    record: keep the bytes of all streams.
    """

    def __init__(self, record: bool):
        self._record = record
        self._lending = threading.Lock()  # of what follows
        self._attached = 0
        self._streams: list[RecordedStream] = []

    def listen(self, host: str, port: int) -> SocketListener:
        """Open a TCP listener."""
        return SocketListener(host, port, self._record)

    def connect(self, host: str, port: int, timeout: float | None = None) -> SocketStream:
        """Open a TCP stream to a peer."""
        return sockets.connect(host, port, timeout, self._record)

    def _lend(self, connection: int, stream: ByteStream, take: Callable[[int], None]) -> None:
        """Has `take` take the descriptor of a stream; numbers those that it takes from 1."""
        if not isinstance(stream, SocketStream):
            raise TransportError(
                f"stream is a {type(stream).__name__}; allowed: SocketStream, as connect returns"
            )
        with self._lending:
            stream.give_away(take)
            self._attached += 1  # as `Record.stream` counts
            if self._record:
                ends = (stream.local_address, stream.peer_address)
                recorded = RecordedStream(self._attached, connection, *ends, stream.startup)
                self._streams.append(recorded)

    @property
    def recorded_streams(self) -> list[RecordedStream]:
        """Every stream attached so far; needs `record=True`."""
        with self._lending:
            return list(self._streams)

    def close(self) -> None:
        """End the device."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
