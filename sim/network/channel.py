"""The socket between the engine and the LLP port of a compiled device."""

import socket
from collections import deque
from collections.abc import Iterator

from stagecoach.sim.llp_messages import HEADER, LlpMessage

_LONGEST = 1 << 18


class Channel:
    """The engine's end. Nothing here waits.

    Attributes
    ----------
    posted: whether a message was sent since this was last set to `False`.
    """

    def __init__(self) -> None:
        self._socket, self._device_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._waiting: deque[bytes] = deque()
        self.posted = False

    def give_away(self) -> int:
        """The descriptor of the device's end, which belongs to the caller."""
        return self._device_end.detach()

    def fileno(self) -> int:
        """What is readable when a message is there."""
        return self._socket.fileno()

    @property
    def full(self) -> bool:
        """Whether messages wait until the device has taken others."""
        return bool(self._waiting)

    def post(self, kind: LlpMessage, lane: int, value: int = 0, octets: bytes = b"") -> None:
        """Send a message; in order, when there is room."""
        self._waiting.append(HEADER.pack(kind, lane, value) + octets)
        self.posted = True
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        try:
            while self._waiting:
                self._socket.send(self._waiting[0])
                self._waiting.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the device has ended; its callers are told
            self._waiting.clear()

    def messages(self) -> Iterator[tuple[LlpMessage, int, int, bytes]]:
        """All messages that have come: kind, LLP connection, value, octets."""
        while True:
            try:
                message = self._socket.recv(_LONGEST)
            except (BlockingIOError, ConnectionError):
                return
            if not message:
                return
            kind, lane, value = HEADER.unpack_from(message)
            yield LlpMessage(kind), lane, value, message[HEADER.size :]

    def close(self) -> None:
        """Closes it; twice is allowed."""
        self._socket.close()
        self._device_end.close()
