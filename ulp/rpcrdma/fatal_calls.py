"""Calls whose chunks ended their connection, and would end the next one (RFC 8166, 4.5.3)."""

from collections import OrderedDict, deque

from stagecoach.host_driver import Terminate
from stagecoach.ulp.rpcrdma.chunks import Segment
from stagecoach.ulp.rpcrdma.header import Header

_REMEMBERED = 1024
_REMOTE_PROTECTION = (0, 1)
"""Layer and type of what a Terminate says of Read Requests, by some peers of Writes too."""
_TAGGED_BUFFER = (1, 1)
"""Those of Writes (RFC 5041, 7.2)."""


class FatalCalls:
    """Of all clients of a listener, the last 1,024."""

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[str, int], None] = OrderedDict()

    def add(self, client: str, xid: int) -> None:
        """A call of the client at an address ended its connection."""
        self._calls[client, xid] = None
        self._calls.move_to_end((client, xid))
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)

    def take(self, client: str, xid: int) -> bool:
        """Whether it did; it is forgotten, so that the XID is that of another call next time."""
        return self._calls.pop((client, xid), self) is None


class Suspects:
    """The calls of one connection that may end it.

    Parameters
    ----------
    fatal: where they are remembered. client: the address.
    """

    def __init__(self, fatal: FatalCalls, client: str):
        self._fatal, self._client = fatal, client
        self._written: deque[tuple[int, frozenset[int]]] = deque(maxlen=_REMEMBERED)
        self._found = False

    def ended_another(self, xid: int) -> bool:
        """Whether a call ended an earlier connection: it is answered with ERR_CHUNK."""
        return self._fatal.take(self._client, xid)

    def write(self, header: Header) -> None:
        """The chunks of a call are written; that is complete before the client complains."""
        lists = header.lists
        segments: list[Segment] = [each for chunk in lists.writes for each in chunk]
        segments += lists.reply or ()
        if segments:
            self._written.append((header.xid, frozenset(each.handle for each in segments)))

    def ended(self, terminate: Terminate | None) -> None:
        """The connection is over; `terminate` says why, if the client did."""
        stag = None if terminate is None or terminate.segment is None else terminate.segment.stag
        if _kind(terminate) not in (_REMOTE_PROTECTION, _TAGGED_BUFFER) or stag is None:
            return
        for xid, handles in reversed(self._written):
            if stag in handles:
                self._blame(xid)
                return

    def not_read(self, header: Header, terminate: Terminate | None) -> None:
        """The chunks of a call could not be read. Of several calls the first one says so first."""
        about_write = terminate is not None and terminate.segment and terminate.segment.tagged
        if _kind(terminate) == _REMOTE_PROTECTION and not about_write:
            self._blame(header.xid)

    def _blame(self, xid: int) -> None:
        if not self._found:
            self._found = True
            self._fatal.add(self._client, xid)


def _kind(terminate: Terminate | None) -> tuple[int, int] | None:
    return None if terminate is None else (terminate.layer, terminate.error_type)
