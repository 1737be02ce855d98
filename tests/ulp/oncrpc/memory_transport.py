"""A client and a server transport joined in memory, which move bulk items beside the stream."""

import asyncio
from dataclasses import dataclass, field

from stagecoach.ulp.oncrpc.errors import (
    MessageTooLong,
    RpcConnectionError,
    RpcTransportError,
)
from stagecoach.ulp.oncrpc.message import PLACED, Bulk, Message
from stagecoach.ulp.oncrpc.transport import ReplyRoom


@dataclass
class MemoryCall:
    message: Message
    room: ReplyRoom
    answer: asyncio.Future
    buffers: list[memoryview] = field(default_factory=list)

    @property
    def bulk_room(self):
        return tuple(len(bulk) for bulk in self.room.bulks)

    async def reserve(self, octets):
        self.reserved = octets

    def buffer(self, octets):
        self.buffers.append(memoryview(bytearray(octets)))
        return self.buffers[-1]

    async def reply(self, message):
        placed = []
        for number, place in enumerate(self.room.bulks):
            data = message.bulks[number].data if number < len(message.bulks) else b""
            if len(data) > len(place):
                self.answer.set_exception(RpcTransportError("ERR_CHUNK"))
                raise MessageTooLong(f"{len(data)} octets; allowed: {len(place)}")
            place[: len(data)] = data
            placed.append(Bulk(PLACED, place[: len(data)]))
        rest = list(message.bulks[len(placed) :])
        if placed and rest:
            raise NotImplementedError("more bulk items than chunks")
        stream = message.stream if placed else message.whole()
        if not self.answer.done():
            self.answer.set_result(Message(stream, tuple(placed)))

    async def drop(self):
        self.answer.set_exception(RpcTransportError("dropped"))


class MemoryPair:
    """Both transports; `calls` remembers what came."""

    peer = "memory"

    def __init__(self):
        self._queue = asyncio.Queue()
        self.calls = []
        self.closed = False

    async def call(self, message, room):
        if self.closed:
            raise RpcConnectionError("closed")
        answer = asyncio.get_running_loop().create_future()
        await self._queue.put(MemoryCall(message, room, answer))
        return await answer

    async def receive(self):
        call = await self._queue.get()
        if call is None:
            raise RpcConnectionError("closed")
        self.calls.append(call)
        return call

    async def close(self):
        self.closed = True
        await self._queue.put(None)
