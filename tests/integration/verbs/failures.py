"""What a request that fails completes with, and what both ends learn of it."""

from collections.abc import Callable

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Cause,
    FastMR,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
    inc_rkey,
)
from tests.integration.rig import ALL, End
from tests.integration.verbs.pair import ATOMICS, SECONDS, Link, Pair, in_each, statuses, stopped

SUCCESS, FLUSHED = WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR
ANSWERED = (WROpcode.RDMA_READ, *ATOMICS)
WITH_ELEMENTS = (
    WROpcode.SEND,
    WROpcode.SEND_WITH_INV,
    WROpcode.RDMA_WRITE,
    WROpcode.RDMA_WRITE_WITH_IMM,
    *ANSWERED,
)


def request(opcode: WROpcode, element: SGE, link: Link, number: int = 2, **remote: int) -> SendWR:
    """One of 8 octets to or from the peer's memory."""
    immediate = bytes(8) if opcode == WROpcode.RDMA_WRITE_WITH_IMM else None
    return SendWR(number, opcode, [element], imm_data=immediate, **(link.remote | remote))


def fails(end: End, status: WCStatus, *requests: SendWR) -> None:
    """Of a Write, these requests and a Send the last of `requests` has that status."""
    end.qp.post_recv(RecvWR(9, [end.element()]))
    end.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE), *requests, SendWR(3))
    good = {each.wr_id: SUCCESS for each in requests}
    failed = {requests[-1].wr_id: status}
    assert statuses(end, 3 + len(requests)) == {
        1: SUCCESS,
        **good,
        **failed,
        3: FLUSHED,
        9: FLUSHED,
    }


# Errors that this end finds


@in_each(WITH_ELEMENTS)
def check_a_local_key_that_is_none(pair: Pair, opcode: WROpcode) -> None:
    with pair.link() as link:
        end = link.active
        bad = SGE(end.mr.addr, 8, end.mr.lkey ^ 1)
        fails(end, WCStatus.LOC_PROT_ERR, request(opcode, bad, link))
        assert stopped(end) == Cause.LOCAL_SEND_PROTECTION
        assert stopped(link.passive) == Cause.TERMINATE_RECEIVED
        assert not any(link.passive.buffer)


Wrong = Callable[[End], tuple[MR, int]]
"""What an element names that it may not: a region, and an offset in it."""


def _after_the_region(end: End) -> tuple[MR, int]:
    return end.mr, end.mr.length - 7


def _closed(end: End) -> tuple[MR, int]:
    end.mr.close()
    return end.mr, 0


def _of_another_pd(end: End) -> tuple[MR, int]:
    return MR(PD(end.context), end.buffer, ALL), 0


def _of_another_qp(end: End) -> tuple[MR, int]:
    qp = QP(end.pd, QPInitAttr(end.cq, end.cq, QPCap(1, 1)))
    return MR(end.pd, end.buffer, ALL, qp=qp), 0


def _not_registered(end: End) -> tuple[MR, int]:
    return FastMR(end.pd, end.buffer), 0


def _not_writable(end: End) -> tuple[MR, int]:
    return MR(end.pd, end.buffer, AccessFlags(0)), 0


def element_of(region: MR, offset: int) -> SGE:
    """8 octets."""
    return SGE(region.addr + offset, 8, region.lkey)


WRONG_ELEMENTS = (_after_the_region, _closed, _of_another_pd, _of_another_qp, _not_registered)


@in_each(WRONG_ELEMENTS)
def check_a_local_element_that_is_wrong(pair: Pair, wrong: Wrong) -> None:
    with pair.link() as link:
        region, offset = wrong(link.active)
        element = element_of(region, offset)
        link.active.qp.post_send(request(WROpcode.SEND, element, link), SendWR(3))
        assert statuses(link.active, 2) == {2: WCStatus.LOC_PROT_ERR, 3: FLUSHED}
        assert stopped(link.active) == Cause.LOCAL_SEND_PROTECTION
        assert stopped(link.passive) == Cause.TERMINATE_RECEIVED


@in_each(ANSWERED)
def check_a_sink_that_is_not_writable(pair: Pair, opcode: WROpcode) -> None:
    with pair.link() as link:
        region, offset = _not_writable(link.active)
        link.active.qp.post_send(request(opcode, element_of(region, offset), link))
        assert statuses(link.active, 1) == {2: WCStatus.LOC_PROT_ERR}
        assert stopped(link.active) == Cause.LOCAL_SEND_PROTECTION
        assert stopped(link.passive) == Cause.TERMINATE_RECEIVED


@in_each([*WRONG_ELEMENTS, _not_writable])
def check_a_receive_that_is_wrong(pair: Pair, wrong: Wrong) -> None:
    with pair.link() as link:
        end = link.passive
        region, offset = wrong(end)
        end.qp.post_recv(RecvWR(5, [element_of(region, offset)]), RecvWR(6))
        link.active.qp.post_send(SendWR(1, sg=[link.active.element(0, 8)]))
        assert statuses(end, 2) == {5: WCStatus.LOC_PROT_ERR, 6: FLUSHED}
        assert stopped(end) == Cause.LOCAL_RECEIVE_PROTECTION
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED
        assert not any(end.buffer)


def check_a_send_entry_that_is_none(pair: Pair) -> None:
    """The driver writes no such entry: here its opcode is changed in the ring."""
    with pair.link() as link:
        queue = link.active.qp._queues.send
        queue.write_send(SendWR(1), hidden=False)
        queue.ring.memory[0] = 0xFF
        link.active.qp._ring_doorbell(queue)
        assert statuses(link.active, 1) == {1: WCStatus.LOC_QP_OP_ERR}
        assert stopped(link.active) == Cause.LOCAL_BAD_ENTRY


@in_each(["unknown", "valid", "of another PD"])
def check_a_stag_operation_that_is_refused(pair: Pair, why: str) -> None:
    with pair.link() as link:
        end = link.active
        region = FastMR(PD(pair.a) if why == "of another PD" else end.pd, 64)
        register = SendWR(1, WROpcode.REG_MR, mr=region, rkey=inc_rkey(region.rkey), access=ALL)
        requests = {
            "unknown": [SendWR(2, WROpcode.LOCAL_INV, rkey=end.mr.rkey ^ 1)],
            "valid": [
                register,
                SendWR(2, WROpcode.REG_MR, mr=region, rkey=register.rkey, access=ALL),
            ],
            "of another PD": [SendWR(2, WROpcode.REG_MR, mr=region, rkey=register.rkey)],
        }[why]
        end.qp.post_send(*requests, SendWR(3))
        good = {1: SUCCESS} if len(requests) > 1 else {}
        assert statuses(end, len(requests) + 1) == good | {2: WCStatus.MW_BIND_ERR, 3: FLUSHED}
        assert stopped(end) == Cause.LOCAL_STAG_OPERATION
        assert stopped(link.passive) == Cause.TERMINATE_RECEIVED


def check_a_message_longer_than_its_receive(pair: Pair) -> None:
    with pair.link() as link:
        end = link.passive
        end.qp.post_recv(RecvWR(5, [end.element(0, 7)]), RecvWR(6))
        link.active.qp.post_send(SendWR(1, sg=[link.active.element(0, 8)]))
        assert statuses(end, 2) == {5: WCStatus.LOC_LEN_ERR, 6: FLUSHED}
        assert stopped(end) == Cause.UNTAGGED_TOO_LONG
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED


def check_a_cq_that_is_full(pair: Pair) -> None:
    """What is there is kept; the QP stops, and one of another CQ does not."""
    with pair.link() as bystander:
        end, other = End(pair.a), End(pair.b)
        end.qp.close()
        small = CQ(pair.a, 2, overcommit=True)
        end.qp = QP(end.pd, QPInitAttr(small, small, QPCap(16, 16)))
        pair.join(end, other)
        end.qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE) for n in range(16)))
        event = pair.a.get_async_event(SECONDS)
        assert (event.qp_num, event.cause) == (end.qp.qp_num, Cause.CQ_OVERFLOW)
        found = small.wait(16, SECONDS)
        assert [wc.wr_id for wc in found] == list(range(16))
        kept = [wc.status for wc in found].count(SUCCESS)
        assert kept >= 2
        assert [wc.status for wc in found] == [SUCCESS] * kept + [FLUSHED] * (16 - kept)
        bystander.active.qp.post_send(SendWR(1, WROpcode.RDMA_WRITE))
        assert statuses(bystander.active, 1) == {1: SUCCESS}
        end.close()
        small.close()
        other.close()


# Errors that the peer finds


REFUSED_READS = {
    Cause.READ_STAG_INVALID: {"rkey": 1},
    Cause.READ_BOUNDS: {"remote_addr": 0},
}
REFUSED_ATOMICS = {
    Cause.ATOMIC_STAG_INVALID: {"rkey": 1},
    Cause.ATOMIC_BOUNDS: {"remote_addr": 0},
}


@in_each(
    [
        (op, *each)
        for op in ANSWERED
        for each in (REFUSED_ATOMICS if op in ATOMICS else REFUSED_READS).items()
    ]
)
def check_memory_that_the_peer_does_not_have(
    pair: Pair, case: tuple[WROpcode, Cause, dict[str, int]]
) -> None:
    opcode, cause, wrong = case
    with pair.link() as link:
        element = link.active.element(0, 8)
        fails(link.active, WCStatus.REM_ACCESS_ERR, request(opcode, element, link, **wrong))
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED
        assert stopped(link.passive) == cause
        assert link.active.qp.terminate is not None


@in_each(
    [
        (op, right)
        for op in ANSWERED
        for right in (AccessFlags.LOCAL_WRITE, AccessFlags.REMOTE_WRITE)
    ]
)
def check_a_right_that_the_peer_does_not_give(
    pair: Pair, case: tuple[WROpcode, AccessFlags]
) -> None:
    opcode, access = case
    with pair.link(access=access) as link:
        link.active.qp.post_send(request(opcode, link.active.element(0, 8), link))
        assert statuses(link.active, 1) == {2: WCStatus.REM_ACCESS_ERR}
        expected = Cause.ATOMIC_NOT_PERMITTED if opcode in ATOMICS else Cause.READ_NOT_PERMITTED
        assert stopped(link.passive) == expected
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED


@in_each(ATOMICS)
def check_an_address_that_is_not_aligned(pair: Pair, opcode: WROpcode) -> None:
    with pair.link() as link:
        wrong = {"remote_addr": link.passive.mr.addr + 4}
        element = link.active.element(0, 8)
        fails(link.active, WCStatus.REM_OP_ERR, request(opcode, element, link, **wrong))
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED
        assert stopped(link.passive) == Cause.ATOMIC_MISALIGNED
        assert not any(link.passive.buffer)


@in_each(ATOMICS)
def check_an_operation_that_the_peer_does_not_have(pair: Pair, opcode: WROpcode) -> None:
    with pair.link(passive={"rfc7306": False}) as link:
        element = link.active.element(0, 8)
        fails(link.active, WCStatus.REM_INV_REQ_ERR, request(opcode, element, link))
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED
        assert stopped(link.passive) == Cause.UNEXPECTED_OPCODE


@in_each(ANSWERED)
def check_more_requests_than_the_peer_takes(pair: Pair, opcode: WROpcode) -> None:
    """Programs that agreed on another IRD, here 0, than the requester was told."""
    with pair.link(ird=0) as link:
        element = link.active.element(0, 8)
        fails(link.active, WCStatus.REM_INV_REQ_ERR, request(opcode, element, link))
        assert stopped(link.passive) == Cause.TOO_MANY_READ_REQUESTS
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED


WRITES = (WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM)
REFUSED_WRITES = {
    Cause.TAGGED_STAG_INVALID: {"rkey": 1},
    Cause.TAGGED_BOUNDS: {"remote_addr": 0},
    Cause.TAGGED_TO_WRAP: {"remote_addr": 2**64 - 4},
    Cause.WRITE_NOT_PERMITTED: {},
}


@in_each([(op, *each) for op in WRITES for each in REFUSED_WRITES.items()])
def check_a_write_that_the_peer_refuses(
    pair: Pair, case: tuple[WROpcode, Cause, dict[str, int]]
) -> None:
    """TCP took it, so it may be complete; the event tells of it (RFC 5040, 5.5)."""
    opcode, cause, wrong = case
    access = AccessFlags.REMOTE_READ if cause == Cause.WRITE_NOT_PERMITTED else ALL
    with pair.link(access=access) as link:
        link.passive.qp.post_recv(RecvWR(5))
        link.active.qp.post_send(request(opcode, link.active.element(0, 8), link, **wrong))
        assert statuses(link.active, 1)[2] in (SUCCESS, FLUSHED)
        assert stopped(link.passive) == cause
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED
        assert statuses(link.passive, 1) == {5: FLUSHED}
        assert not any(link.passive.buffer)


@in_each([WROpcode.SEND, WROpcode.SEND_WITH_INV, WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM])
def check_a_message_without_a_receive(pair: Pair, opcode: WROpcode) -> None:
    immediate = bytes(8) if opcode.name.endswith(("IMM", "IMM_DATA")) else None
    with pair.link() as link:
        link.active.qp.post_send(SendWR(2, opcode, imm_data=immediate, **link.remote))
        assert statuses(link.active, 1)[2] in (SUCCESS, FLUSHED)
        assert stopped(link.passive) == Cause.UNTAGGED_NO_BUFFER
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED


def check_an_stag_that_the_peer_does_not_have_invalidated(pair: Pair) -> None:
    """Its region is one of all its QPs."""
    with pair.link() as link:
        link.passive.qp.post_recv(RecvWR(5, [link.passive.element()]))
        rkey = link.passive.mr.rkey
        link.active.qp.post_send(SendWR(2, WROpcode.SEND_WITH_INV, rkey=rkey))
        assert stopped(link.passive) == Cause.INVALIDATE_REFUSED
        assert stopped(link.active) == Cause.TERMINATE_RECEIVED
        assert statuses(link.passive, 1) == {5: FLUSHED}
        assert not link.passive.mr.invalidated
