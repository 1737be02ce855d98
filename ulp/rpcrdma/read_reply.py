"""A reply as read chunks, whose memory the client frees with RDMA_DONE (RFC 5666, 3.8 and 11)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from stagecoach.ulp.oncrpc.errors import MessageTooLong
from stagecoach.ulp.rpcrdma.chunk_memory import ChunkMemory
from stagecoach.ulp.rpcrdma.chunks import ReadSegment
from stagecoach.ulp.rpcrdma.header import FIXED_OCTETS, Procedure
from stagecoach.ulp.rpcrdma.read_chunks import split
from stagecoach.ulp.rpcrdma.reply import Reply
from stagecoach.ulp.rpcrdma.responder import Responder

_LONGEST_SEGMENT = 1 << 30


async def reply_by_reads(
    responder: Responder, reply: Reply, send: Callable[[bytes], Awaitable[None]]
) -> None:
    """Sends the reply, and returns when the client has read it, or its time is over.

    It waits before that as long as RDMA_DONEs to come take all credits but one: with a grant of
    none the client could not go on. Raises `MessageTooLong`, `RpcConnectionError`.
    """
    if not responder.channel.ird:
        raise MessageTooLong("a reply as read chunks to a client that may not read")
    await responder.done_budget.take()
    responder.channel.require_open()
    xid = reply.message.xid
    memory = ChunkMemory(responder.channel.qp, _LONGEST_SEGMENT)
    done = asyncio.Event()
    responder.dones.setdefault(xid, []).append(done)
    try:
        await send(_read_lists(reply, memory))
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), responder.settings.done_timeout)
        if responder.channel.error is not None:
            raise responder.channel.error
    finally:
        memory.close()
        responder.dones[xid].remove(done)
        if not responder.dones[xid]:
            del responder.dones[xid]
        responder.done_budget.give()


def _read_lists(reply: Reply, memory: ChunkMemory) -> bytes:
    """The Send of a reply whose bulk items, and if need be whose stream, are read chunks."""
    chunks = [bulk for bulk in reply.left if len(bulk.data)]
    stream = split(reply.message, [*reply.placed, *chunks])
    reads = [
        ReadSegment(bulk.position, segment)
        for bulk in chunks
        for segment in memory.readable(bulk.data)
    ]
    lists = replace(reply.lists, reads=tuple(reads))
    if chunks and FIXED_OCTETS + lists.octets + len(stream) <= reply.most:
        return replace(reply.header(), lists=lists).encode() + stream
    whole = [ReadSegment(0, segment) for segment in memory.readable(stream)]
    lists = replace(lists, reads=(*whole, *reads))
    octets = FIXED_OCTETS + lists.octets
    if octets > reply.most:
        raise MessageTooLong(f"chunk lists of {octets} bytes in a Send; allowed: 0 to {reply.most}")
    return replace(reply.header(), procedure=Procedure.RDMA_NOMSG, lists=lists).encode()
