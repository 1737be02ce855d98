"""What goes wrong between a memory server and its client."""

from stagecoach.host_driver import StagecoachError


class MemoryServerError(StagecoachError):
    """The connection to a memory server ended, or its answer is late."""


class NotAMemoryServer(MemoryServerError):
    """What answers there is something else, or another version."""


class OutsideRegion(MemoryServerError):
    """The server's memory has no such bytes."""
