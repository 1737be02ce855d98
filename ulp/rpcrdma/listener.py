"""Takes in clients of RPC-over-RDMA."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from stagecoach.host_driver import (
    AcceptedRequest,
    ConnectionRequest,
    Context,
    ListenerClosed,
    ResourceError,
    StartupError,
    listen,
)
from stagecoach.ulp.oncrpc.complaints import Complaints
from stagecoach.ulp.oncrpc.errors import TooManyConnections
from stagecoach.ulp.oncrpc.limits import Account, Admission
from stagecoach.ulp.rpcrdma import terms
from stagecoach.ulp.rpcrdma.fatal_calls import FatalCalls, Suspects
from stagecoach.ulp.rpcrdma.server import RdmaServerTransport
from stagecoach.ulp.rpcrdma.settings import DEFAULT_PORT, ServerSettings

T = TypeVar("T")

_COMPLAINTS = Complaints(logging.getLogger(__name__))

_DEFAULTS = ServerSettings()
_LONG_SECONDS = 3600.0
_THREADS = 4
"""For steps of accepting that take no time of the client."""
_KEPT = 4
"""One QP of so many is kept for addresses that have none."""
_POLL_SECONDS = 0.005
_LONGEST_POLL_SECONDS = 0.1


class RdmaListener:
    """Waits for clients on a port; made in the loop that runs.

    Clients are taken in side by side: one that is slow, or falls silent, holds up no other. The
    last quarter of the QPs is for addresses that have none yet: a few cannot take all.

    Parameters
    ----------
    context: the open device. host, port: as for `stagecoach.listen`.
    settings: of each connection.
    admission: of the server; its own with the usual limits if not given.
    late: whether a client gets a QP only when it sends its first FPDU, and not with the MPA Reply.
        One that falls silent takes none then; but if there is none left when it sends, it loses its
        connection without a reason. With a peer-to-peer Request a QP is always taken late.

    Attributes
    ----------
    port: in use. refused: why MPA startup with a client failed, or it was rejected, the last 100.
    """

    def __init__(
        self,
        context: Context,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        settings: ServerSettings = _DEFAULTS,
        *,
        admission: Admission | None = None,
        late: bool = False,
    ):
        if not isinstance(settings, ServerSettings):
            raise TypeError(f"settings are {type(settings).__name__}; allowed: ServerSettings")
        self._context, self._settings, self._late = context, settings, late
        self._admission = admission or Admission()
        self._loop = asyncio.get_running_loop()
        self._taken: asyncio.Queue[RdmaServerTransport | None] = asyncio.Queue()
        self._taking: set[asyncio.Task[None]] = set()
        self._closed = False
        self.refused: list[Exception] = []
        self._fatal = FatalCalls()
        self._pool = ThreadPoolExecutor(_THREADS, "rpcrdma accept")
        self._listener = listen(context, host, port)
        self.port = self._listener.port
        self._thread = threading.Thread(target=self._run, name="rpcrdma listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Takes requests until the listener is closed."""
        while True:
            try:
                request = self._listener.get_request(_LONG_SECONDS)
            except ListenerClosed:
                self._hand(None)
                return
            except StartupError as error:
                self._refuse(error)
                continue
            self._hand(request)

    def _hand(self, request: ConnectionRequest | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin, request)
        except RuntimeError:  # the loop is closed
            if request is not None:
                request.close()

    def _begin(self, request: ConnectionRequest | None) -> None:
        if request is None:
            self._taken.put_nowait(None)
        elif self._closed:
            request.close()
        else:
            task = self._loop.create_task(self._take(request))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    def _refuse(self, error: Exception) -> None:
        self.refused = [*self.refused[-99:], error]
        if isinstance(error, ResourceError):
            _COMPLAINTS.warning("refused", f"a client was turned away: {error}")

    async def _take(self, request: ConnectionRequest) -> None:
        """Has a transport for `accept`, or refuses the client."""
        try:
            account = self._admission.enter(request.peer_address[0])
        except (TooManyConnections, StartupError) as error:
            self._refuse(error)
            request.close()
            return
        transport = None
        try:
            transport = await self._accept(request, account)
        except ResourceError as error:
            self._refuse(error)
            await self._in_thread(request.reject)
        except StartupError as error:
            self._refuse(error)
        except Exception as error:
            _COMPLAINTS.error("fault", "a client could not be taken in", error)
        finally:
            if transport is None:
                request.close()
                account.close()
        if transport is not None:
            self._taken.put_nowait(transport)

    async def _accept(self, request: ConnectionRequest, account: Account) -> RdmaServerTransport:
        """Raises `StartupError`, or `ResourceError` before the client is answered."""
        late = self._late or request.peer_to_peer
        suspects = Suspects(self._fatal, request.peer_address[0])
        agreed = terms.terms_of(self._settings, request.private_data)
        transport = None
        try:
            if late:
                self._require_room(account)
            else:
                transport = self._transport(suspects, account)
            accepted = await self._in_thread(self._answer, request)
            try:
                if late:
                    await _first_fpdu(accepted)
                transport = transport or self._transport(suspects, account)
                transport.terms = agreed
                await self._in_thread(accepted.connect, transport.channel.qp)
            except BaseException as error:
                accepted.close()
                if isinstance(error, ResourceError):
                    raise StartupError(f"nothing left for an accepted client: {error}") from error
                raise
            return transport
        except BaseException:
            if transport is not None:
                await transport.close()
            raise

    def _transport(self, suspects: Suspects, account: Account) -> RdmaServerTransport:
        self._require_room(account)
        transport = RdmaServerTransport(self._context, self._settings, suspects, account)
        account.serve()
        return transport

    def _require_room(self, account: Account) -> None:
        """Raises `ResourceError` unless this client may have a QP."""
        used, most = len(self._context.qps), self._context.attr.max_qp
        if used >= most:
            raise ResourceError(f"{used} QPs are in use; allowed: {most}")
        self._context.resources.used.require(qps=1)
        most = self._context.resources.used.limit("qps", most)
        allowed = most - most // _KEPT
        if account.peer_served and used >= allowed:
            raise ResourceError(
                f"{used} QPs are in use, {account.peer_served} of them by {account.peer}; "
                f"allowed: {allowed}, the others are for addresses that have none"
            )

    def _answer(self, request: ConnectionRequest) -> AcceptedRequest:
        settings = self._settings
        return request.accept(
            None,
            private_data=terms.private_data(settings, remote_invalidation=False),
            ord=settings.ord,
            ird=settings.ird,
            emss=settings.emss,
            timeout=settings.connect_timeout,
            crc=settings.crc,
            markers=settings.markers,
            revision=settings.revision,
            peer_to_peer=settings.peer_to_peer,
        )

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """What it returns; it is not left alone with what it works on if this is cancelled."""
        future = self._loop.run_in_executor(self._pool, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def accept(self) -> RdmaServerTransport:
        """The next client.

        Those with which MPA startup fails are passed over, and those for which the device has too
        little left are rejected. Raises `ListenerClosed`.
        """
        transport = await self._taken.get()
        if transport is None:
            self._taken.put_nowait(None)  # for the next caller
            raise ListenerClosed(f"the listener at port {self.port} is closed")
        return transport

    async def close(self) -> None:
        """Stops listening; connections stay, but for those that nobody accepted. Repeatable."""
        self._closed = True
        await asyncio.to_thread(self._stop)
        taking = list(self._taking)
        for task in taking:
            task.cancel()
        await asyncio.gather(*taking, return_exceptions=True)
        self._pool.shutdown()
        while not self._taken.empty():
            transport = self._taken.get_nowait()
            if transport is not None:
                await transport.close()
        self._taken.put_nowait(None)

    def _stop(self) -> None:
        self._listener.close()
        self._thread.join()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _first_fpdu(accepted: AcceptedRequest) -> None:
    """Waits for it without a thread, of which there are few. Raises `StartupError`."""
    pause = _POLL_SECONDS
    while not accepted.poll():
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_POLL_SECONDS)
