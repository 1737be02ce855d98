"""A call whose chunks ended the connection is answered with ERR_CHUNK when it comes again."""

import asyncio
import contextlib

import pytest

from stagecoach.host_driver import AccessFlags, cm
from stagecoach.host_driver.terminate import SegmentHeader, Terminate
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.rpcrdma import fatal_calls
from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ReadSegment, Segment
from stagecoach.ulp.rpcrdma.errors import ErrorCode
from stagecoach.ulp.rpcrdma.fatal_calls import FatalCalls, Suspects
from stagecoach.ulp.rpcrdma.header import Fault, Header
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from tests.ulp.rpcrdma.raw import RawPeer, call_of
from tests.ulp.rpcrdma.rig import Devices, echo, inline, message, run

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0xFA7A1
STREAM = inline(XID).stream
CLIENT = "192.0.2.1"


@contextlib.asynccontextmanager
async def a_connection(devices: Devices, listener: RdmaListener):
    accepting = asyncio.ensure_future(listener.accept())
    peer = RawPeer(devices.client)
    try:
        await asyncio.to_thread(cm.connect, peer.channel.qp, "127.0.0.1", listener.port)
        async with await accepting as transport:
            yield peer, transport
    finally:
        await peer.channel.close()


@pytest.mark.requirement("RFC8166-4.5.3-01")
@pytest.mark.parametrize("written", [False, True], ids=["read chunk", "write chunk"])
def test_it_is_an_error_on_the_next_connection(devices: Devices, written: bool):
    async def work():
        async with RdmaListener(devices.server, port=0) as listener:
            async with a_connection(devices, listener) as (peer, transport):
                short = peer.region(100, AccessFlags.REMOTE_WRITE)[1]
                lying = Segment(short.handle, 5000, short.offset)
                await peer.send(call_of(XID + 1, inline(XID + 1).stream))
                await echo(await transport.receive())
                if written:
                    await peer.send(call_of(XID, STREAM, writes=((lying,),)))
                    call = await transport.receive()
                    with contextlib.suppress(RpcConnectionError):
                        await call.reply(message(XID, bytearray(4999)))
                else:
                    await peer.send(call_of(XID, STREAM, (12, lying)))
                await peer.until_ended()
                with pytest.raises(RpcConnectionError):
                    await transport.receive()
            async with a_connection(devices, listener) as (peer, transport):
                # The other call that was answered then is not blamed.
                await peer.send(call_of(XID + 1, inline(XID + 1).stream))
                await echo(await transport.receive())
                assert (await peer.next_header()).fault is None
                await peer.send(call_of(XID, STREAM))
                header = await peer.next_header()
                assert (header.xid, header.fault) == (XID, Fault(ErrorCode.ERR_CHUNK))
                # Then the XID is that of another call.
                await peer.send(call_of(XID, STREAM))
                await echo(await transport.receive())
                assert (await peer.next_header()).fault is None
        devices.check_clean()

    run(work)


def test_a_client_that_vanishes_while_it_is_read_may_send_the_call_again(devices: Devices):
    async def work():
        async with RdmaListener(devices.server, port=0) as listener:
            async with a_connection(devices, listener) as (peer, transport):
                place = peer.readable(bytes(1 << 20))
                await peer.send(call_of(XID, STREAM, (12, place)))
                await peer.channel.close()
                with contextlib.suppress(RpcConnectionError):
                    await transport.receive()
            async with a_connection(devices, listener) as (peer, transport):
                await peer.send(call_of(XID, STREAM))
                await echo(await transport.receive())
                assert (await peer.next_header()).fault is None

    run(work)


# Who is blamed


def told(layer: int, error_type: int, segment: SegmentHeader | None) -> Terminate:
    return Terminate(layer, error_type, 0, False, segment is not None, False, None, segment)


def header(xid: int, *handles: int) -> Header:
    places = tuple(Segment(handle, 100, 0) for handle in handles)
    reads = (ReadSegment(12, Segment(99, 100, 0)),)
    return Header(xid, 1, lists=ChunkLists(reads=reads, writes=(places,), reply=places[:1]))


TAGGED = SegmentHeader(bytes([0xC1, 0x40]) + (6).to_bytes(4) + bytes(8))
READ_REQUEST = SegmentHeader(bytes([0x41, 0x41]) + bytes(4) + (1).to_bytes(4) + bytes(8))


@pytest.mark.parametrize(
    ("terminate", "blamed"),
    [
        (told(1, 1, TAGGED), 2),
        (told(0, 1, TAGGED), 2),
        (told(0, 1, READ_REQUEST), 4),
        (told(0, 1, None), 4),
        (told(1, 1, None), None),
        (told(1, 2, READ_REQUEST), None),
        (told(2, 0, None), None),
        (None, None),
    ],
)
def test_who_is_blamed(terminate: Terminate | None, blamed: int | None):
    fatal = FatalCalls()
    suspects = Suspects(fatal, CLIENT)
    # The second call has the STag of the first again.
    for each in (header(1, 6), header(2, 5, 6), header(3, 7), header(9)):
        suspects.write(each)
    suspects.ended(terminate)
    for each in (header(4), header(5)):
        suspects.not_read(each, terminate)
    again = Suspects(fatal, CLIENT)
    assert [xid for xid in range(10) if again.ended_another(xid)] == ([blamed] if blamed else [])
    assert not any(again.ended_another(xid) for xid in range(10))


def test_other_clients_are_not_blamed_and_few_calls_remembered(monkeypatch):
    monkeypatch.setattr(fatal_calls, "_REMEMBERED", 2)
    fatal = FatalCalls()
    for xid in (1, 2, 1, 3):
        fatal.add(CLIENT, xid)
    assert not fatal.take("192.0.2.2", 1)
    assert [fatal.take(CLIENT, xid) for xid in (1, 2, 3, 3)] == [True, False, True, False]
