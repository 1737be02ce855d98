"""Completions that a channel does not expect end the connection, and nothing else happens."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from stagecoach.host_driver import (
    QP,
    WC,
    AccessFlags,
    QPState,
    SendFlags,
    SendWR,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.wr import SGE
from stagecoach.ulp.oncrpc.errors import RpcConnectionError
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.rpcrdma.channel import Channel
from stagecoach.ulp.rpcrdma.errors import UnexpectedCompletion
from stagecoach.ulp.rpcrdma.pump import CompletionPump
from tests.ulp.rpcrdma.raw import (
    SECONDS,
    RawPeer,
    call_of,
    raw_client,
    raw_server,
    with_rfc7306,
)
from tests.ulp.rpcrdma.rig import Devices, connected, echo, inline, message, room, run

pytestmark = pytest.mark.usefixtures("compiled_device")

XID = 0x1CE
IMMEDIATE = b"\x01\x00\x00\x00\x02\x00\x00\x00"

# A peer that really sends them


def immediate(_: RawPeer) -> SendWR:
    return SendWR(opcode=WROpcode.IMM_DATA, imm_data=IMMEDIATE)


def solicited(_: RawPeer) -> SendWR:
    return replace(immediate(_), send_flags=SendFlags.SIGNALED | SendFlags.SOLICITED)


def empty_write(_: RawPeer) -> SendWR:
    return SendWR(opcode=WROpcode.RDMA_WRITE_WITH_IMM, imm_data=IMMEDIATE)


REQUESTS = [immediate, solicited, empty_write]


@pytest.fixture(params=[True, False], ids=["taken by the QP", "refused by the QP"])
def ends_with(request: pytest.FixtureRequest) -> Iterator[type[RpcConnectionError]]:
    """How a connection ends at Immediate Data if its QP has that, and as it is."""
    with with_rfc7306() if request.param else contextlib.nullcontext():
        yield UnexpectedCompletion if request.param else RpcConnectionError


@pytest.mark.parametrize("request_of", REQUESTS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("answering", [False, True], ids=["waiting", "answering"])
def test_a_client_that_sends_immediate_data_loses_the_connection(
    devices: Devices,
    ends_with: type[RpcConnectionError],
    request_of: Callable[[RawPeer], SendWR],
    answering: bool,
):
    async def work():
        async with raw_client(devices) as (peer, transport):
            await peer.send(call_of(XID, inline(XID).stream))
            call = await transport.receive()
            if not answering:
                await echo(call)
                await peer.next()
            await peer.channel.post([request_of(peer)])
            with pytest.raises(ends_with):
                await asyncio.wait_for(transport.receive(), SECONDS)
            if answering:
                with pytest.raises(ends_with):
                    await call.reply(inline(XID))
            await peer.until_ended()
            assert peer.received.empty()

    run(work)


@pytest.mark.parametrize("with_write", [False, True], ids=["alone", "after an RDMA Write"])
def test_a_server_that_sends_immediate_data_loses_the_connection(
    devices: Devices, ends_with: type[RpcConnectionError], with_write: bool
):
    async def work():
        async with raw_server(devices) as (transport, peer):
            buffer = memoryview(bytearray(500))
            task = asyncio.ensure_future(transport.call(message(XID), ReplyRoom(100, (buffer,))))
            header = await peer.next_header()
            request = immediate(peer)
            if with_write:
                _, source = peer.region(b"w" * 500, AccessFlags(0))
                (target,) = header.lists.writes[0]
                request = SendWR(
                    opcode=WROpcode.RDMA_WRITE_WITH_IMM,
                    sg=[SGE(source.offset, 500, source.handle)],
                    remote_addr=target.offset,
                    rkey=target.handle,
                    imm_data=IMMEDIATE,
                )
            await peer.channel.post([request])
            with pytest.raises(ends_with):
                await asyncio.wait_for(task, SECONDS)
            with pytest.raises(ends_with):
                await transport.call(inline(XID + 1), room(100))
            await peer.until_ended()

    run(work)


@pytest.mark.parametrize("opcode", [WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP])
def test_atomics_on_the_memory_of_a_call_change_nothing(
    devices: Devices, ends_with: type[RpcConnectionError], opcode: WROpcode
):
    async def work():
        async with raw_server(devices) as (transport, peer):
            buffer = memoryview(bytearray(512))
            task = asyncio.ensure_future(transport.call(message(XID), ReplyRoom(100, (buffer,))))
            (target,) = (await peer.next_header()).lists.writes[0]
            _, sink = peer.region(8, AccessFlags.LOCAL_WRITE)
            operands = {"swap": 7} if opcode == WROpcode.ATOMIC_CMP_AND_SWP else {"compare_add": 7}
            await peer.channel.post(
                [
                    SendWR(
                        opcode=opcode,
                        sg=[SGE(sink.offset, 8, sink.handle)],
                        remote_addr=target.offset + -target.offset % 8,
                        rkey=target.handle,
                        **operands,
                    )
                ]
            )
            # The device refuses them in any case: write chunks cannot be read.
            with pytest.raises(RpcConnectionError):
                await asyncio.wait_for(task, SECONDS)
            assert buffer == bytes(512)

    run(work)


# Completions that no device should make


class Tap:
    """A channel whose requests and completions are seen, and to which completions are fed.

    Attributes
    ----------
    sent, receiving: `wr_id` of what was posted, the oldest first. completions: that came.
    """

    def __init__(self, channel: Channel, posted: "Posted"):
        self.channel = channel
        self.sent, self.receiving = posted.sends[channel.qp], posted.receives[channel.qp]
        self.completions: list[WC] = []
        deliver = channel.deliver

        def seen(completions: list[WC]) -> None:
            self.completions += completions
            deliver(completions)

        channel.deliver = seen  # type: ignore[method-assign]

    def next_receive(self, number: int = 0) -> int:
        """Of those that are outstanding."""
        done = {each.wr_id for each in self.completions if each.opcode == WCOpcode.RECV}
        return [each for each in self.receiving if each not in done][number]

    async def came(self, opcode: WCOpcode) -> WC:
        """The last completion of this kind."""
        async with asyncio.timeout(SECONDS):
            while not (found := [each for each in self.completions if each.opcode == opcode]):
                await asyncio.sleep(0.001)
        return found[-1]

    def completion(self, opcode: WCOpcode, wr_id: int, octets: int = 28, **fields) -> WC:
        number = self.channel.qp.qp_num
        return WC(wr_id, WCStatus.SUCCESS, opcode, octets, number, **fields)


class Posted:
    """What is posted to each QP."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.sends: dict[QP, list[int]] = defaultdict(list)
        self.receives: dict[QP, list[int]] = defaultdict(list)
        for name, found in (("post_send", self.sends), ("post_recv", self.receives)):
            monkeypatch.setattr(QP, name, self._watched(getattr(QP, name), found))

    @staticmethod
    def _watched(post: Callable[..., None], found: dict[QP, list[int]]) -> Callable[..., None]:
        def watched(qp: QP, *requests: SendWR) -> None:
            found[qp] += [each.wr_id for each in requests]
            post(qp, *requests)

        return watched


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Posted:
    return Posted(monkeypatch)


NEVER = 1 << 40
Unexpected = Callable[[Tap, WC, WC], WC]
"""From the channel, a receive that has completed, and a Send that has, to a completion."""


def cases() -> Iterator[tuple[str, Unexpected]]:
    """Every opcode with numbers of receives and of Sends: posted never, once, now."""
    for opcode in WCOpcode:
        yield f"{opcode.name} never posted", lambda tap, r, s, o=opcode: tap.completion(o, NEVER)
        yield (
            f"{opcode.name} of a receive that completed",
            lambda tap, r, s, o=opcode: replace(r, opcode=o),
        )
        yield (
            f"{opcode.name} of a Send that completed",
            lambda tap, r, s, o=opcode: replace(s, opcode=o),
        )
        if opcode != WCOpcode.SEND:
            yield (
                f"{opcode.name} of a Send that is outstanding",
                lambda tap, r, s, o=opcode: tap.completion(o, tap.sent[-2]),
            )
        if opcode != WCOpcode.RECV:
            yield (
                f"{opcode.name} of a receive that is outstanding",
                lambda tap, r, s, o=opcode: tap.completion(o, tap.next_receive()),
            )
    yield (
        "a Send before the one before it",
        lambda tap, r, s: tap.completion(WCOpcode.SEND, tap.sent[-1]),
    )
    yield (
        "a receive before the one before it",
        lambda tap, r, s: replace(r, wr_id=tap.next_receive(1)),
    )
    yield (
        "a receive with Immediate Data",
        lambda tap, r, s: replace(r, wr_id=tap.next_receive(), wc_flags=WCFlags.WITH_IMM),
    )
    yield (
        "a receive of more octets than were posted",
        lambda tap, r, s: replace(r, wr_id=tap.next_receive(), byte_len=4097),
    )


CASES = list(cases())


@pytest.mark.parametrize("end", ["client", "server"])
@pytest.mark.parametrize("unexpected", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_a_completion_that_is_not_expected_ends_the_connection(
    devices: Devices, posted: Posted, unexpected: Unexpected, end: str
):
    async def work():
        async with connected(devices, handler=echo) as pair:
            transport = getattr(pair, end)
            channel = pair.client._channel if end == "client" else pair.server.channel
            tap = Tap(channel, posted)
            await pair.client.call(inline(XID), room(100))
            received, sent = await tap.came(WCOpcode.RECV), await tap.came(WCOpcode.SEND)
            before = (transport.discarded, len(tap.completions))
            # Two Sends that cannot have completed before the loop runs again.
            futures = [await channel.send(bytes(28)) for _ in range(2)]
            came: list[bytes] = []
            channel._on_message = lambda slot, octets, stag: came.append(octets)
            fed = unexpected(tap, received, sent)
            # What follows it is not looked at.
            channel.deliver([fed, tap.completion(WCOpcode.SEND, tap.sent[-2])])
            assert isinstance(channel.error, UnexpectedCompletion)
            assert channel.error.completion == fed
            assert str(channel.error).startswith(f"the connection was ended at {fed.describe()}; ")
            for future in futures:
                with pytest.raises(UnexpectedCompletion):
                    await future
            assert came == []
            assert transport.discarded == before[0]
            with pytest.raises(UnexpectedCompletion):
                if end == "client":
                    await transport.call(inline(1), room(100))
                else:
                    await transport.receive()
            other = pair.server.channel if end == "client" else pair.client._channel
            async with asyncio.timeout(SECONDS):
                while other.error is None:
                    await asyncio.sleep(0.001)

    run(work)


@pytest.mark.parametrize("status", [each for each in WCStatus if each != WCStatus.SUCCESS])
@pytest.mark.parametrize("opcode", WCOpcode)
def test_a_completion_in_error_ends_the_connection(
    devices: Devices, posted: Posted, status: WCStatus, opcode: WCOpcode
):
    async def work():
        async with connected(devices, handler=echo) as pair:
            channel = pair.server.channel
            tap = Tap(channel, posted)
            future = await channel.send(bytes(28))
            channel.deliver([replace(tap.completion(opcode, tap.sent[-1]), status=status)])
            with pytest.raises(RpcConnectionError, match=f"is lost: .*{status.name}"):
                await future

    run(work)


def test_a_qp_does_not_get_the_completions_of_an_earlier_one_of_its_number(devices: Devices):
    class Receiver:
        def __init__(self, loop: asyncio.AbstractEventLoop):
            self.loop, self.told = loop, []
            self.qp = type("FakeQp", (), {"qp_num": 5, "state": QPState.RTS})()

        def deliver(self, completions: list[WC]) -> None:
            self.told += completions

        def lost(self, why: str) -> None:
            self.told.append(why)

    class FakeCq:
        def __init__(self) -> None:
            self.ready: list[WC] = []

        def poll(self, number: int) -> list[WC]:
            found, self.ready = self.ready[:number], self.ready[number:]
            return found

    async def work():
        loop = asyncio.get_running_loop()
        cq = FakeCq()
        pump = CompletionPump(None, cq)  # type: ignore[arg-type]
        first, second = Receiver(loop), Receiver(loop)
        pump.add(first)
        pump.remove(first)
        cq.ready = [WC(7, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV, 0, 5)] * 70
        pump.add(second)
        new = WC(8, WCStatus.SUCCESS, WCOpcode.RECV, 28, 5)
        cq.ready.append(new)
        pump._take()
        await asyncio.sleep(0)
        assert (first.told, second.told) == ([], [new])

    run(work)
