"""What goes wrong with the other side."""

from stagecoach.host_driver import StagecoachError


class PerftestError(StagecoachError):
    """The other side does not do what perftest does, or not the same test."""


class WrongPerftestVersion(PerftestError):
    """The other side is another version of perftest."""


class PeerClosed(PerftestError):
    """The other side closed a connection, or it was lost."""
