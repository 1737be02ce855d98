"""Messages that clients can cause, in bounded number."""

import logging
import time

SECONDS = 10.0
"""Between two messages of a kind."""


class Complaints:
    """A log in which a kind of message comes once in some seconds, with how many were left out.

    Parameters
    ----------
    logger: where they go, one line each. seconds: between two of a kind.
    """

    def __init__(self, logger: logging.Logger, seconds: float = SECONDS):
        self._logger, self._seconds = logger, seconds
        self._kinds: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str) -> None:
        """A message of a kind; `kind` is none of the client's choice."""
        omitted = self._due(kind)
        if omitted is not None:
            self._logger.warning("%s%s", message, omitted)

    def error(self, kind: str, message: str, error: BaseException) -> None:
        """The same for a fault of the server, with its traceback."""
        omitted = self._due(kind)
        if omitted is not None:
            self._logger.error("%s%s", message, omitted, exc_info=error)

    def _due(self, kind: str) -> str | None:
        """What is said of those left out, or `None` if this one is left out as well."""
        now = time.monotonic()
        last, omitted = self._kinds.get(kind, (None, 0))
        if last is not None and now - last < self._seconds:
            self._kinds[kind] = (last, omitted + 1)
            return None
        self._kinds[kind] = (now, 0)
        return f" ({omitted} more like it before)" if omitted else ""
