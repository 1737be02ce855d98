"""Notes by which the client asks the server to take part: numbers of 64 bits.

Others say how many receives are to be posted on each QP, and how many messages have left that took
receives before. Those may come later than the note, which has a connection of its own. All are sent
back when the server is ready.
"""

from dataclasses import dataclass
from enum import IntEnum

END = (1 << 64) - 1
"""The client's last note."""

_KIND_AT = 62
_MESSAGES_AT = 32


class Part(IntEnum):
    """What the server does."""

    PINGPONG = 1  # it answers each message with one of the same size
    BIDIRECTIONAL = 2  # it sends as many messages as the client, at the same time


@dataclass(frozen=True)
class Asked:
    """A part, with how many messages of which size, in bytes."""

    part: Part
    messages: int
    size: int

    @property
    def note(self) -> int:
        """The note that asks for it."""
        return self.part << _KIND_AT | self.messages << _MESSAGES_AT | self.size


@dataclass(frozen=True)
class Receives:
    """To be posted on each QP: `posted`, when so many messages of all QPs have come: `taken`."""

    posted: int
    taken: int

    @property
    def note(self) -> int:
        """The note that asks for it."""
        return self.taken << _MESSAGES_AT | self.posted


def parse_receives(note: int) -> Receives:
    """What a note asks for that asks for no part."""
    return Receives(note & ((1 << _MESSAGES_AT) - 1), note >> _MESSAGES_AT)


def parse_note(note: int) -> Asked | None:
    """What a note asks for; None for a number of receives."""
    kind = note >> _KIND_AT
    if kind not in list(Part):
        return None
    rest = note & ((1 << _KIND_AT) - 1)
    return Asked(Part(kind), rest >> _MESSAGES_AT, rest & ((1 << _MESSAGES_AT) - 1))
