"""The two ends of rping: the client has pings, the server reads them and writes them back."""

import itertools
import math
import sys
from dataclasses import dataclass, field

from stagecoach.host_driver import AccessFlags, Context, StartupOptions, WROpcode, connect
from stagecoach.ulp.rping.link import PATIENCE, Link, PeerClosed, RpingError
from stagecoach.ulp.rping.messages import GO_AHEAD, Advertisement, ping_text, text_of

DEFAULT_PORT = 7174
DEFAULT_SIZE = 64
READS = 1
"""IRD and ORD: one Read is under way at a time."""

DEFAULT_IDLE = 600.0
"""Seconds that a client may be silent."""


@dataclass(frozen=True)
class Settings:
    """The options of rping, named as there.

    count: pings until the client ends; 0 for ever. persistent: the server serves clients side by
    side, and does not end. address: of the server; empty for all local ones.
    startup: what this end asks for in MPA startup. idle: seconds for which a client may be silent
    before the server ends its connection; 0 for ever. In a ping it is no more than `PATIENCE`.
    """

    address: str = ""
    port: int = DEFAULT_PORT
    size: int = DEFAULT_SIZE
    count: int = 0
    verbose: bool = False
    validate: bool = False
    debug: bool = False
    persistent: bool = False
    startup: StartupOptions = field(default_factory=StartupOptions)
    idle: float = DEFAULT_IDLE

    @property
    def patience(self) -> float:
        """Seconds that a client of the server may take for its part of a ping."""
        return min(self.idle or math.inf, PATIENCE)

    def tell(self, text: str) -> None:
        """A line for `verbose`."""
        if self.verbose:
            print(text, flush=True)

    def trace(self, text: str) -> None:
        """A line for `debug`, on standard error."""
        if self.debug:
            print(f"rping: {text}", file=sys.stderr, flush=True)


class Client:
    """Has the server read every ping and write it back.

    Parameters
    ----------
    link: a connected one. settings: of these `size`, `count`, `verbose`, `validate`.
    """

    def __init__(self, link: Link, settings: Settings):
        self._link = link
        self._settings = settings
        self._start, self._echo = bytearray(settings.size), bytearray(settings.size)
        self._start_mr = link.register(self._start, AccessFlags.REMOTE_READ)
        self._echo_mr = link.register(self._echo, AccessFlags.REMOTE_WRITE)

    def run(self) -> None:
        """All pings. Raises `RpingError` at the first one that fails."""
        count = self._settings.count
        for number in range(count) if count else itertools.count():
            self._ping(number)

    def _ping(self, number: int) -> None:
        settings, link, size = self._settings, self._link, self._settings.size
        self._start[:] = ping_text(number, size)
        link.send(Advertisement(self._start_mr.addr, self._start_mr.rkey, size).pack())
        link.receive(f"the go-ahead after the Read of ping {number}")
        link.send(Advertisement(self._echo_mr.addr, self._echo_mr.rkey, size).pack())
        link.receive(f"the go-ahead after the Write of ping {number}")
        if settings.validate:
            self._check(number)
        settings.tell(f"ping data: {text_of(self._echo)}")

    def _check(self, number: int) -> None:
        for at, (sent, came) in enumerate(zip(self._start, self._echo, strict=True)):
            if sent != came:
                raise RpingError(
                    f"data mismatch in ping {number}: byte {at} came back as 0x{came:02x}, "
                    f"sent: 0x{sent:02x}"
                )


class Server:
    """Reads what the client has and writes it back, until the client closes.

    Parameters
    ----------
    link: a connected one. settings: of these `size`, `idle` and `verbose`.
    """

    def __init__(self, link: Link, settings: Settings):
        self._link = link
        self._settings = settings
        self._buffer = bytearray(settings.size)
        self._mr = link.register(self._buffer, AccessFlags.LOCAL_WRITE)

    def run(self) -> int:
        """Serves until the client closes between two pings; returns their number.

        Raises `PeerClosed` if it closes in the middle of one, `PeerLost` if the connection is reset
        or times out, `PeerSilent` if it does nothing.
        """
        number = 0
        while True:
            try:
                octets = self._link.receive("an advertisement", self._settings.idle or math.inf)
            except PeerClosed:
                return number
            self._serve(number, Advertisement.unpack(octets))
            number += 1

    def _serve(self, number: int, source: Advertisement) -> None:
        link = self._link
        if source.length > len(self._buffer):
            raise RpingError(
                f"the client's ping has {source.length} bytes; allowed: 0 to "
                f"{len(self._buffer)}, the -S of the server"
            )
        link.move(WROpcode.RDMA_READ, self._mr, source.length, source.addr, source.rkey)
        came = bytes(self._buffer[: source.length])
        self._settings.tell(f"server ping data: {text_of(came)}")
        link.send(GO_AHEAD)
        sink = Advertisement.unpack(link.receive(f"the second advertisement of ping {number}"))
        # With the zero at the end of the text, if it has one.
        length = min(came.find(b"\0") + 1 or len(came), len(came))
        if length > sink.length:
            raise RpingError(f"the client's sink has {sink.length} bytes; needed: {length}")
        link.move(WROpcode.RDMA_WRITE, self._mr, length, sink.addr, sink.rkey)
        link.send(GO_AHEAD)


def ping(context: Context, settings: Settings) -> None:
    """Connects to a server and pings it."""
    with Link(context) as link:
        startup = settings.startup.arguments
        connect(link.qp, settings.address, settings.port, ord=READS, ird=READS, **startup)
        settings.trace(f"connected to {settings.address}:{settings.port}")
        Client(link, settings).run()
    settings.trace("done")
