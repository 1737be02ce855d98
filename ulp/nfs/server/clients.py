"""Who uses the server: its connections, and what each has called."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.oncrpc.transport import Call, ServerTransport

_MOST_PATHS = 4
"""Paths of a client that are remembered."""


@dataclass
class Client:
    """A connection.

    Attributes
    ----------
    number: from 1, of this server. address: of the client. over: `rdma` or `tcp`.
    since: when it began, in seconds since 1970. mounted: paths, of this connection.
    calls: that came. octets_received, octets_sent: of calls and of replies, with the data in them.
    """

    number: int
    address: str
    over: str
    since: float
    calls: int = 0
    octets_received: int = 0
    octets_sent: int = 0
    mounted: list[bytes] = field(default_factory=list)


class Clients:
    """The connections of a server.

    Parameters
    ----------
    tell: is called with a line when a client comes and when it goes.

    Attributes
    ----------
    connected: those that are there, by number.
    """

    def __init__(self, tell: Callable[[str], None] = lambda line: None):
        self._tell = tell
        self._numbers = itertools.count(1)
        self.connected: dict[int, Client] = {}

    @contextmanager
    def served(self, transport: ServerTransport, over: str) -> Iterator["CountedTransport"]:
        """A client is there as long as this lasts; gives what counts its calls."""
        client = Client(next(self._numbers), transport.peer, over, time.time())
        self.connected[client.number] = client
        name = f"client {client.number} ({client.address}, {over})"
        self._tell(f"{name} has connected")
        try:
            yield CountedTransport(transport, client)
        finally:
            del self.connected[client.number]
            self._tell(
                f"{name} has gone after {time.time() - client.since:.1f} s: {client.calls:,} calls "
                f"of {client.octets_received:,} bytes, answered with {client.octets_sent:,}"
            )

    def mounted(self, address: str, path: bytes) -> None:
        """A client at an address has mounted a path."""
        of_address = [each for each in self.connected.values() if each.address == address]
        for client in of_address:
            if path not in client.mounted and len(client.mounted) < _MOST_PATHS:
                client.mounted.append(path)
        shown = path.decode(errors="backslashreplace")
        text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in shown)
        self._tell(f"{address} has mounted {text}")


class CountedTransport:
    """A `ServerTransport` whose calls and replies are counted."""

    def __init__(self, transport: ServerTransport, client: Client):
        self._transport, self._client = transport, client

    @property
    def peer(self) -> str:
        """The address of the client."""
        return self._transport.peer

    async def receive(self) -> Call:
        """The next call."""
        call = await self._transport.receive()
        self._client.calls += 1
        self._client.octets_received += _octets(call.message)
        return _CountedCall(call, self._client)

    async def close(self) -> None:
        """Closes the connection. Repeatable."""
        await self._transport.close()


class _CountedCall:
    """A `Call` whose reply is counted."""

    def __init__(self, call: Call, client: Client):
        self._call, self._client = call, client

    @property
    def message(self) -> Message:
        return self._call.message

    @property
    def bulk_room(self) -> tuple[int, ...]:
        return self._call.bulk_room

    async def reserve(self, octets: int) -> None:
        await self._call.reserve(octets)

    def buffer(self, octets: int) -> memoryview:
        return self._call.buffer(octets)

    async def reply(self, message: Message) -> None:
        octets = _octets(message)
        await self._call.reply(message)
        self._client.octets_sent += octets

    async def drop(self) -> None:
        await self._call.drop()


def _octets(message: Message) -> int:
    return len(message.stream) + sum(len(bulk.data) for bulk in message.bulks)
