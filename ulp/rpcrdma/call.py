"""A call at the server."""

from contextlib import ExitStack

from stagecoach.host_driver import ResourceError
from stagecoach.ulp.oncrpc.errors import MessageTooLong
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.rpcrdma.chunks import octets_of
from stagecoach.ulp.rpcrdma.errors import ErrorCode
from stagecoach.ulp.rpcrdma.header import Header
from stagecoach.ulp.rpcrdma.holding import Holding
from stagecoach.ulp.rpcrdma.read_reply import reply_by_reads
from stagecoach.ulp.rpcrdma.reply import Reply
from stagecoach.ulp.rpcrdma.responder import Responder

_REFUSED = (MessageTooLong, ResourceError, ValueError, TypeError)
"""Why a reply cannot be made; the client is told ERR_CHUNK."""


class RdmaCall:
    """A `ulp.oncrpc.transport.Call`.

    Attributes
    ----------
    message: the call, with its bulk items in registered memory. header: its header.
    holding: memory of the server that it uses; given back with the answer.
    """

    def __init__(
        self,
        responder: Responder,
        slot: int,
        header: Header,
        message: Message,
        holding: Holding,
    ):
        self.responder = responder
        self._slot: int | None = slot
        self.header = header
        self._message = message
        self.holding = holding
        responder.open_calls += 1

    @property
    def message(self) -> Message:
        """As `Call.message`."""
        return self._message

    @property
    def bulk_room(self) -> tuple[int, ...]:
        """As `Call.bulk_room`; 0 for an empty chunk, whose item goes inline (RFC 8166, 4.3.2.3)."""
        return tuple(octets_of(chunk) for chunk in self.header.lists.writes)

    async def reserve(self, octets: int) -> None:
        """As `Call.reserve`."""
        await self.holding.reserve(octets)

    def buffer(self, octets: int) -> memoryview:
        """As `Call.buffer`; also `ResourceError` if the device has no STag left."""
        most = self.responder.settings.maximum_octets
        if octets > most:
            raise MessageTooLong(f"a bulk item of {octets} bytes; allowed: 0 to {most}")
        if not octets:
            return memoryview(bytearray())
        if self.responder.channel.error is not None:
            return memoryview(bytearray(octets))  # `reply` raises it
        return self.holding.region(octets).view

    def _take_slot(self) -> int:
        slot, self._slot = self._slot, None
        if slot is None:
            raise ValueError("the call is answered or dropped; allowed: one answer")
        self.responder.open_calls -= 1
        return slot

    async def drop(self) -> None:
        """As `Call.drop`. `ValueError` if the call has been answered or dropped."""
        slot = self._take_slot()
        self.holding.give()
        self.responder.channel.give_back(slot)

    async def reply(self, message: Message) -> None:
        """As `Call.reply`.

        `ValueError` if the call has been answered or dropped, and for a message that is no reply to
        it; the client is told ERR_CHUNK then. Any other error ends the connection, and so does a
        cancellation.
        """
        slot = self._take_slot()
        with ExitStack() as steps:
            steps.callback(self.holding.give)
            try:
                with self.responder.answering(but=_REFUSED):
                    await self._answer(slot, message, steps)
            except _REFUSED as error:
                await self.responder.send_error(
                    slot, self.header.xid, self.header.version, ErrorCode.ERR_CHUNK
                )
                if not isinstance(error, ResourceError):
                    raise
                raise MessageTooLong(f"no memory to send the reply from: {error}") from error

    async def _answer(self, slot: int, message: Message, steps: ExitStack) -> None:
        self.responder.channel.require_open()
        reply = Reply(self.responder, self.header, self.holding, message, steps)
        octets = reply.inline() or reply.in_reply_chunk()
        if octets is not None:
            await self._send(slot, octets, reply)
        elif self.responder.settings.is_rfc5666:
            await reply_by_reads(
                self.responder, reply, lambda octets: self._send(slot, octets, reply)
            )
        else:
            raise reply.too_long()

    async def _send(self, slot: int, octets: bytes, reply: Reply) -> None:
        """Returns when all is sent: the memory is free."""
        channel = self.responder.channel
        with self.responder.answering():
            # Before the reply, with which the client has the credit again (RFC 8166, 3.3.1).
            channel.give_back(slot)
            if reply.requests:
                self.responder.suspects.write(self.header)
            invalidate = self._invalidated() if self.responder.terms.remote_invalidation else None
            async with self.responder.in_time():
                await (await channel.send(octets, before=reply.requests, invalidate=invalidate))

    def _invalidated(self) -> int | None:
        """An STag of the call, for Send with Invalidate: one less for the client to do."""
        lists = self.header.lists
        segments = [each for chunk in lists.writes for each in chunk]
        segments += lists.reply or ()
        segments += [each.target for each in lists.reads]
        return segments[0].handle if segments else None
