"""Says which connections over RDMA did not end as they should."""

import logging
from collections import Counter
from collections.abc import Iterable

from stagecoach.host_driver.context import Context
from stagecoach.host_driver.errors import describe
from stagecoach.hw.interface.causes import Cause

_LOG = logging.getLogger(__name__)

_ORDERLY = (Cause.LLP_CLOSED, Cause.STOPPED_BY_DRIVER)


def tell_ends(contexts: Iterable[Context]) -> None:
    """Takes the events of the devices, so that they do not pile up.

    Each cause that is no orderly end gets one line, however many connections it ended: clients
    cannot fill the log.
    """
    causes: Counter[Cause] = Counter()
    for context in contexts:
        while context.events:
            event = context.events.pop(0)
            _LOG.debug("%s", event.describe())
            if event.cause not in _ORDERLY:
                causes[event.cause] += 1
    for cause, count in causes.items():
        connections = "a connection" if count == 1 else f"{count} connections"
        _LOG.warning("%s over RDMA failed: %s", connections, describe(cause))
