"""One end of the host link: numbers messages, repeats them, and takes them in order.

It makes no input or output of its own: bytes and the time are handed to it. The device is the
other end; two of these also work against each other.
"""

from collections import deque
from dataclasses import dataclass

from stagecoach.host_driver.hostlink.frames import Deframer, Frame
from stagecoach.hw.interface.hostlink import FIRST_MESSAGE, FLAG, WINDOW, Kind

RETRY_SECONDS = 0.2
"""Without an acknowledgement, until everything is sent again; twice as long after each time."""

LONGEST_RETRY = 8
"""Times that of the first one."""

GIVE_UP_SECONDS = 5.0
"""Without an acknowledgement, until the link counts as lost."""

Message = tuple[int, bytes]
"""Kind and payload."""


@dataclass
class Counters:
    """What happened on the line."""

    octets_sent: int = 0
    octets_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    broken: int = 0
    out_of_order: int = 0
    rejects_sent: int = 0
    rejects_received: int = 0
    sent_again: int = 0


class Endpoint:
    """One end, from the beginning of a session on.

    Parameters
    ----------
    retry_seconds, give_up_seconds: see above. counters: to go on with.
    window: messages that may be sent and not acknowledged.
    """

    def __init__(
        self,
        retry_seconds: float = RETRY_SECONDS,
        give_up_seconds: float = GIVE_UP_SECONDS,
        counters: Counters | None = None,
        window: int = WINDOW,
    ):
        self._retry_seconds = retry_seconds
        self._give_up_seconds = give_up_seconds
        self.counters = Counters() if counters is None else counters
        self._window = window
        self._deframer = Deframer()
        self._waiting: deque[Message] = deque()  # not sent yet
        self._sent: deque[Message] = deque()  # and not acknowledged
        self._oldest = 0  # number of the first of them
        self._unsent = 0  # of them, to be sent again
        self._expected = 0
        self._acknowledge = False
        self._reject = False
        self._rejected = False
        self._progress = 0.0  # when something was acknowledged, or was sent with nothing before it
        self._repeated = 0.0
        self._patience = 1

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Queues a message; `output` has it."""
        self._waiting.append((kind, payload))

    @property
    def idle(self) -> bool:
        """Whether everything that was queued is acknowledged."""
        return not self._waiting and not self._sent

    def input(self, octets: bytes, now: float) -> list[Message]:
        """Takes bytes of the line; returns the messages that came, in order."""
        self.counters.octets_received += len(octets)
        messages: list[Message] = []
        for frame in self._deframer.take(octets):
            if frame is None:
                self.counters.broken += 1
                self._wish_again()
                continue
            self._acknowledged(frame.acknowledge, now)
            if frame.kind == Kind.REJECT:
                self.counters.rejects_received += 1
                self._repeat(now)
            elif frame.kind >= FIRST_MESSAGE:
                self._take(frame, messages)
        return messages

    def _take(self, frame: Frame, messages: list[Message]) -> None:
        ahead = (frame.number - self._expected) & 0xFF
        if ahead == 0:
            self._expected = (self._expected + 1) & 0xFF
            self._rejected = False
            self.counters.messages_received += 1
            messages.append((frame.kind, frame.payload))
        else:
            self.counters.out_of_order += 1
            if ahead < 0x80:
                self._wish_again()
        self._acknowledge = True

    def _wish_again(self) -> None:
        if not self._rejected:
            self._rejected = self._reject = True

    def _acknowledged(self, number: int, now: float) -> None:
        count = (number - self._oldest) & 0xFF
        if 0 < count <= len(self._sent):
            for _ in range(count):
                self._sent.popleft()
            self._unsent = min(self._unsent, len(self._sent))
            self._oldest = number
            self._progress = self._repeated = now
            self._patience = 1

    def _repeat(self, now: float) -> None:
        self._unsent = len(self._sent)
        self._repeated = now

    def output(self, now: float) -> bytes:
        """Bytes for the line, which are due now."""
        if self._sent and now - self._repeated >= self._patience * self._retry_seconds:
            self._repeat(now)
            self._patience = min(2 * self._patience, LONGEST_RETRY)
        octets: list[bytes] = []
        if self._reject:
            self.counters.rejects_sent += 1
            octets.append(Frame(Kind.REJECT, 0, self._expected).pack())
            self._reject = self._acknowledge = False
        while self._unsent:
            position = len(self._sent) - self._unsent
            octets.append(self._pack(position))
            self.counters.sent_again += 1
            self._unsent -= 1
        while self._waiting and len(self._sent) < self._window:
            if not self._sent:
                self._progress = self._repeated = now
            self._sent.append(self._waiting.popleft())
            octets.append(self._pack(len(self._sent) - 1))
            self.counters.messages_sent += 1
        if self._acknowledge:
            octets.append(Frame(Kind.ACKNOWLEDGE, 0, self._expected).pack())
            self._acknowledge = False
        if not octets:
            return b""
        line = bytes([FLAG]) + b"".join(octets)
        self.counters.octets_sent += len(line)
        return line

    def _pack(self, position: int) -> bytes:
        kind, payload = self._sent[position]
        self._acknowledge = False
        return Frame(kind, (self._oldest + position) & 0xFF, self._expected, payload).pack()

    def deadline(self) -> float | None:
        """When `output` has something to say without being asked; `None`: never."""
        if not self._sent:
            return None
        return self._repeated + self._patience * self._retry_seconds

    def is_lost(self, now: float) -> bool:
        """Whether the other end has acknowledged nothing for too long."""
        return bool(self._sent) and now - self._progress >= self._give_up_seconds
