"""Keep-alive probes (RFC 9293, 3.8.4): off unless they are asked for."""

from stagecoach.sim.model.tcp.state import Settings


class KeepAlive:
    """When a connection that is idle has to probe its peer; times in microseconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._heard = 0
        self._probes = 0

    def heard(self, now: int) -> None:
        """A segment of the peer arrived."""
        self._heard, self._probes = now, 0

    @property
    def at(self) -> int | None:
        """When the next probe is due, or the end; None if it is off."""
        if self._settings.keep_alive is None:
            return None
        idle = self._settings.keep_alive + self._probes * self._settings.keep_alive_interval
        return self._heard + idle

    def probe(self) -> bool:
        """A probe is due; False if enough of them went unanswered."""
        self._probes += 1
        return self._probes <= self._settings.keep_alive_probes
