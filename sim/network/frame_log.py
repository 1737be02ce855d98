"""The headers of the last frames of a card."""

from collections import deque

from stagecoach.host_driver.transport.network import HEAD_OCTETS, FrameHead

FRAMES = 64
"""So many are kept."""


class FrameLog:
    """The last `FRAMES` frames that the card gave to the wire or took from it, oldest first.

    Attributes
    ----------
    received: how many it took.
    """

    def __init__(self) -> None:
        self.received = 0
        self._heads: deque[FrameHead] = deque(maxlen=FRAMES)

    def note(self, now_us: int, frame: bytes, *, sent: bool) -> None:
        """A frame passes."""
        self.received += not sent
        self._heads.append(FrameHead(now_us, sent, len(frame), frame[:HEAD_OCTETS]))

    def heads(self) -> list[FrameHead]:
        """Those that are kept."""
        return list(self._heads)
