"""What is made of a device: wrong arguments, none left, closed."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    SRQ,
    AccessFlags,
    Cause,
    CompChannel,
    Context,
    DeviceClosed,
    FastMR,
    QPCap,
    QPInitAttr,
    QPState,
    QPStateError,
    Quota,
    QuotaExceeded,
    RecvWR,
    ResourceError,
    SendWR,
    SRQInitAttr,
    WROpcode,
    connect,
    inc_rkey,
    listen,
    query_qp,
)
from tests.integration.rig import READS, End
from tests.integration.verbs.pair import ATOMICS, HOST, Pair, in_each

ONE = QPCap(1, 1)


def _use_up(make: Callable[[], Any], most: int, more: Callable[[], Any] | None = None) -> None:
    """Makes as many as there are; one more is refused, until one of them is closed."""
    made = [make() for _ in range(most)]
    with pytest.raises(ResourceError):
        make()
    made.pop().close()
    made.append(make())
    for each in reversed(made):
        each.close()


def check_context(pair: Pair) -> None:
    context = pair.a
    attr = context.query_device()
    assert attr is context.attr
    assert attr.max_qp >= 4 and attr.max_qp_rd_atom == READS
    assert set(attr.operations) == set(WROpcode)
    assert repr(context).endswith(": 0 QPs, 0 CQs, 0 regions>")
    name = type(context.transport).__name__
    assert re.match(rf"<{name}\b.*\d+.*>", repr(context.transport))
    end = End(context)
    assert context.qps[end.qp.qp_num] is end.qp and context.mrs[end.mr.rkey] is end.mr
    context.reset()
    assert not context.qps and not context.mrs
    End(context).close()
    context.close()
    context.close()
    assert repr(context.transport).startswith(f"<{name}"), "also when it is closed"
    for use in (
        context.query_device,
        context.get_async_event,
        context.reset,
        lambda: PD(context),
        lambda: CQ(context),
        lambda: CompChannel(context),
        lambda: listen(context, HOST, 0),
    ):
        with pytest.raises(DeviceClosed, match="closed; allowed: an open Context"):
            use()
    with pytest.raises(TypeError, match="allowed: a Transport"):
        Context(object())  # type: ignore[arg-type]


def check_quota(pair: Pair) -> None:
    """A device that is opened again is empty, and the earlier context of no more use."""
    before = End(pair.a)
    with Context(pair.a.transport, Quota(qps=1, cqs=2, mrs=1, octets=100)) as context:
        with pytest.raises(DeviceClosed):
            PD(before.context)
        pd, cq = PD(context), CQ(context)
        kept = [QP(pd, QPInitAttr(cq, cq, ONE)), CQ(context), MR(pd, 100)]
        for demand in (
            lambda: QP(pd, QPInitAttr(cq, cq, ONE)),
            lambda: CQ(context),
            lambda: MR(pd, 1),
        ):
            with pytest.raises(QuotaExceeded, match="1 more asked for"):
                demand()
        kept.pop(0).close()
        QP(pd, QPInitAttr(cq, cq, ONE)).close()
    with pytest.raises(ValueError, match="quota qps is -1"):
        Quota(qps=-1)


def check_pd(pair: Pair) -> None:
    pd, cq = PD(pair.a), CQ(pair.a)
    region = MR(pd, 64)
    qp = QP(pd, QPInitAttr(cq, cq, ONE))
    srq = SRQ(pd, SRQInitAttr(1))
    pd.close()  # and all that is in it
    with pytest.raises(ValueError, match="closed"):
        region.read()
    with pytest.raises(QPStateError, match="closed"):
        qp.query()
    with pytest.raises(ValueError, match="closed"):
        srq.query()
    for make in (
        lambda: MR(pd, 64),
        lambda: FastMR(pd, 64),
        lambda: QP(pd, QPInitAttr(cq, cq, ONE)),
        lambda: SRQ(pd, SRQInitAttr(1)),
    ):
        with pytest.raises(ValueError, match="closed; allowed: an open PD"):
            make()
    with pytest.raises(TypeError, match="context"):
        PD(cq)  # type: ignore[arg-type]
    cq.close()


def check_mr(pair: Pair) -> None:
    pd, other = PD(pair.a), PD(pair.b)
    with MR(pd, 4096, AccessFlags.REMOTE_WRITE) as region:
        assert (region.lkey, region.length) == (region.rkey, 4096)
        region.write(b"hello", offset=4091)
        assert region.read(5, 4091) == b"hello" and region.read(offset=4095) == b"o"
        for wrong in ((5, 4092), (1, -1), (-1, 0)):
            with pytest.raises(ValueError, match="allowed: offset and length"):
                region.read(*wrong)
        with pytest.raises(ValueError, match="length of data"):
            region.write(b"short", 6)
    for use in (region.read, lambda: region.write(b"")):
        with pytest.raises(ValueError, match="closed; allowed: an open one"):
            use()
    for buffer in (b"constant", object(), memoryview(bytearray(8))[::2], True):
        with pytest.raises(TypeError, match="allowed: a writable, C-contiguous buffer"):
            MR(pd, buffer)
    for arguments, options in (
        ((0,), {}),
        ((8, 8), {}),
        ((8,), {"addr": 2**64 - 8}),
    ):
        with pytest.raises(ValueError, match="allowed"):
            MR(pd, *arguments, **options)
    with pytest.raises(TypeError, match="access"):
        MR(pd, 8, "write")  # type: ignore[arg-type]
    cq = CQ(pair.b)
    with QP(other, QPInitAttr(cq, cq, ONE)) as qp:
        with pytest.raises(ValueError, match="belongs to another device"):
            MR(pd, 8, qp=qp)
    cq.close()
    buffer = bytearray(8)
    _use_up(lambda: MR(pd, buffer), pair.a.attr.max_mr)
    pd.close()
    other.close()


def check_fast_mr(pair: Pair) -> None:
    with pair.link() as link:
        qp = link.active.qp
        region, other = (FastMR(link.active.pd, 64) for _ in range(2))
        assert region.invalidated
        for request, error in (
            (SendWR(1, WROpcode.REG_MR, mr=region, rkey=other.rkey), ValueError),
            (SendWR(1, WROpcode.REG_MR, rkey=region.rkey), TypeError),
            (SendWR(1, WROpcode.REG_MR, mr=region, rkey=region.rkey, access=8), ValueError),
            (SendWR(1, WROpcode.LOCAL_INV, [link.active.element(0, 8)]), ValueError),
        ):
            with pytest.raises(error, match="allowed"):
                qp.post_send(request)
        region.close()
        with pytest.raises(ValueError, match="closed"):
            qp.post_send(SendWR(1, WROpcode.REG_MR, mr=region, rkey=inc_rkey(region.rkey)))
        assert not link.active.cq.poll()


def check_cq(pair: Pair) -> None:
    cq = CQ(pair.a, 100)
    assert cq.cqe >= 100
    for number, error in ((0, ValueError), (-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="num_entries"):
            cq.poll(number)  # type: ignore[arg-type]
    for entries in (0, 1 << 20):
        with pytest.raises(ValueError, match="allowed"):
            CQ(pair.a, entries)
    with pytest.raises(ValueError, match="allowed: after req_notify"):
        cq.wait_event()
    with pytest.raises(ValueError, match="num_events"):
        cq.ack_events(1)
    pd = PD(pair.a)
    qp = QP(pd, QPInitAttr(cq, cq, QPCap(50, 50)))
    with pytest.raises(ResourceError, match="or a CQ with overcommit"):
        QP(pd, QPInitAttr(cq, cq, QPCap(50, 50)))
    with pytest.raises(ResourceError, match="in use by QPs"):
        cq.close()
    qp.close()
    cq.close()
    cq.close()
    for use in (cq.poll, cq.req_notify, cq.wait_event, cq.wait, lambda: cq.ack_events(0)):
        with pytest.raises(ValueError, match="closed; allowed: an open CQ"):
            use()
    with pytest.raises(ValueError, match="closed"):
        QP(pd, QPInitAttr(cq, cq, ONE))
    _use_up(lambda: CQ(pair.a, 1), pair.a.attr.max_cq)
    pd.close()


def check_comp_channel(pair: Pair) -> None:
    channel, other = CompChannel(pair.a), CompChannel(pair.b)
    with CQ(pair.a, channel=channel) as cq, CQ(pair.b, channel=other) as foreign:
        with pytest.raises(ValueError, match="has a channel"):
            cq.wait_event()
        with pytest.raises(ValueError, match="does not notify here"):
            channel.get_cq_event(foreign)
        channel.close()
        with pytest.raises(ValueError, match="allowed: an open CompChannel"):
            channel.get_cq_event()
        with pytest.raises(ValueError, match="allowed: an open CompChannel"):
            cq.req_notify()
    with pytest.raises(ValueError, match="another device"):
        CQ(pair.a, channel=other)
    with pytest.raises(ValueError, match="closed"):
        CQ(pair.a, channel=channel)
    with pytest.raises(TypeError, match="CompChannel or None"):
        CQ(pair.a, channel=pair.a)  # type: ignore[arg-type]


def check_srq(pair: Pair) -> None:
    pd, cq = PD(pair.a), CQ(pair.a)
    srq = SRQ(pd, SRQInitAttr(max_wr=4, max_sge=2))
    for attr in ({"max_wr": 0}, {"max_sge": 5}, {"max_wr": 1 << 20}):
        with pytest.raises(ValueError, match="allowed"):
            SRQInitAttr(**attr)
    element = SGE(0, 0, 0)
    with pytest.raises(ValueError, match="3 scatter/gather elements"):
        srq.post_recv(RecvWR(1, [element] * 3))
    with pytest.raises(TypeError, match="allowed: RecvWR"):
        srq.post_recv(SendWR(1))  # type: ignore[arg-type]
    srq.post_recv(*[RecvWR(1)] * 3)
    with pytest.raises(ResourceError, match="holds 4 and has 3; allowed: 1"):
        srq.post_recv(*[RecvWR(1)] * 2)
    assert srq.outstanding == 3
    with pytest.raises(ValueError, match="allowed: 0 to 4"):
        srq.modify(srq_limit=5)
    qp = QP(pd, QPInitAttr(cq, cq, ONE, srq=srq))
    with pytest.raises(ValueError, match="takes its receives from SRQ"):
        qp.post_recv(RecvWR(1))
    with pytest.raises(ResourceError, match="in use by QPs"):
        srq.close()
    with PD(pair.a) as other, pytest.raises(ValueError, match="another PD"):
        QP(other, QPInitAttr(cq, cq, ONE, srq=srq))
    qp.close()
    srq.close()
    for use in (srq.query, lambda: srq.post_recv(RecvWR(1)), lambda: srq.modify(srq_limit=1)):
        with pytest.raises(ValueError, match="closed; allowed: an open SRQ"):
            use()
    with pytest.raises(ValueError, match="closed"):
        QP(pd, QPInitAttr(cq, cq, ONE, srq=srq))
    _use_up(lambda: SRQ(pd, SRQInitAttr(1)), pair.a.attr.max_srq)
    pd.close()
    cq.close()


def check_qp(pair: Pair) -> None:
    pd, cq, foreign = PD(pair.a), CQ(pair.a), CQ(pair.b)
    cap = QPCap(max_send_wr=2, max_recv_wr=2, max_send_sge=1, max_recv_sge=1)
    qp = QP(pd, QPInitAttr(cq, cq, cap))
    attr, made_of = qp.query()
    assert (attr.qp_state, attr.cause, attr.cap) == (QPState.INIT, Cause.NONE, cap)
    assert (attr.max_rd_atomic, attr.path_emss, made_of.scq) == (None, None, cq)
    for sizes in ({"max_send_wr": 0}, {"max_recv_sge": 5}, {"max_inline_data": 5000}):
        with pytest.raises(ValueError, match="allowed"):
            QPCap(**sizes)
    with pytest.raises(QPStateError, match="in state INIT; allowed: RTS or ERR"):
        qp.post_send(SendWR(1))
    with pytest.raises(ValueError, match="belongs to another device"):
        QP(pd, QPInitAttr(foreign, cq, ONE))
    with pytest.raises(TypeError, match="scq"):
        QP(pd, QPInitAttr(None, cq, ONE))  # type: ignore[arg-type]
    qp.close()
    qp.close()
    assert qp.state == QPState.RESET
    for use in (
        qp.query,
        qp.query_state,
        lambda: qp.post_send(SendWR(1)),
        lambda: qp.post_recv(RecvWR(1)),
        lambda: connect(qp, HOST, 1),
    ):
        with pytest.raises(QPStateError, match="closed; allowed: an open QP"):
            use()
    wide = CQ(pair.a, overcommit=True)
    _use_up(lambda: QP(pd, QPInitAttr(wide, wide, ONE)), pair.a.attr.max_qp)
    for each in (pd, cq, foreign, wide):
        each.close()


def check_posting(pair: Pair) -> None:
    """What a queue does not take is an error of the call, and nothing of it is posted."""
    cap = QPCap(2, 2, max_send_sge=2, max_recv_sge=1)
    with pair.link(active={"cap": cap}) as link:
        end, qp = link.active, link.active.qp
        with pytest.raises(QPStateError, match="in state RTS; allowed: INIT"):
            qp.connect(None, initiator=True, crc=True, ord=1, ird=1, emss=1460)  # type: ignore[arg-type]
        for post, most, wrong in (
            (qp.post_send, 2, SendWR(1, sg=[end.element(0, 1)] * 3)),
            (qp.post_recv, 1, RecvWR(1, [end.element(0, 1)] * 2)),
        ):
            with pytest.raises(ValueError, match=f"allowed: 0 to {most}"):
                post(wrong)
            with pytest.raises(ResourceError, match="3 more work requests"):
                post(*[type(wrong)(1)] * 3)
            with pytest.raises(TypeError, match="request is a list"):
                post([type(wrong)(1)])
        for request, text in (
            (SendWR(1, WROpcode.RDMA_WRITE, send_flags=2), "with SOLICITED"),
            (SendWR(1, send_flags=16), "send_flags is 0x10"),
            (SendWR(1, imm_data=bytes(8)), "with imm_data"),
            (SendWR(1, WROpcode.IMM_DATA), "without imm_data"),
            (SendWR(1, WROpcode.IMM_DATA, [end.element(0, 1)], imm_data=bytes(8)), "allowed: none"),
            (SendWR(1, WROpcode.ATOMIC_SWAP, [end.element(0, 4)]), "one of 8"),
            (SendWR(1, WROpcode.ATOMIC_SWAP, [end.element(0, 8)], compare_add=1), "allowed: swap"),
            (SendWR(1, sg=[end.element(0, 1)], send_flags=9), "inline data of 1 bytes"),
        ):
            with pytest.raises(ValueError, match=text):
                qp.post_send(SendWR(0), request)
        with pytest.raises(ValueError, match="allowed: 8"):
            SendWR(1, WROpcode.IMM_DATA, imm_data=b"short")
        with pytest.raises(ValueError, match=r"SGE.length is 4294967296"):
            SGE(0, 1 << 32, 0)
        with pytest.raises(ValueError, match=r"SendWR.rkey is -1"):
            SendWR(rkey=-1)
        assert not end.cq.poll()
        assert query_qp(pair.a, qp.qp_num).counters.fpdus_sent == 0


@in_each([WROpcode.RDMA_READ, *ATOMICS])
def check_without_reads(pair: Pair, opcode: WROpcode) -> None:
    with pair.link(ord=0) as link:
        with pytest.raises(ValueError, match="ORD 0; allowed: on a QP with ORD 1 to "):
            link.active.qp.post_send(SendWR(1, opcode, [link.active.element(0, 8)]))


@in_each([WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM, *ATOMICS])
def check_without_rfc7306(pair: Pair, opcode: WROpcode) -> None:
    immediate = None if opcode in ATOMICS else bytes(8)
    with pair.link(active={"rfc7306": False}) as link:
        request = SendWR(1, opcode, [], imm_data=immediate)
        with pytest.raises(ValueError, match="made without RFC 7306"):
            link.active.qp.post_send(request)


def check_strict_rfc7306(pair: Pair) -> None:
    with Context(pair.a.transport, strict_rfc7306=True) as context:
        end, peer = End(context), End(pair.b)
        pair.join(end, peer)
        with pytest.raises(ValueError, match="ATOMIC_SWAP; this device has: "):
            end.qp.post_send(SendWR(1, WROpcode.ATOMIC_SWAP, [end.element(0, 8)]))
