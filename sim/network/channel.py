"""The socket between a compiled device and what stands behind its LLP port or its Ethernet port."""

import socket
from collections import deque
from collections.abc import Iterator

from stagecoach.sim.llp_messages import HEADER, LlpMessage

_LONGEST = 1 << 18


class Channel:
    """The end that is not the device's; messages keep their bounds. Nothing here waits.

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

    def send(self, message: bytes) -> None:
        """Send a message; in order, when there is room."""
        self._waiting.append(message)
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

    def receive(self) -> bytes | None:
        """The next message that has come, `None` if there is none."""
        try:
            return self._socket.recv(_LONGEST) or None
        except (BlockingIOError, ConnectionError):
            return None

    def close(self) -> None:
        """Closes it; twice is allowed."""
        self._socket.close()
        self._device_end.close()


class LlpChannel(Channel):
    """The engine's end of a channel to an LLP port."""

    def post(self, kind: LlpMessage, lane: int, value: int = 0, octets: bytes = b"") -> None:
        """Send a message of an LLP connection."""
        self.send(HEADER.pack(kind, lane, value) + octets)

    def messages(self) -> Iterator[tuple[LlpMessage, int, int, bytes]]:
        """All messages that have come: kind, LLP connection, value, bytes."""
        while (message := self.receive()) is not None:
            kind, lane, value = HEADER.unpack_from(message)
            yield LlpMessage(kind), lane, value, message[HEADER.size :]
