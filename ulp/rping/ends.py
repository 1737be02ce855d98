"""The two ends of rping: the client has pings, the server reads them and writes them back."""

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.host_driver import (
    AccessFlags,
    ConnectionListener,
    Context,
    StartupError,
    StartupStep,
    StartupTimeout,
    WaitTimeout,
    WROpcode,
    connect,
    listen,
)
from stagecoach.ulp.rping.link import Link, PeerClosed, RpingError
from stagecoach.ulp.rping.messages import GO_AHEAD, Advertisement, ping_text, text_of

DEFAULT_PORT = 7174
DEFAULT_SIZE = 64
READS = 1
"""IRD and ORD: one Read is under way at a time."""

_LISTEN_SECONDS = 3600.0


@dataclass(frozen=True)
class Settings:
    """The options of rping, named as there.

    count: pings until the client ends; 0 for ever. persistent: the server serves one client after
    another. address: of the server; empty for all local ones.
    """

    address: str = ""
    port: int = DEFAULT_PORT
    size: int = DEFAULT_SIZE
    count: int = 0
    verbose: bool = False
    validate: bool = False
    debug: bool = False
    persistent: bool = False

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
                    f"data mismatch in ping {number}: octet {at} came back as 0x{came:02x}, "
                    f"sent: 0x{sent:02x}"
                )


class Server:
    """Reads what the client has and writes it back, until the client closes.

    Parameters
    ----------
    link: a connected one. settings: of these `size` and `verbose`.
    """

    def __init__(self, link: Link, settings: Settings):
        self._link = link
        self._settings = settings
        self._buffer = bytearray(settings.size)
        self._mr = link.register(self._buffer, AccessFlags.LOCAL_WRITE)

    def run(self) -> int:
        """Serves until the client closes between two pings; returns their number.

        Raises `PeerClosed` if it closes in the middle of one.
        """
        number = 0
        while True:
            try:
                octets = self._link.receive("an advertisement", math.inf)
            except PeerClosed:
                return number
            self._serve(number, Advertisement.unpack(octets))
            number += 1

    def _serve(self, number: int, source: Advertisement) -> None:
        link = self._link
        if source.length > len(self._buffer):
            raise RpingError(
                f"the client's ping has {source.length} octets; allowed: 0 to "
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
            raise RpingError(f"the client's sink has {sink.length} octets; needed: {length}")
        link.move(WROpcode.RDMA_WRITE, self._mr, length, sink.addr, sink.rkey)
        link.send(GO_AHEAD)


def ping(context: Context, settings: Settings) -> None:
    """Connects to a server and pings it."""
    with Link(context) as link:
        connect(link.qp, settings.address, settings.port, ord=READS, ird=READS)
        settings.trace(f"connected to {settings.address}:{settings.port}")
        Client(link, settings).run()
    settings.trace("done")


def serve(
    context: Context, settings: Settings, listening: Callable[[int], None] | None = None
) -> None:
    """Waits for a client and serves it; `listening` is called with the port.

    Peers with which MPA startup fails are reported, and do not count.
    """
    with listen(context, settings.address, settings.port) as listener:
        settings.trace(f"listening at port {listener.port}")
        if listening is not None:
            listening(listener.port)
        while True:
            with Link(context) as link:
                if not _accept(listener, link):
                    continue
                settings.trace("a client has connected")
                try:
                    pings = Server(link, settings).run()
                    settings.trace(f"the client has closed after {pings} pings")
                except (RpingError, WaitTimeout) as error:
                    if not settings.persistent:
                        raise
                    _report(error)
            if not settings.persistent:
                return


def _accept(listener: ConnectionListener, link: Link) -> bool:
    """Whether a client is connected; it was reported if MPA startup failed."""
    try:
        # Without a Read of its own the server cannot do anything.
        listener.get_request(_LISTEN_SECONDS).accept(
            link.qp, ord=READS, ird=READS, minimum_ord=READS
        )
        return True
    except StartupError as error:
        if not (isinstance(error, StartupTimeout) and error.step == StartupStep.PEER):
            _report(error)
        return False


def _report(error: Exception) -> None:
    print(f"rping: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
