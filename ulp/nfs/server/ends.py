"""Says which connections over RDMA did not end as they should."""

import logging
from collections import Counter
from collections.abc import Iterable

from stagecoach.host_driver import Cause, Context, StreamEnd

_LOG = logging.getLogger(__name__)

_ORDERLY = (Cause.LLP_CLOSED, Cause.STOPPED_BY_DRIVER)
_LOST = (StreamEnd.RESET, StreamEnd.TIMED_OUT)


def tell_ends(contexts: Iterable[Context]) -> None:
    """Takes the events of the devices, so that they do not pile up.

    Each cause that is no orderly end gets one line, however many connections it ended: clients
    cannot fill the log.
    """
    reasons: Counter[str] = Counter()
    for context in contexts:
        while context.events:
            event = context.events.pop(0)
            _LOG.debug("%s", event.describe())
            if event.cause not in _ORDERLY or event.stream_end in _LOST:
                reasons[event.reason] += 1
    for reason, count in reasons.items():
        connections = "a connection" if count == 1 else f"{count} connections"
        _LOG.warning("%s over RDMA failed: %s", connections, reason)
