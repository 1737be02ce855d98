"""Keep-alive of a connection: off unless it is asked for (RFC 9293, 3.8.4)."""

import enum

from stagecoach.host_driver.network.settings import SECOND_US, idle_us
from stagecoach.host_driver.transport.network import ConnectionInfo

TWO_HOURS = 7200.0
"""Seconds, unless the caller says so (MUST-28)."""

PROBES = 9
"""So many without an answer end a connection: one alone shows nothing (MUST-29)."""

INTERVAL_US = 75 * SECOND_US
"""At most between two probes; both as Linux has them."""


class Step(enum.Enum):
    """What has to be done."""

    WAIT = "wait"
    PROBE = "probe"
    GIVE_UP = "give up"


class KeepAlive:
    """Of one connection, from `now_us` on.

    It sees by the engine's count of segments whether the peer was heard, and looks once in each
    idle time. So the first probe leaves one to two idle times after the last segment.

    Parameters
    ----------
    idle: seconds without a segment before a probe. Raises `NetworkSettingsError`.

    Attributes
    ----------
    next_us: when `look` has something to do.
    """

    def __init__(self, idle: float, now_us: int):
        self._idle_us = idle_us(idle)
        self._heard: int | None = None
        self._probes = 0
        self.next_us = now_us

    def look(self, info: ConnectionInfo, now_us: int) -> Step:
        """How the connection does, at `next_us` or later."""
        # What is outstanding is retransmitted, and that ends at R2 (MUST-26).
        outstanding = info.in_flight or info.queued
        if outstanding or info.segments_received != self._heard:
            self._heard = info.segments_received
            self._probes = 0
            self.next_us = now_us + self._idle_us
            return Step.WAIT
        if self._probes == PROBES:
            return Step.GIVE_UP
        self._probes += 1
        self.next_us = now_us + min(self._idle_us, INTERVAL_US)
        return Step.PROBE
