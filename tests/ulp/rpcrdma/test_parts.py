"""What the ends are made of: private data, budgets, plans, returned chunks, padding, CCP."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecoach.host_driver import WC, QPState, WCOpcode, WCStatus
from stagecoach.ulp.oncrpc.budget import Budget
from stagecoach.ulp.oncrpc.errors import MessageTooLong, RpcTransportError
from stagecoach.ulp.oncrpc.message import PLACED, roundup
from stagecoach.ulp.rpcrdma.chunks import EMPTY_LISTS_OCTETS, Segment
from stagecoach.ulp.rpcrdma.credits import CreditWindow
from stagecoach.ulp.rpcrdma.plan import plan_call
from stagecoach.ulp.rpcrdma.private_data import PrivateData
from stagecoach.ulp.rpcrdma.pump import CompletionPump
from stagecoach.ulp.rpcrdma.reply import cut
from stagecoach.ulp.rpcrdma.returned import placed, returned_octets
from stagecoach.ulp.rpcrdma.settings import (
    DEFAULT_PORT,
    NETID_IPV4,
    NETID_IPV6,
    ClientSettings,
    Profile,
    ServerSettings,
    Settings,
)
from tests.ulp.rpcrdma.rig import message

LINUX = bytes.fromhex("f6ab0e1801010303")
"""Of the client in the captured session."""


def test_private_data_is_that_of_linux():
    assert PrivateData(4096, 4096, True).encode() == LINUX
    assert PrivateData.decode(LINUX) == PrivateData(4096, 4096, True)
    assert PrivateData.decode(LINUX + b"more") == PrivateData(4096, 4096, True)


@pytest.mark.parametrize("octets", [b"", LINUX[:7], b"x" + LINUX[1:], LINUX[:4] + b"\2\1\3\3"])
def test_other_private_data_says_nothing(octets: bytes):
    assert PrivateData.decode(octets) is None


@given(st.integers(1, 256), st.integers(1, 256), st.booleans())
def test_private_data_of_all_sizes(send: int, receive: int, invalidation: bool):
    each = PrivateData(1024 * send, 1024 * receive, invalidation)
    assert PrivateData.decode(each.encode()) == each


@pytest.mark.requirement("RPCRDMA-12-01", "RPCRDMA-12-02", "RFC8166-9-01", "RFC8166-9-02")
def test_port_and_netids_are_the_registered_ones():
    assert (DEFAULT_PORT, NETID_IPV4, NETID_IPV6) == (20049, "rdma", "rdma6")


@pytest.mark.parametrize(
    ("kind", "fields", "detail"),
    [
        (Settings, {"credits": 0}, "credits is 0; allowed: 1 to 1024"),
        (Settings, {"inline_octets": 1023}, "inline_octets is 1023; allowed: 1024 to 262144"),
        (Settings, {"inline_octets": 1030}, "inline_octets is 1030; allowed: multiples of 1024"),
        (Settings, {"maximum_octets": -1}, "maximum_octets is -1"),
        (ClientSettings, {"segment_octets": 0}, "segment_octets is 0; allowed: 1 to 4294967295"),
        (ServerSettings, {"align": 3}, "align is 3; allowed: multiples of 4"),
    ],
)
def test_settings_that_no_connection_has_are_refused(kind, fields, detail: str):
    with pytest.raises(ValueError, match=detail):
        kind(**fields)


def test_the_profile_of_today_is_the_default():
    assert Settings().profile is Profile.RFC8166


def test_a_budget_serves_in_order_and_forgets_those_who_go_away():
    async def work():
        budget, order = Budget(3), []

        async def take(name: str, count: int) -> None:
            await budget.take(count)
            order.append(name)

        await take("first", 2)
        tasks = [asyncio.ensure_future(take(name, count)) for name, count in [("b", 3), ("c", 1)]]
        await asyncio.sleep(0)
        # There is one left, but the one who asked for three was before.
        assert order == ["first"]
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert order == ["first", "c"]
        budget.fail(RpcTransportError("over"))
        with pytest.raises(RpcTransportError, match="over"):
            await budget.take()

    asyncio.run(work())


@pytest.mark.requirement("RPCRDMA-3.3-04", "RPCRDMA-3.8-05", "RPCRDMA-4.1-06", "RPCRDMA-6.1-01")
@given(
    st.lists(st.sampled_from(["take", "give", "done", "answer", "grant"]), max_size=60), st.data()
)
def test_calls_and_dones_never_exceed_what_is_requested_and_granted(steps: list[str], data):
    async def work():
        window = CreditWindow(8)
        tasks: list[asyncio.Future[None]] = []
        sent: list[int] = []
        for step in steps:
            if step == "take":
                tasks.append(asyncio.ensure_future(window.take()))
            elif step == "grant":
                window.grant(data.draw(st.integers(0, 12)))
            elif window.outstanding and step == "done":
                window.sent_done()
                window.give()
            elif window.outstanding and step == "give":
                window.give()
            elif window.outstanding and step == "answer":
                sent.append(window.sent_call())
                window.answered(sent[-1])
                assert window.unacknowledged_dones == 0
            before = window.outstanding
            await asyncio.sleep(0)
            allowed = min(window.requested, window.granted)
            if window.outstanding > before:
                used = window.outstanding + window.unacknowledged_dones
                assert used <= allowed or window.outstanding == 1
            waiting = any(not task.done() for task in tasks)
            # Nobody waits without need, and never with nothing under way.
            assert not (waiting and window.may_send)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(work())


def test_what_came_before_the_end_of_a_qp_is_told_before_it():
    told: list[str] = []
    loop = SimpleNamespace(call_soon_threadsafe=lambda method, argument: method(argument))
    receiver = SimpleNamespace(
        qp=SimpleNamespace(qp_num=3, state=QPState.ERR),
        loop=loop,
        deliver=lambda completions: told.extend(f"completion {each.wr_id}" for each in completions),
        lost=lambda why: told.append(why),
    )
    found = [[], [WC(5, WCStatus.SUCCESS, WCOpcode.RECV, 1, 3)], []]
    cq = SimpleNamespace(poll=lambda number: found.pop())
    pump = CompletionPump(None, cq)  # type: ignore[arg-type]
    pump.add(receiver)  # type: ignore[arg-type]
    pump._look_for_stopped()
    assert told == ["completion 5", "the QP has stopped"]


def plan(octets: list[int], inline_octets: int = 1024, can_read: bool = True):
    return plan_call(
        message(1, *map(bytes, octets)),
        lists_octets=EMPTY_LISTS_OCTETS,
        inline_octets=inline_octets,
        segments=lambda octets: -(-octets // 1000),
        can_read=can_read,
    )


def test_the_largest_items_become_chunks_and_only_as_many_as_needed():
    def reduced(*octets: int, **fields) -> list[int]:
        return [len(bulk.data) for bulk in plan(list(octets), **fields).reduced]

    assert reduced(100, 500, 300) == []
    assert reduced(500, 100, 500) == [500]
    assert reduced(300, 5000, 400, 700) == [5000, 700]
    # Less than the segment takes in the list.
    assert reduced(*[20] * 60) == []
    assert plan([20] * 60).long
    assert not plan([5000]).long
    with pytest.raises(MessageTooLong, match="peer that may not read; allowed: 0 to 1024"):
        plan([5000], can_read=False)
    with pytest.raises(MessageTooLong, match="chunk lists of"):
        plan([100_000])


OFFERED = (Segment(1, 100, 0), Segment(2, 50, 1000), Segment(3, 7, 2000))


def returned(*lengths: int, chunk=OFFERED):
    segments = zip(chunk, lengths, strict=True)
    return tuple(Segment(each.handle, length, each.offset) for each, length in segments)


@pytest.mark.requirement("RPCRDMA-3.6-01", "RPCRDMA-3.7-03", "RPCRDMA-3.4-08")
@pytest.mark.parametrize(
    ("lengths", "octets"),
    [
        ((0, 0, 0), 0),
        ((33, 0, 0), 33),
        ((100, 0, 0), 100),
        ((100, 49, 0), 149),
        ((100, 50, 7), 157),
        # With the roundup, as RFC 5666, 3.7 has it.
        ((36, 0, 0), 36),
        ((100, 52, 0), 152),
        ((100, 50, 8), 157),
    ],
)
def test_returned_lengths_of_filled_chunks(lengths: tuple[int, ...], octets: int):
    assert returned_octets(OFFERED, returned(*lengths)) == octets


@pytest.mark.parametrize(
    "lengths", [(99, 50, 0), (0, 50, 0), (101, 50, 0), (100, 50, 12), (100, 0, 7), (160, 0, 0)]
)
def test_returned_chunks_with_gaps_or_too_much_are_refused(lengths: tuple[int, ...]):
    with pytest.raises(RpcTransportError, match="bytes"):
        returned_octets(OFFERED, returned(*lengths))


def test_other_chunks_than_the_offered_ones_are_refused():
    for other in (
        OFFERED[:2],
        (*OFFERED[:2], Segment(4, 7, 2000)),
        (*OFFERED[:2], Segment(3, 7, 1)),
    ):
        with pytest.raises(RpcTransportError, match="the reply returns chunk"):
            returned_octets(OFFERED, other)
    with pytest.raises(RpcTransportError, match="2 write chunks; allowed: 1"):
        placed([OFFERED], [OFFERED, OFFERED], [memoryview(bytearray(157))])
    # Without a write list none is used.
    (unused,) = placed([OFFERED], [], [memoryview(bytearray(157))])
    assert (unused.position, len(unused.data)) == (PLACED, 0)


@given(st.integers(0, 157))
def test_what_the_server_returns_is_what_the_client_takes(octets: int):
    room = memoryview(bytearray(157))
    (bulk,) = placed([OFFERED], [cut(OFFERED, octets)], [room])
    assert (bulk.position, len(bulk.data)) == (PLACED, octets)
    assert roundup(octets) - octets < 4
