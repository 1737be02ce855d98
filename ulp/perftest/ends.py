"""The two ends of a test: client and server."""

import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from stagecoach.host_driver import (
    ConnectionListener,
    ConnectionRejected,
    ConnectionRequest,
    Context,
    ListenerClosed,
    StartupError,
    StartupOptions,
    StartupStep,
    StartupTimeout,
    WaitTimeout,
    WROpcode,
    connect,
    listen,
)
from stagecoach.ulp.perftest import runs
from stagecoach.ulp.perftest.errors import PerftestError
from stagecoach.ulp.perftest.exchange import Exchange
from stagecoach.ulp.perftest.link import Link
from stagecoach.ulp.perftest.memory import Credit, Memory
from stagecoach.ulp.perftest.messages import Destination, Report
from stagecoach.ulp.perftest.results import Bandwidth, Result
from stagecoach.ulp.perftest.tools import Tool

DEFAULT_PORT = 18515
DEFAULT_RX_DEPTH = 512
MINIMUM_RX_DEPTH = 3
DEFAULT_MODERATION = 100
DEFAULT_PATIENCE = 120.0
MAXIMUM_DEPTH = 8192

_MODERATED = 8192
"""Bytes: each longer message completes visibly."""

_LISTEN_SECONDS = 3600.0
_TRIES = 10
_TRY_SECONDS = 0.1
"""The server may listen for the second connection a little later than the client connects."""

_END_SECONDS = 5.0
_GRACE_SECONDS = 0.25
"""Without a last handshake the client may not have seen its last message complete yet: the end of
the connection would flush it.
"""


@dataclass(frozen=True)
class Settings:
    """The options of a test, named as those of the tools.

    Attributes
    ----------
    host: of the server; empty at the server. port: of it, for both connections.
    source_ip: where the server listens; empty for all local addresses.
    size, iters: of messages. tx_depth, rx_depth, cq_mod: limits of what is posted; at most `iters`.
    outs: RDMA Reads under way; what the device has if not given.
    timeout: seconds without anything from the peer, after which it is given up.
    peer_to_peer: whether the client of the test asks for an RTR frame (RFC 6581, 9.2); only where
        the server begins if not given. A server takes no other client if it is set.
    crc, markers, revision: of MPA startup of both connections, as in `StartupOptions`.
    """

    tool: Tool
    size: int
    iters: int
    tx_depth: int
    host: str = ""
    port: int = DEFAULT_PORT
    source_ip: str = ""
    rx_depth: int = DEFAULT_RX_DEPTH
    cq_mod: int = DEFAULT_MODERATION
    outs: int | None = None
    timeout: float = DEFAULT_PATIENCE
    peer_to_peer: bool | None = None
    crc: bool = True
    markers: bool = False
    revision: int = StartupOptions.revision

    def startup(self, *, peer_to_peer: bool = False) -> StartupOptions:
        """What this end asks for in MPA startup of a connection."""
        return StartupOptions(
            crc=self.crc,
            markers=self.markers,
            revision=self.revision,
            peer_to_peer=peer_to_peer,
            timeout=self.timeout,
        )

    @property
    def depth(self) -> int:
        """Messages that are posted and not complete, at most."""
        return min(self.tx_depth, self.iters)

    @property
    def plan(self) -> runs.Plan:
        """The messages."""
        depth = self.depth
        moderation = 1 if self.size > _MODERATED else min(self.cq_mod, depth)
        takes = self.tool.opcode is WROpcode.SEND
        receives = min(self.rx_depth, self.iters) if takes else 1
        return runs.Plan(self.size, self.iters, depth, moderation, receives)


@dataclass(frozen=True)
class Met:
    """What each end knows of the other when the test begins."""

    mine: Destination
    remote: Destination


Told = Callable[[Met], None]


def ask(context: Context, settings: Settings, told: Told = lambda met: None) -> Result | None:
    """The client: connects to a server and runs the test.

    told: called when both ends have met. Raises `WrongPerftestVersion`, `PerftestError`,
    `PeerClosed`, `WaitTimeout`, `StartupError`.
    """
    with _link(context, settings) as link:
        startup = settings.startup().arguments
        connect(link.control, settings.host, settings.port, ord=0, ird=0, **startup)
        return _End(link, settings, client=True).run(lambda: _connect(link, settings), told)


def serve(
    context: Context,
    settings: Settings,
    told: Told = lambda met: None,
    listening: Callable[[int], None] = lambda port: None,
) -> Result | None:
    """The server: waits for a client, however long, and runs the test with it.

    Returns `None` for a test of which a server sees nothing, `ib_read_lat`.

    told: as in `ask`. listening: called with the port. Peers with which MPA startup fails are
    reported, and do not count. Raises as `ask`.
    """
    with _link(context, settings) as link:
        with listen(context, settings.source_ip, settings.port) as listener:
            listening(listener.port)
            peer = _accept_control(listener, link, settings)
            return _End(link, settings, client=False).run(
                lambda: _accept_data(listener, link, settings, peer), told
            )


def _link(context: Context, settings: Settings) -> Link:
    plan = settings.plan
    return Link(context, sends=plan.depth, receives=plan.receives, patience=settings.timeout)


class _End:
    """An end whose QP of the exchange is connected."""

    def __init__(self, link: Link, settings: Settings, client: bool):
        self._link = link
        self._settings = settings
        self._tool = settings.tool
        self._client = client
        self._exchange = Exchange(link, client)

    def run(self, connect_data: Callable[[], None], told: Told) -> Result | None:
        """The whole test, to its end."""
        link, settings, tool, plan = self._link, self._settings, self._tool, self._settings.plan
        exchange = self._exchange
        agreed = exchange.begin()
        exchange.shake(Destination(), "handshake before the second connection")
        connect_data()
        exchange.shake(Destination(), "handshake after the second connection")
        memory = Memory(link, tool, settings.size, agreed.page, agreed.line)
        credit = Credit(link) if tool.opcode is WROpcode.SEND and not tool.latency else None
        mine = self._destination(memory, credit)
        if tool.opcode is WROpcode.SEND and (tool.latency or not self._client):
            runs.post_receives(link, memory.receives(), plan)
        for number in range(1, tool.handshakes + 1):
            remote = exchange.shake(mine, f"handshake {number} of {tool.handshakes}")
        remote.check_room(memory.half)
        told(Met(mine, remote))
        result = self._messages(memory, credit, remote)
        if tool.reports:
            result = self._report(mine, result)
        link.data_may_end = True
        if tool.ends_together:
            exchange.shake(mine, "last handshake")
        if self._client:
            link.await_end(link.data, min(_END_SECONDS, settings.timeout))
        else:
            if not tool.ends_together:
                link.await_end(link.control, min(_GRACE_SECONDS, settings.timeout))
            link.data.disconnect()
            # The tool posts a receive after the last message, which has to find the QP open.
            link.await_end(link.control, min(_END_SECONDS, settings.timeout))
        return result

    def _destination(self, memory: Memory, credit: Credit | None) -> Destination:
        link = self._link
        return Destination(
            out_reads=_reads(link.context, self._settings) or 1,
            qpn=link.data.qp_num,
            psn=secrets.randbits(24),
            rkey=memory.mr.rkey if credit is None else credit.mr.rkey,
            vaddr=memory.here if credit is None else credit.here,
        )

    def _messages(
        self, memory: Memory, credit: Credit | None, remote: Destination
    ) -> Result | None:
        """The messages; `None` at a server that does not see them."""
        link, tool, plan = self._link, self._tool, self._settings.plan
        match tool.opcode:
            case WROpcode.SEND if credit is not None:
                if self._client:
                    return runs.stream(link, memory, remote, plan, credit)
                return runs.absorb(link, memory, remote, plan, credit)
            case WROpcode.SEND:
                return runs.send_in_turns(link, memory, plan, self._client)
            case WROpcode.RDMA_WRITE if tool.latency:
                return runs.write_in_turns(link, memory, remote, plan, first=not self._client)
        if not self._client:
            return None
        if tool.latency:
            return runs.read_one_by_one(link, memory, remote, plan)
        return runs.stream(link, memory, remote, plan, None)

    def _report(self, mine: Destination, result: Result | None) -> Result:
        """Tells the server what the client has found."""
        self._exchange.shake(mine, "handshake after the last message")
        size, number = self._settings.size, self._settings.iters
        if isinstance(result, Bandwidth):
            self._exchange.report(Report(size, number, result.peak, result.average, result.rate))
            return result
        found = self._exchange.report(Report(size, number, 0.0, 0.0, 0.0))
        found.check(size, number)
        return Bandwidth(size, number, found.peak, found.average, found.rate)


def _reads(context: Context, settings: Settings) -> int:
    """ORD and IRD of the test."""
    if settings.tool.opcode is not WROpcode.RDMA_READ:
        return 0
    most = context.attr.max_qp_rd_atom
    return most if settings.outs is None else min(settings.outs, most)


def _connect(link: Link, settings: Settings) -> None:
    reads = _reads(link.context, settings)
    asks = settings.peer_to_peer
    startup = settings.startup(peer_to_peer=settings.tool.server_first if asks is None else asks)
    for left in reversed(range(_TRIES)):
        try:
            connect(
                link.data,
                settings.host,
                settings.port,
                ord=reads,
                ird=reads,
                **startup.arguments,
            )
            return
        except (ConnectionRejected, StartupTimeout):
            raise
        except StartupError:
            if not left:
                raise
            time.sleep(_TRY_SECONDS)


def _accept_control(listener: ConnectionListener, link: Link, settings: Settings) -> str:
    """Accepts the first client; returns its address."""
    while True:
        try:
            request = listener.get_request(_LISTEN_SECONDS)
            peer = request.peer_address[0]
            request.accept(link.control, ord=0, **settings.startup().arguments)
            return peer
        except ListenerClosed:
            raise
        except StartupError as error:
            if not (isinstance(error, StartupTimeout) and error.step == StartupStep.PEER):
                _report(error)


def _accept_data(listener: ConnectionListener, link: Link, settings: Settings, peer: str) -> None:
    """Accepts the second connection of the client, and no other one."""
    end = time.monotonic() + settings.timeout
    while True:
        left = max(0.0, end - time.monotonic())
        try:
            request = listener.get_request(left)
        except StartupTimeout as error:
            raise WaitTimeout(
                f"the peer's second connection: nothing in {settings.timeout:g} s"
            ) from error
        except ListenerClosed:
            raise
        except StartupError as error:
            _report(error)
            continue
        if request.peer_address[0] == peer:
            break
        request.reject()
    _require_peer_to_peer(request, settings.tool)
    reads = _reads(link.context, settings)
    # A peer that may send Reads though it never will is none that is refused.
    startup = settings.startup(peer_to_peer=bool(settings.peer_to_peer))
    request.accept(link.data, ord=reads, ird=reads or None, **startup.arguments)


def _require_peer_to_peer(request: ConnectionRequest, tool: Tool) -> None:
    if tool.server_first and not request.peer_to_peer:
        request.reject()
        raise PerftestError(
            f"{tool.name}: its server sends first, which RFC 5044 (7.1.2) forbids the MPA "
            "Responder; allowed: a client that connects peer-to-peer (RFC 6581, 9.2)"
        )


def _report(error: Exception) -> None:
    print(f"perftest: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
