"""The server of rping: takes clients in, and serves them side by side if it is persistent."""

import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread

from stagecoach.host_driver import (
    ConnectionListener,
    ConnectionRequest,
    Context,
    ListenerClosed,
    ResourceError,
    StagecoachError,
    StartupError,
    StartupStep,
    StartupTimeout,
    listen,
)
from stagecoach.ulp.rping.completions import Completions
from stagecoach.ulp.rping.ends import READS, Server, Settings
from stagecoach.ulp.rping.link import COMPLETIONS, Link, RpingError

_LISTEN_SECONDS = 3600.0


def serve(
    context: Context, settings: Settings, listening: Callable[[int], None] | None = None
) -> None:
    """Waits for a client and serves it; `listening` is called with the port.

    With `settings.persistent` it serves clients side by side, each in a thread, until it is
    interrupted: what is wrong with one of them is reported, and holds up no other. Else the first
    client is the only one. Peers with which MPA startup fails are reported, and do not count.
    """
    timeout = settings.startup.timeout
    with listen(context, settings.address, settings.port, request_timeout=timeout) as listener:
        settings.trace(f"listening at port {listener.port}")
        if listening is not None:
            listening(listener.port)
        service = _Service(context, settings)
        try:
            if settings.persistent:
                while True:
                    service.begin(_next_request(listener))
            while not service.serve(_next_request(listener)):
                pass
        finally:
            service.close()


def _next_request(listener: ConnectionListener) -> ConnectionRequest:
    while True:
        try:
            return listener.get_request(_LISTEN_SECONDS)
        except ListenerClosed:
            raise
        except StartupError as error:
            if not (isinstance(error, StartupTimeout) and error.step == StartupStep.PEER):
                _report(error)


class _Service:
    """The clients that are being served."""

    def __init__(self, context: Context, settings: Settings):
        self._context, self._settings = context, settings
        self._completions = Completions(context, COMPLETIONS * context.attr.max_qp)
        self._lock = Lock()  # of what follows
        self._links: set[Link] = set()
        self._threads: set[Thread] = set()
        self._closed = False

    def begin(self, request: ConnectionRequest) -> None:
        """Serves a client in a thread of its own."""
        thread = Thread(target=self._run, args=(request,), name="rping client", daemon=True)
        with self._lock:
            self._threads = {each for each in self._threads if each.is_alive()} | {thread}
            thread.start()

    def _run(self, request: ConnectionRequest) -> None:
        client = _name_of(request)
        try:
            self.serve(request)
        except (StagecoachError, ValueError) as error:
            if not self._closed:
                _report(error, client)

    def serve(self, request: ConnectionRequest) -> bool:
        """Serves a client to its end.

        False if it was not connected, which is reported. Raises `RpingError`.
        """
        client = _name_of(request)
        try:
            link = self._open()
        except ResourceError as error:
            request.reject()
            _report(error, client)
            return False
        try:
            if not self._accept(request, link, client):
                return False
            self._settings.trace(f"a client has connected: {client}")
            pings = Server(link, self._settings).run()
            self._settings.trace(f"the client has closed after {pings} pings: {client}")
            return True
        finally:
            with self._lock:
                self._links.discard(link)
            link.close()

    def _open(self) -> Link:
        link = Link(self._context, self._completions, self._settings.patience)
        with self._lock:
            if self._closed:
                link.close()
                raise RpingError("the server has ended")
            self._links.add(link)
            return link

    def _accept(self, request: ConnectionRequest, link: Link, client: str) -> bool:
        """Whether the client is connected; it was reported if MPA startup failed."""
        try:
            # Without a Read of its own the server cannot do anything.
            startup = self._settings.startup.arguments
            request.accept(link.qp, ord=READS, ird=READS, minimum_ord=READS, **startup)
            return True
        except StartupError as error:
            _report(error, client)
            return False

    def close(self) -> None:
        """Ends all connections, and returns when nobody is served any more."""
        with self._lock:
            self._closed = True
            links, threads = list(self._links), list(self._threads)
        for link in links:
            with suppress(StagecoachError, ValueError):
                link.close()
        for thread in threads:
            thread.join()
        with suppress(StagecoachError, ValueError):  # the device is closed
            self._completions.close()


def _name_of(request: ConnectionRequest) -> str:
    host, port = request.peer_address
    return f"{host}:{port}"


def _report(error: Exception, client: str | None = None) -> None:
    whose = "" if client is None else f"{client}: "
    print(f"rping: {whose}{type(error).__name__}: {error}", file=sys.stderr, flush=True)
