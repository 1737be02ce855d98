"""GETPORT of the port mapper, octet by octet (RFC 1833, 3)."""

import asyncio

from stagecoach.ulp.oncrpc.rpcbind import tcp_port_of


def test_the_call_is_that_of_the_rfc():
    """A record of TCP: the call in 14 words, and its answer."""
    seen = []

    async def serve(reader, writer):
        record = await reader.readexactly(4 + 56)
        seen.append(record)
        xid = record[4:8]
        # REPLY, accepted, verifier AUTH_NONE, SUCCESS, the port.
        words = [1, 0, 0, 0, 0, 20048]
        body = xid + b"".join(word.to_bytes(4) for word in words)
        writer.write((0x80000000 | len(body)).to_bytes(4) + body)
        await writer.drain()
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await tcp_port_of("127.0.0.1", 100005, 3, port)

    assert asyncio.run(run()) == 20048
    words = [int.from_bytes(seen[0][at : at + 4]) for at in range(8, 60, 4)]
    call, rpc_version, portmap, version, getport = 0, 2, 100000, 2, 3
    assert words == [call, rpc_version, portmap, version, getport, 0, 0, 0, 0, 100005, 3, 6, 0]
