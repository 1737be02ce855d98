"""What goes wrong with a wire."""

from stagecoach.host_driver.errors import StagecoachError


class WireError(StagecoachError):
    """Base of the errors of a wire. The text is one line."""


class WireAddressError(WireError, ValueError):
    """An address that names no wire; the text says what is allowed."""


class NoSuchWire(WireError):
    """Nothing is there of that name or path."""


class WrongWire(WireError):
    """What is there of that name or path is something else."""


class WireNotPermitted(WireError):
    """The user may not open or change it."""


class WireInUse(WireError):
    """Another program has it."""


class NetworkInUse(WireError):
    """Another interface of this machine has addresses of that network."""


class WireDown(WireError):
    """It is there, but carries no frames until it is set up."""


class WireTooNarrow(WireError):
    """Its MTU is smaller than the one that was asked for."""


class PeerGone(WireError):
    """The other end was closed."""


class FramingError(WireError):
    """The peer announced a frame of an absurd length, and was disconnected."""
