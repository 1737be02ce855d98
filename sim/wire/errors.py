"""What goes wrong with a wire."""

from stagecoach.host_driver.errors import StagecoachError


class WireError(StagecoachError):
    """Base of the errors of a wire. The text is one line."""


class WireAddressError(WireError, ValueError):
    """An address that names no wire; the text says what is allowed."""
