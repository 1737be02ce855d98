"""A reply of the server: bulk items through the write list, the rest inline or in the reply chunk.

RFC 5666, 3.6 and 5.2; RFC 8166, 3.4.6, 3.5.3 and 4.3.
"""

from contextlib import ExitStack
from dataclasses import replace

from stagecoach.host_driver import MR, SGE, AccessFlags, SendFlags, SendWR, WROpcode
from stagecoach.ulp.oncrpc.errors import MessageTooLong
from stagecoach.ulp.oncrpc.message import Bulk, Message, roundup
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, Segment, WriteChunk, octets_of
from stagecoach.ulp.rpcrdma.header import FIXED_OCTETS, Header, Padding, Procedure
from stagecoach.ulp.rpcrdma.holding import Holding
from stagecoach.ulp.rpcrdma.padding import THRESHOLD, pad, padding_octets
from stagecoach.ulp.rpcrdma.read_chunks import split
from stagecoach.ulp.rpcrdma.responder import Responder

_COPIED_OCTETS = 4096
"""Up to so many bytes of a bulk item are copied: that costs less than to register them."""


class Reply:
    """The reply `message` to the call of `header`; its bulk items are in chunks of the write list.

    Attributes
    ----------
    message: the reply. placed: its bulk items that go through the write list, `left` the others.
    lists: as they are returned, with an unused reply chunk. stream: what is left of the stream.
    requests: the RDMA Writes before the Send. most: bytes of the longest Send.

    Raises `MessageTooLong` if an item does not fit into its chunk, `ResourceError` if memory cannot
    be registered, which it is until `steps` are done, `ValueError` for a message that is none.
    """

    def __init__(
        self,
        responder: Responder,
        header: Header,
        holding: Holding,
        message: Message,
        steps: ExitStack,
    ):
        if message.xid != header.xid:
            raise ValueError(f"a reply to {message.xid:#010x}; allowed: {header.xid:#010x}")
        self._responder, self._holding, self._steps = responder, holding, steps
        self._offered_writes, self._offered = header.lists.writes, header.lists.reply
        self.message = message
        self.most = responder.terms.send_octets
        self.placed: list[Bulk] = []
        self.requests: list[SendWR] = []
        writes = self._place()
        self.left = [
            bulk for bulk in message.bulks if all(bulk is not each for each in self.placed)
        ]
        unused = None if self._offered is None else cut(self._offered, 0)
        self.lists = ChunkLists(writes=writes, reply=unused)
        self.stream = split(message, self.placed)

    def header(self) -> Header:
        """Of an inline reply."""
        grant = self._responder.grant
        return Header(self.message.xid, grant, Procedure.RDMA_MSG, self.lists)

    def inline(self) -> bytes | None:
        """The Send with the whole stream, `None` if it is too long."""
        if FIXED_OCTETS + self.lists.octets + len(self.stream) > self.most:
            return None
        return self._padded() or self.header().encode() + self.stream

    def in_reply_chunk(self) -> bytes | None:
        """The Send after the Writes of the stream, `None` if there is no room for it."""
        if self._offered is None or len(self.stream) > octets_of(self._offered):
            return None
        reply = cut(self._offered, len(self.stream))
        self.requests += write_requests(reply, self._local(memoryview(self.stream)))
        lists = replace(self.lists, reply=reply)
        return replace(self.header(), procedure=Procedure.RDMA_NOMSG, lists=lists).encode()

    def too_long(self) -> MessageTooLong:
        """Why it cannot be sent."""
        room = 0 if self._offered is None else octets_of(self._offered)
        inline = max(0, self.most - FIXED_OCTETS - self.lists.octets)
        return MessageTooLong(
            f"a reply of {len(self.stream)} bytes; allowed: {room} in the reply chunk, or "
            f"{inline} in a Send"
        )

    def _place(self) -> tuple[WriteChunk, ...]:
        """Posts the Writes of bulk items; the write list as it is returned.

        An item whose chunk is empty goes inline (RFC 8166, 4.3.2.3).
        """
        writes = []
        left = list(self.message.bulks)
        for chunk in self._offered_writes:
            bulk = left.pop(0) if left else None
            if bulk is None or not chunk:
                writes.append(cut(chunk, 0))
                continue
            octets, room = len(bulk.data), octets_of(chunk)
            if octets > room:
                raise MessageTooLong(
                    f"a bulk item of {octets} bytes; allowed: 0 to {room}, as its write chunk has"
                )
            filled = cut(chunk, octets)
            if octets:
                self.requests += write_requests(filled, self._local(bulk.data))
            self.placed.append(bulk)
            writes.append(filled)
        return tuple(writes)

    def _local(self, data: memoryview) -> SGE:
        """Registered memory with these bytes: where they are, or a copy."""
        for region in self._holding.regions:
            if (element := region.find(data)) is not None:
                return element
        if data.readonly or len(data) <= _COPIED_OCTETS:
            region = self._holding.region(len(data))
            region.view[:] = data
            return region.element()
        channel = self._responder.channel
        mr = self._steps.enter_context(MR(channel.pd, data, AccessFlags(0), qp=channel.qp))
        return SGE(mr.addr, mr.length, mr.lkey)

    def _padded(self) -> bytes | None:
        """The Send as RDMA_MSGP, `None` if that is not wanted or gains nothing."""
        settings = self._responder.settings
        if not (settings.is_rfc5666 and settings.align and self.left):
            return None
        last = self.left[-1]
        item = last.position - sum(roundup(len(bulk.data)) for bulk in self.placed)
        padding = Padding(settings.align, THRESHOLD)
        header = replace(self.header(), procedure=Procedure.RDMA_MSGP, padding=padding).encode()
        ends = item + roundup(len(last.data)) == len(self.stream)
        octets = len(header) + len(self.stream) + padding_octets(padding, len(header) + item)
        if not ends or len(last.data) <= THRESHOLD or octets > self.most:
            return None
        return header + pad(self.stream, item, len(header), padding)


def cut(chunk: WriteChunk, octets: int) -> WriteChunk:
    """The chunk as it is returned with so many bytes in it, filled without gaps."""
    found: list[Segment] = []
    for segment in chunk:
        length = min(segment.length, octets)
        found.append(replace(segment, length=length))
        octets -= length
    return tuple(found)


def write_requests(chunk: WriteChunk, source: SGE) -> list[SendWR]:
    """An RDMA Write for each segment with bytes, one after the other out of the element."""
    requests = []
    at = source.addr
    for segment in chunk:
        if segment.length:
            requests.append(
                SendWR(
                    opcode=WROpcode.RDMA_WRITE,
                    sg=[SGE(at, segment.length, source.lkey)],
                    remote_addr=segment.offset,
                    rkey=segment.handle,
                    send_flags=SendFlags(0),
                )
            )
        at += segment.length
    return requests
