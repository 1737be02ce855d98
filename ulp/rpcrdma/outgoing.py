"""What the Send of a call has: chunks that are offered for the reply, and the call itself."""

from dataclasses import dataclass

from stagecoach.ulp.oncrpc.message import Message, roundup
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma.chunk_memory import ChunkMemory
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment
from stagecoach.ulp.rpcrdma.header import FIXED_OCTETS, Header, Padding, Procedure
from stagecoach.ulp.rpcrdma.padding import THRESHOLD, pad, padding_octets
from stagecoach.ulp.rpcrdma.plan import Plan, plan_call
from stagecoach.ulp.rpcrdma.read_chunks import split
from stagecoach.ulp.rpcrdma.settings import INITIAL_INLINE_OCTETS, ClientSettings


@dataclass(slots=True)
class Sizes:
    """What a client knows of its connection.

    Attributes
    ----------
    settings: its own. send_octets, receive_octets: of the longest Send to the server, and from it.
    can_read: whether the server may read. align: of opaque data, recommended by the server.
    """

    settings: ClientSettings
    send_octets: int = INITIAL_INLINE_OCTETS
    receive_octets: int = INITIAL_INLINE_OCTETS
    can_read: bool = False
    align: int = 0


class Offer:
    """Where the server may write the reply to a call: write list and reply chunk.

    Parameters
    ----------
    room: what the caller says about the reply. memory: registers it.

    Attributes
    ----------
    lists: with an empty read list. reply: the memory of the reply chunk.
    """

    def __init__(self, room: ReplyRoom, memory: ChunkMemory, sizes: Sizes):
        self._memory, self._sizes = memory, sizes
        self.reply = bytearray()
        self.lists = ChunkLists(writes=tuple(memory.writable(buffer) for buffer in room.bulks))
        # In the reply the write list comes back.
        octets = FIXED_OCTETS + self.lists.octets + room.octets
        if octets > sizes.receive_octets and sizes.settings.offer_reply_chunk:
            self.reply = bytearray(room.octets)
            self.lists = ChunkLists(writes=self.lists.writes, reply=memory.writable(self.reply))

    def encode(self, message: Message, credits: int) -> bytes:
        """The bytes of the Send; its read chunks are registered. Raises `MessageTooLong`."""
        sizes = self._sizes
        plan = plan_call(
            message,
            lists_octets=self.lists.octets,
            inline_octets=sizes.send_octets,
            segments=lambda octets: -(-octets // sizes.settings.segment_octets),
            can_read=sizes.can_read,
        )
        stream = split(message, plan.reduced)
        lists = ChunkLists(self._read_list(plan, stream), self.lists.writes, self.lists.reply)
        header = Header(message.xid, credits, Procedure.RDMA_MSG, lists)
        if plan.long:
            return Header(message.xid, credits, Procedure.RDMA_NOMSG, lists).encode()
        return self._padded(message, stream, header) or header.encode() + stream

    def _read_list(self, plan: Plan, stream: bytes) -> tuple[ReadSegment, ...]:
        chunks = [(0, self._memory.readable(stream))] if plan.long else []
        chunks += [(bulk.position, self._memory.readable(bulk.data)) for bulk in plan.reduced]
        return tuple(ReadSegment(at, segment) for at, segments in chunks for segment in segments)

    def _padded(self, message: Message, stream: bytes, header: Header) -> bytes | None:
        """The Send as RDMA_MSGP, `None` if the server does not want it or it gains nothing."""
        align, most = self._sizes.align, self._sizes.send_octets
        if align <= 1 or not message.bulks or header.lists.reads:
            return None
        last = message.bulks[-1]
        padding = Padding(align, THRESHOLD)
        padded = Header(
            header.xid, header.credits, Procedure.RDMA_MSGP, header.lists, padding
        ).encode()
        ends = last.position + roundup(len(last.data)) == len(stream)
        octets = len(padded) + len(stream) + padding_octets(padding, len(padded) + last.position)
        if not ends or len(last.data) <= THRESHOLD or octets > most:
            return None
        return padded + pad(stream, last.position, len(padded), padding)
