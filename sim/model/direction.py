"""The two directions of a connection."""

from enum import Enum


class Direction(Enum):
    """Who sends; the Initiator is the sender of the MPA Request Frame (RFC 5044, 2)."""

    TO_RESPONDER = "initiator to responder"
    TO_INITIATOR = "responder to initiator"

    @property
    def opposite(self) -> "Direction":
        """The other one."""
        if self is Direction.TO_RESPONDER:
            return Direction.TO_INITIATOR
        return Direction.TO_RESPONDER
