"""The client reads what a reply has as read chunks (RFC 5666, 3.5 and 5.1)."""

from contextlib import ExitStack

from stagecoach.host_driver import MR, SGE, AccessFlags, SendFlags, SendWR, WROpcode
from stagecoach.ulp.oncrpc.errors import RpcTransportError
from stagecoach.ulp.oncrpc.message import Message
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.chunks import Segment
from stagecoach.ulp.rpcrdma.header import Header
from stagecoach.ulp.rpcrdma.read_chunks import items, join, read_chunks


def read_requests(segments: tuple[Segment, ...], into: SGE) -> list[SendWR]:
    """An RDMA Read for each segment that is not empty, one after the other into the element."""
    requests = []
    at = into.addr
    for segment in segments:
        if segment.length:
            element = SGE(at, segment.length, into.lkey)
            requests.append(
                SendWR(
                    opcode=WROpcode.RDMA_READ,
                    sg=[element],
                    remote_addr=segment.offset,
                    rkey=segment.handle,
                    send_flags=SendFlags(0),
                )
            )
        at += segment.length
    return requests


async def read_all(channel: Channel, requests: list[SendWR], limit: int) -> None:
    """RDMA Reads, at most `limit` of them under way; returns when all are complete.

    What is above the ORD of the connection waits in the device.
    """
    batch = len(requests) if limit >= channel.ord else limit
    for start in range(0, len(requests), max(batch, 1)):
        await (await channel.post(requests[start : start + batch]))


async def fetch(
    channel: Channel, header: Header, stream: bytes, most_octets: int, limit: int
) -> Message:
    """The message of a header with read chunks, in memory that is the caller's alone.

    Raises `HeaderError` for a read list that lies, `RpcTransportError` if no Reads are possible.
    """
    channel.require_open()
    whole, chunks = read_chunks(header, most_octets)
    if whole is None:
        items(header, stream, chunks)  # before anything is read
    if not limit:
        raise RpcTransportError("a reply as read chunks, and no RDMA Reads are possible")
    buffers = [bytearray(chunk.octets) for chunk in ([whole] if whole else []) + chunks]
    with ExitStack() as regions:
        requests: list[SendWR] = []
        for chunk, buffer in zip(([whole] if whole else []) + chunks, buffers, strict=True):
            if not buffer:
                continue
            region = MR(channel.pd, buffer, AccessFlags.LOCAL_WRITE, qp=channel.qp)
            regions.callback(region.close)
            element = SGE(region.addr, region.length, region.lkey)
            requests += read_requests(chunk.segments, element)
        if requests:
            await read_all(channel, requests, limit)
    if whole is not None:
        stream = bytes(buffers.pop(0))
    return join(header, stream, chunks, [memoryview(buffer) for buffer in buffers])
