"""Events of the connection manager, and the channels that get them."""

import errno
import queue
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakMethod

from stagecoach import host_driver as driver
from stagecoach.pyverbs import cm_enums as ce
from stagecoach.pyverbs.base import PyverbsObject
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError

_LOOK_SECONDS = 0.01
"""How often an event channel looks for peers that connect, and for connections that end."""


@dataclass(frozen=True)
class Event:
    """What a `CMEvent` tells. request: the peer of a CONNECT_REQUEST."""

    kind: int
    private_data: bytes = b""
    request: driver.ConnectionRequest | None = None


Source = Callable[[], Event | None]


class CMEventChannel(PyverbsObject):
    """Gets the events of the ids that are made with it; `CMEvent` takes them, one by one."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        # An id has its channel, so this does not have its ids.
        self._sources: dict[WeakMethod[Source], None] = {}
        self._closed = False

    def __repr__(self) -> str:
        waiting = f"{self._events.qsize()} events, {len(self._sources)} sources"
        return f"<CMEventChannel: {waiting}{', closed' if self._closed else ''}>"

    def put(self, kind: int, private_data: bytes = b"") -> None:
        """An event has come; from any thread."""
        self._events.put(Event(kind, private_data))

    def watch(self, source: Source) -> None:
        """Has `source`, a method, asked for an event now and then, by who waits for one."""
        self._sources[WeakMethod(source)] = None

    def forget(self, source: Source) -> None:
        """Takes back `watch`."""
        self._sources.pop(WeakMethod(source), None)

    def take(self) -> Event:
        """Waits for the next event. Raises `PyverbsRDMAError` if the channel is closed."""
        while not self._closed:
            # Those that were put are older: a connection is established before it ends.
            with suppress(queue.Empty):
                return self._events.get_nowait()
            for reference in list(self._sources):
                if (source := reference()) is None:
                    del self._sources[reference]
                elif (event := source()) is not None:
                    return event
            with suppress(queue.Empty):
                return self._events.get(timeout=_LOOK_SECONDS)
        raise PyverbsRDMAError("CMEvent: the channel is closed", errno.EBADF)

    def close(self) -> None:
        """Ends the channel, also while a `CMEvent` waits."""
        self._closed = True


_EVENT_NAMES = {
    value: name for name, value in vars(ce).items() if name.startswith("RDMA_CM_EVENT_")
}


class CMEvent(PyverbsObject):
    """The next event of a channel; the constructor waits for it.

    Attributes
    ----------
    event_type: RDMA_CM_EVENT_*. private_data: of the peer, with a request, an answer or a refusal.
    """

    def __init__(self, channel: CMEventChannel):
        event = channel.take()
        self.event_type = event.kind
        self.private_data = event.private_data
        self.request = event.request

    def __repr__(self) -> str:
        return f"<CMEvent {self.event_str()}: {len(self.private_data)} bytes of private data>"

    def event_str(self) -> str:
        """The name of its type."""
        return _EVENT_NAMES[self.event_type]

    def ack_cm_event(self) -> None:
        """Nothing waits for it."""

    def close(self) -> None:
        """Nothing is held."""
