"""What the RPC layer wants of a transport: TCP here, RPC-over-RDMA in `ulp.rpcrdma`."""

from dataclasses import dataclass
from typing import Protocol

from stagecoach.ulp.oncrpc.message import Message


@dataclass(frozen=True, slots=True)
class ReplyRoom:
    """What the caller says about the reply before it comes.

    Attributes
    ----------
    octets: greatest size of the stream of the reply without bulk items, from XID to end. The
        transport offers a reply chunk if this does not fit inline.
    bulks: where eligible items of the result are to be placed, in their order in the result: the
        write list. Writable, contiguous, of format "B", each as long as the longest item. They
        belong to the transport until the call returns or raises.
    """

    octets: int
    bulks: tuple[memoryview, ...] = ()


class ClientTransport(Protocol):
    """The side that calls, on one connection. All on one event loop."""

    async def call(self, message: Message, room: ReplyRoom) -> Message:
        """Sends the call and returns the reply with the same XID.

        Any number of calls may be outstanding, each with an XID of its own; those beyond the
        credits wait here. They complete in any order. The bulk items of `message` may not change
        before it returns. If the task is cancelled, the peer cannot reach their memory afterwards.

        In the reply, `bulks` is either

        * one `Bulk(PLACED, data)` for each of `room.bulks`, with `data` the first bytes of that
          buffer, as many as the peer returned (none if unused; RFC 5666, 3.6); the octets may be
          the item's or its rounded length (C-29), or
        * items with a position, which came as read chunks (RFC 5666, 3.5), in any memory, or
        * nothing: then the whole stream is in `stream`.

        Raises
        ------
        MessageTooLong: nothing was sent. ReplyTooLong: `room` is too small.
        RpcTransportError: the peer refused the message, or its answer is malformed.
        RpcConnectionError: the connection was closed, or is lost.
        """

    async def close(self) -> None:
        """Closes the connection; outstanding calls raise `RpcConnectionError`. Repeatable."""


class Call(Protocol):
    """A call that came. Its memory is valid until `reply` or `drop` has returned."""

    @property
    def message(self) -> Message:
        """The call. `bulks` are what came beside the stream, with positions, already fetched."""

    @property
    def bulk_room(self) -> tuple[int, ...]:
        """Bytes that each chunk of the write list offers; empty without one, as over TCP.

        If it is not empty, the first eligible items of the result are given to `reply` as `bulks`,
        as many as there are chunks.
        """

    async def reserve(self, octets: int) -> None:
        """Waits until the connection may have so many bytes for the reply of this call.

        At most once per call, before `buffer`; what was reserved is free when the call is over.
        """

    def buffer(self, octets: int) -> memoryview:
        """Memory, writable and of exactly this size, from which a bulk item of the reply goes out
        without a copy. For this call's reply only; may be called once per bulk item.

        Raises
        ------
        MessageTooLong: there will never be as much.
        """

    async def reply(self, message: Message) -> None:
        """Answers the call, with bulk items in order of the write list and positions.

        Bulk items beyond `bulk_room` go into the stream, or as read chunks if the profile has them.
        Returns when the memory of bulk items is free again. Replies may go in any order.

        Raises
        ------
        MessageTooLong: the reply or an item does not fit where the client wants it. The client has
            been told, as far as the transport can.
        RpcConnectionError: the client is gone.
        """

    async def drop(self) -> None:
        """Gives the call up without an answer: what came cannot be answered (no RPC call)."""


class ServerTransport(Protocol):
    """The side that is called, on one connection. All on one event loop."""

    @property
    def peer(self) -> str:
        """The address of the client."""

    async def receive(self) -> Call:
        """The next call. Calls may be answered while others are received.

        Raises
        ------
        RpcConnectionError: the client closed the connection, or it is lost.
        """

    async def close(self) -> None:
        """Closes the connection. Repeatable."""
