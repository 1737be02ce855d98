"""Takes in clients of RPC-over-RDMA."""

import asyncio
import threading
from typing import Self

from host_driver import cm
from host_driver.cm import ConnectionRequest
from host_driver.context import Context
from host_driver.errors import ListenerClosed, ResourceError, StartupError
from host_driver.rpcrdma import terms
from host_driver.rpcrdma.fatal_calls import FatalCalls, Suspects
from host_driver.rpcrdma.server import RdmaServerTransport
from host_driver.rpcrdma.settings import DEFAULT_PORT, ServerSettings

_DEFAULTS = ServerSettings()
_LONG_SECONDS = 3600.0


class RdmaListener:
    """Waits for clients on a port; made in the loop that runs.

    Parameters
    ----------
    context: the open device. host, port: as for `host_driver.cm.listen`.
    settings: of each connection.

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
    ):
        if not isinstance(settings, ServerSettings):
            raise TypeError(f"settings are {type(settings).__name__}; allowed: ServerSettings")
        self._context, self._settings = context, settings
        self._loop = asyncio.get_running_loop()
        self._requests: asyncio.Queue[ConnectionRequest | None] = asyncio.Queue()
        self.refused: list[Exception] = []
        self._fatal = FatalCalls()
        self._listener = cm.listen(context, host, port)
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
            self._loop.call_soon_threadsafe(self._requests.put_nowait, request)
        except RuntimeError:  # the loop is closed
            if request is not None:
                request.close()

    def _refuse(self, error: Exception) -> None:
        self.refused = [*self.refused[-99:], error]

    async def accept(self) -> RdmaServerTransport:
        """The next client.

        Those with which MPA startup fails are passed over, and those for which the device has too
        little left are rejected. Raises `ListenerClosed`.
        """
        while True:
            request = await self._requests.get()
            if request is None:
                self._requests.put_nowait(None)  # for whoever asks next
                raise ListenerClosed(f"the listener at port {self.port} is closed")
            try:
                suspects = Suspects(self._fatal, request.peer_address[0])
                transport = RdmaServerTransport(self._context, self._settings, suspects)
            except StartupError as error:
                self._refuse(error)
                continue
            except ResourceError as error:
                self._refuse(error)
                await asyncio.to_thread(request.reject)
                continue
            try:
                await asyncio.to_thread(self._accept, request, transport)
                return transport
            except StartupError as error:
                self._refuse(error)
                await transport.close()
            except BaseException:
                await transport.close()
                raise

    def _accept(self, request: ConnectionRequest, transport: RdmaServerTransport) -> None:
        settings = self._settings
        transport.terms = terms.terms_of(settings, request.private_data)
        request.accept(
            transport.channel.qp,
            private_data=terms.private_data(settings, remote_invalidation=False),
            ord=settings.ord,
            ird=settings.ird,
            emss=settings.emss,
            timeout=settings.connect_timeout,
        )

    async def close(self) -> None:
        """Stops listening; connections stay. Repeatable."""
        await asyncio.to_thread(self._stop)
        while not self._requests.empty():
            request = self._requests.get_nowait()
            if request is not None:
                request.close()
        self._requests.put_nowait(None)

    def _stop(self) -> None:
        self._listener.close()
        self._thread.join()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
