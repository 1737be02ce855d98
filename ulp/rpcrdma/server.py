"""The server's end of RPC-over-RDMA: calls in, whatever the client sends."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from itertools import chain
from typing import Self

from stagecoach.host_driver import Context, ResourceError
from stagecoach.ulp.oncrpc.errors import RpcConnectionError, RpcTransportError
from stagecoach.ulp.oncrpc.limits import Account
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.rpcrdma import configuration
from stagecoach.ulp.rpcrdma.call import RdmaCall
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.errors import HeaderError
from stagecoach.ulp.rpcrdma.fatal_calls import Suspects
from stagecoach.ulp.rpcrdma.fetch import read_all, read_requests
from stagecoach.ulp.rpcrdma.header import Header, Procedure, decode_header
from stagecoach.ulp.rpcrdma.holding import Holding
from stagecoach.ulp.rpcrdma.padding import unpad
from stagecoach.ulp.rpcrdma.pool import Pool
from stagecoach.ulp.rpcrdma.read_chunks import chunk_error, items, join, read_chunks
from stagecoach.ulp.rpcrdma.responder import Responder
from stagecoach.ulp.rpcrdma.settings import INITIAL_INLINE_OCTETS, ServerSettings
from stagecoach.ulp.rpcrdma.terms import Terms


class RdmaServerTransport(Responder):
    """A `ulp.oncrpc.transport.ServerTransport`; `listener.RdmaListener` makes them.

    A client has as many receives as the server grants credits, and a call keeps its own until it
    is answered: a client with more calls than that loses the connection (RFC 5666, 3.3).

    Attributes
    ----------
    settings, suspects: that it was made with. terms: what the client told.
    credits: granted in each reply, 1 to `settings.credits`; may be set.
    account: what the connection has. open_calls: that are not answered.
    discarded: messages that are not answered (RFC 8166, 4.5 and 4.6.2). refused: that were answered
        with RDMA_ERROR.
    """

    def __init__(
        self, context: Context, settings: ServerSettings, suspects: Suspects, account: Account
    ):
        super().__init__(settings, suspects, account)
        self.discarded = 0
        self._reads: int | None = None
        self._calls: asyncio.Queue[RdmaCall | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self.channel = Channel(
            context,
            receives=settings.credits + self.done_limit,
            sends=settings.credits,
            octets=settings.inline_octets,
            on_message=self._on_message,
            on_end=self._on_end,
        )
        self.pool = Pool(self.channel.pd)
        self._called, self._last = False, self.channel.loop.time()
        self._watch(account.limits.first_seconds)

    @property
    def peer(self) -> str:
        """As `ServerTransport.peer`."""
        return self.account.peer

    @property
    def reads(self) -> int:
        """RDMA Reads that may be under way towards the client."""
        return self.channel.ord if self._reads is None else min(self.channel.ord, self._reads)

    async def receive(self) -> RdmaCall:
        """As `ServerTransport.receive`: the next call, with its read chunks fetched."""
        call = await self._calls.get()
        if call is None:
            self._calls.put_nowait(None)  # for the next caller
            assert self.channel.error is not None
            raise self.channel.error
        return call

    # What the client sends

    def _on_message(self, slot: int, octets: bytes, _: int | None) -> None:
        self._last = self.channel.loop.time()
        if not self._called:
            self._called = True
            self._timer.cancel()
            self._watch(self.account.limits.idle_seconds)
        try:
            header, end = decode_header(octets)
            match header.procedure:
                case Procedure.RDMA_DONE | Procedure.RDMA_ERROR:
                    self.channel.give_back(slot)
                    self._take_done(header)
                    return
                case Procedure.RDMA_MSGP if not self.settings.is_rfc5666:
                    raise chunk_error(header, "RDMA_MSGP; allowed: RDMA_MSG, RDMA_NOMSG")
            if self.suspects.ended_another(header.xid):
                raise chunk_error(header, "a call whose chunks ended a connection before")
        except HeaderError as error:
            self._start(self._refuse(slot, error))
            return
        stream = octets[end:]
        if header.padding is not None:
            stream = unpad(stream, end, header.padding)
        self._start(self._take(slot, header, stream))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        """Runs a coroutine that ends with the connection, and the connection with its failure."""

        async def run() -> None:
            with suppress(Exception), self.answering():
                await work

        task = self.channel.loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_done(self, header: Header) -> None:
        waiting = [done for done in self.dones.get(header.xid, []) if not done.is_set()]
        if header.procedure is Procedure.RDMA_DONE and waiting:
            waiting[0].set()
        else:
            self.discarded += 1

    async def _take(self, slot: int, header: Header, stream: bytes) -> None:
        """Fetches the read chunks of a call."""
        holding = Holding(self.pool, self.account)
        try:
            message = await self._fetch(header, stream, holding)
        except HeaderError as error:
            holding.give()
            await self._refuse(slot, error)
            return
        except RpcConnectionError:
            self.suspects.not_read(header, self.channel.qp.terminate)
            return
        call = RdmaCall(self, slot, header, message, holding)
        if self.settings.is_rfc5666 and not message.bulks:
            config = configuration.ConfigCall.decode(message.stream)
            if config is not None:
                await self._configure(call, config)
                return
        self._calls.put_nowait(call)

    async def _fetch(self, header: Header, stream: bytes, holding: Holding) -> Message:
        self.channel.require_open()
        whole, chunks = read_chunks(header, self.settings.maximum_octets)
        if whole is None:
            items(header, stream, chunks)  # before anything is read
        views: list[memoryview] = []
        requests = []
        wanted = ([whole] if whole else []) + chunks
        await holding.take(*(chunk.octets for chunk in wanted))
        self.channel.require_open()
        for chunk in wanted:
            if not chunk.octets:
                views.append(memoryview(b""))
                continue
            try:
                region = holding.region(chunk.octets)
            except ResourceError as error:
                raise chunk_error(header, f"no memory for a read chunk: {error}") from error
            views.append(region.view)
            requests += read_requests(chunk.segments, region.element())
        if requests:
            if not self.reads:
                raise chunk_error(header, "read chunks, and no RDMA Reads are possible")
            async with self.in_time():
                await read_all(self.channel, requests, self.reads)
        if whole is not None:
            stream = bytes(views.pop(0))
        return join(header, stream, chunks, views)

    async def _configure(self, call: RdmaCall, config: configuration.ConfigCall) -> None:
        """Answers CONF_RDMA, and keeps to it (RFC 5666, 6.2)."""
        octets = self.settings.inline_octets
        answer = configuration.ConfigReply(octets, self.settings.align, self.channel.ird)
        # Before the reply, which is short in any case: the client calls at once.
        if config.request is not None and config.version == configuration.VERSION:
            agreed = min(octets, max(INITIAL_INLINE_OCTETS, config.request.maxreply_sendsize))
            self.terms = Terms(agreed, octets)
            self._reads = config.request.maxrdmaread
        with suppress(RpcConnectionError, RpcTransportError):
            await call.reply(Message(config.answer(answer)))

    def _watch(self, silence: float) -> None:
        """Ends the connection if the client is silent for so many seconds."""

        def look() -> None:
            left = self._last + silence - loop.time()
            if left <= 0 and not self.open_calls:
                self.channel.lost(f"no call in {silence} s")
                return
            self._timer = loop.call_later(left if left > 0 else silence, look)

        loop = self.channel.loop
        self._timer = loop.call_later(silence, look)

    async def _refuse(self, slot: int, error: HeaderError) -> None:
        if error.answer is None or error.xid is None:
            self.discarded += 1
            self.channel.give_back(slot)
            return
        await self.send_error(slot, error.xid, error.version, error.answer)

    # The end

    def _on_end(self, _: RpcConnectionError) -> None:
        self._timer.cancel()
        self.suspects.ended(self.channel.qp.terminate)
        self._calls.put_nowait(None)
        for done in chain.from_iterable(self.dones.values()):
            done.set()

    async def close(self) -> None:
        """As `ServerTransport.close`: when it returns nothing of it is registered."""
        await self.channel.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.account.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
