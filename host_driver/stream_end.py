"""How the TCP connection of a stream ended."""

import enum


class StreamEnd(enum.Enum):
    """How a connection ended, as the TCP that had it says."""

    CLOSED = "closed"
    """In order: by FIN."""
    RESET = "reset"
    """The peer sent a RST that was acceptable (RFC 9293, 3.5.3)."""
    TIMED_OUT = "timed out"
    """R2 retransmissions, or probes, were not answered (RFC 9293, 3.8.3)."""
    ABORTED = "aborted"
    """By this end, with a RST."""

    @property
    def words(self) -> str:
        """What happened, as part of a message.

        >>> StreamEnd.RESET.words
        'the peer reset the connection'
        """
        return _WORDS[self]


_WORDS = {
    StreamEnd.CLOSED: "the peer closed the connection",
    StreamEnd.RESET: "the peer reset the connection",
    StreamEnd.TIMED_OUT: "the connection timed out, the peer acknowledges nothing",
    StreamEnd.ABORTED: "the connection was aborted here",
}
