"""The client's end of RPC-over-RDMA: calls out, replies matched by XID."""

import asyncio
import secrets
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Self

from stagecoach.host_driver import Context
from stagecoach.host_driver import connect as connect_qp
from stagecoach.ulp.oncrpc.errors import ReplyTimeout, RpcConnectionError, RpcTransportError
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma import configuration, fetch, terms
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.chunk_memory import ChunkMemory
from stagecoach.ulp.rpcrdma.chunks import octets_of
from stagecoach.ulp.rpcrdma.credits import CreditWindow
from stagecoach.ulp.rpcrdma.errors import HeaderError, RdmaErrorReceived
from stagecoach.ulp.rpcrdma.header import Header, Procedure, decode_header
from stagecoach.ulp.rpcrdma.outgoing import Offer, Sizes
from stagecoach.ulp.rpcrdma.padding import unpad
from stagecoach.ulp.rpcrdma.read_chunks import check_stream
from stagecoach.ulp.rpcrdma.returned import placed, returned_octets
from stagecoach.ulp.rpcrdma.settings import (
    DEFAULT_PORT,
    INITIAL_INLINE_OCTETS,
    ClientSettings,
)

_DEFAULTS = ClientSettings()


@dataclass(slots=True)
class _Pending:
    """A call whose reply has not come, or not to its caller, who may have gone away."""

    reply: "asyncio.Future[tuple[Header, bytes]]"
    number: int = 0  # `CreditWindow.sent_call`, 0 before it was sent
    abandoned: bool = False  # nobody waits any more, and the server may still answer
    taken: bool = False  # the caller has the reply


class RdmaClientTransport:
    """A `ulp.oncrpc.transport.ClientTransport`; `connect` makes one.

    Attributes
    ----------
    settings: that it was made with. credits: how many calls may be outstanding, and why.
    sizes: what is known of the server.
    discarded: messages that were no replies (RFC 8166, 4.5).
    """

    def __init__(self, context: Context, settings: ClientSettings):
        self.settings = settings
        self.credits = CreditWindow(settings.credits)
        self.sizes = Sizes(settings)
        self.discarded = 0
        self._reads: int | None = None
        self._pending: dict[int, _Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # A reply for each call, and in the profile RFC5666 an RDMA_DONE for each reply.
        self._channel = Channel(
            context,
            receives=settings.credits,
            sends=2 * settings.credits,
            octets=settings.inline_octets,
            on_message=self._on_message,
            on_end=self._on_end,
        )

    async def start(self, host: str, port: int) -> None:
        """Connects; see `connect`."""
        settings, channel = self.settings, self._channel
        told = await asyncio.to_thread(
            connect_qp,
            channel.qp,
            host,
            port,
            private_data=terms.private_data(settings, remote_invalidation=True),
            ord=settings.ord,
            ird=settings.ird,
            emss=settings.emss,
            timeout=settings.connect_timeout,
            crc=settings.crc,
            markers=settings.markers,
            revision=settings.revision,
            peer_to_peer=settings.peer_to_peer,
        )
        agreed = terms.terms_of(settings, told)
        self.sizes = Sizes(
            settings, agreed.send_octets, agreed.receive_octets, can_read=channel.ird > 0
        )
        if settings.is_rfc5666:
            await self._configure()

    async def _configure(self) -> None:
        """Asks the server for its sizes, and tells it ours (RFC 5666, 6.2)."""
        octets = self.settings.inline_octets
        xid = secrets.randbits(32)
        request = configuration.ConfigRequest(octets, octets, self._channel.ird)
        message = Message(configuration.encode_call(xid, request))
        answer = configuration.decode_reply(
            (await self.call(message, ReplyRoom(INITIAL_INLINE_OCTETS // 2))).stream
        )
        if answer is not None:
            agreed = min(octets, max(INITIAL_INLINE_OCTETS, answer.maxcall_sendsize))
            self.sizes.send_octets = self.sizes.receive_octets = agreed
            self.sizes.align = answer.align
            self._reads = answer.maxrdmaread

    @property
    def reads(self) -> int:
        """RDMA Reads that may be under way towards the server: of read chunks in replies."""
        return self._channel.ord if self._reads is None else min(self._channel.ord, self._reads)

    async def call(self, message: Message, room: ReplyRoom) -> Message:
        """As `ClientTransport.call`. `ReplyTimeout` if there is no reply in time.

        A reply that comes after that, or after a cancellation, finds no memory of the call: an
        RDMA Write of the server ends the connection then (RFC 8166, 8.1.4).
        """
        xid = message.xid
        if xid in self._pending:
            raise ValueError(f"XID {xid:#010x} is outstanding; allowed: one that is not")
        self._channel.require_open()
        pending = self._pending[xid] = _Pending(asyncio.get_running_loop().create_future())
        seconds = self.settings.reply_timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                try:
                    await self.credits.take()
                except BaseException:
                    del self._pending[xid]
                    raise
                return await self._call(message, room, pending)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ReplyTimeout(f"call {xid:#010x}: no reply in {seconds} s") from error

    async def _call(self, message: Message, room: ReplyRoom, pending: _Pending) -> Message:
        try:
            self._channel.require_open()
            # Whatever happens: when the caller goes on, the peer reaches none of its memory.
            async with AsyncExitStack() as steps:
                memory = ChunkMemory(self._channel.qp, self.settings.segment_octets)
                steps.push_async_callback(self._revoke, memory)
                offer = Offer(room, memory, self.sizes)
                await self._channel.send(offer.encode(message, self.credits.requested))
                pending.number = self.credits.sent_call()
                # A caller that goes away must not take the place of the reply with it.
                header, stream = await asyncio.shield(pending.reply)
                pending.taken = True
            return await self._decode(header, stream, offer, room)
        finally:
            self._finish(message.xid, pending)

    def _finish(self, xid: int, pending: _Pending) -> None:
        """Gives the credit back, unless the server may still answer."""
        if pending.number and not pending.reply.done() and self._channel.error is None:
            pending.abandoned = True
            return
        if not pending.reply.cancel() and not pending.taken:
            self._free_late(pending)
        del self._pending[xid]
        self.credits.give()

    def _free_late(self, pending: _Pending) -> None:
        """A reply that came when its caller had gone: what the server keeps for it may go."""
        if pending.reply.exception() is None:
            header, _ = pending.reply.result()
            self._done_later(header)

    async def _revoke(self, memory: ChunkMemory) -> None:
        try:
            memory.close()
        except BaseException:
            # Only the end of the connection protects it then, for which the call waits, even if
            # its caller does not (RFC 8166, 4.5.4).
            self._channel.lost("a region of a call cannot be invalidated")
            closing = asyncio.ensure_future(self._channel.close())
            while not closing.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([closing])
            raise

    # Replies

    def _on_message(self, slot: int, octets: bytes, _: int | None) -> None:
        """A Send of the server; the STag that it invalidated is one of the call's, or of none."""
        self._channel.give_back(slot)
        try:
            header, end = decode_header(octets)
            stream = octets[end:]
            if header.procedure is Procedure.RDMA_MSGP and self.settings.is_rfc5666:
                assert header.padding is not None
                stream = unpad(stream, end, header.padding)
            elif header.procedure in (Procedure.RDMA_MSGP, Procedure.RDMA_DONE):
                raise HeaderError(f"{header.procedure.name} from a server")
            if header.lists.reads and not self.settings.is_rfc5666:
                raise HeaderError("a reply with a read list (RFC 8166, 4.3.1)")
            if stream:
                check_stream(header, stream)
        except HeaderError:
            self.discarded += 1
            return
        pending = self._pending.get(header.xid)
        if pending is None or not pending.number or pending.reply.done():
            self.discarded += 1
            return
        self.credits.answered(pending.number)
        self.credits.grant(header.credits)
        if pending.abandoned:
            del self._pending[header.xid]
            self._done_later(header)
            self.credits.give()
        elif header.fault is not None:
            fault = header.fault
            pending.reply.set_exception(RdmaErrorReceived(fault.code, fault.low, fault.high))
        else:
            pending.reply.set_result((header, stream))

    def _done_later(self, header: Header) -> None:
        """What the server keeps for a reply that nobody wants may go."""
        if header.lists.reads:
            task = asyncio.get_running_loop().create_task(self._send_done(header.xid))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_done(self, xid: int) -> None:
        octets = Header(xid, self.credits.requested, Procedure.RDMA_DONE).encode()
        try:
            await self._channel.send(octets)
        except RpcConnectionError:
            return  # the server knows
        self.credits.sent_done()

    async def _decode(
        self, header: Header, stream: bytes, offer: Offer, room: ReplyRoom
    ) -> Message:
        """The reply, out of memory that nobody else reaches any more."""
        lists, offered = header.lists, offer.lists
        bulks = placed(offered.writes, lists.writes, room.bulks)
        if lists.reads:
            try:
                found = await fetch.fetch(
                    self._channel, header, stream, self.settings.maximum_octets, self.reads
                )
            except HeaderError as error:
                raise RpcTransportError(f"the read list of the reply: {error}") from error
            finally:
                await self._send_done(header.xid)
            return Message(found.stream, found.bulks or bulks)
        if header.procedure is Procedure.RDMA_NOMSG:
            if lists.reply is None or offered.reply is None:
                raise RpcTransportError("a long reply without its chunk; allowed: the one offered")
            stream = bytes(offer.reply[: returned_octets(offered.reply, lists.reply)])
            try:
                check_stream(header, stream)
            except HeaderError as error:
                raise RpcTransportError(f"the long reply: {error}") from error
        elif lists.reply is not None and octets_of(lists.reply):
            raise RpcTransportError("a reply both inline and in the reply chunk")
        return Message(stream, bulks)

    # The end

    def _on_end(self, error: RpcConnectionError) -> None:
        self.credits.fail(error)
        for xid, pending in list(self._pending.items()):
            if pending.abandoned:
                del self._pending[xid]
            elif not pending.reply.done():
                pending.reply.set_exception(error)
                # A call that waits for a credit hears of it there.
                pending.reply.exception()

    async def close(self) -> None:
        """As `ClientTransport.close`: when it returns nothing of it is registered."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(
    context: Context,
    host: str,
    port: int = DEFAULT_PORT,
    settings: ClientSettings = _DEFAULTS,
) -> RdmaClientTransport:
    """Connects to a server.

    In the profile RFC5666 the first call is one of the Connection Configuration Protocol.

    Raises what `stagecoach.connect` raises, `ResourceError` or `QuotaExceeded` if the device
    has too little left, and what a call raises if that protocol fails.
    """
    if not isinstance(settings, ClientSettings):
        raise TypeError(f"settings are {type(settings).__name__}; allowed: ClientSettings")
    transport = RdmaClientTransport(context, settings)
    try:
        await transport.start(host, port)
    except BaseException:
        await transport.close()
        raise
    return transport
