"""All users of a CQ overflow it at once, while the device cannot send."""

import contextlib

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.disturbed import DisturbedDevice
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, control_octet
from tests.integration.rig import RawPeer, open_device
from tests.integration.test_failures import Bystander, send

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

MESSAGES = 48
SECONDS = 60.0


def sends(octets: int) -> list[bytes]:
    control = control_octet(Opcode.SEND)
    return [
        UntaggedHeader(qn=rdmap.QN_SEND, msn=msn, rsvd_ulp=control).encode() + bytes(octets)
        for msn in range(1, MESSAGES + 1)
    ]


@pytest.mark.requirement("RDMAP-8.1.1-11", "SEC-6.4.6-01")
def test_every_qp_is_stopped_and_told_and_a_bystander_goes_on():
    """Whoever is to take the errors has FPDUs before its Terminates, whose completions are lost."""
    device = DisturbedDevice()
    with Context(device) as context:
        bystander = Bystander(context)
        pd, small = PD(context), CQ(context, 2, overcommit=True)
        mr = MR(pd, bytearray(64))
        element = SGE(mr.addr, 8, mr.lkey)
        count = context.attr.max_qp - len(context.qps)
        cap = QPCap(MESSAGES, MESSAGES)
        qps = [QP(pd, QPInitAttr(small, small, cap)) for _ in range(count)]
        peers = [RawPeer(qp) for qp in qps]
        # Nothing begins before all is posted and has come.
        device.hold(reads=True, transmit=True)
        for qp, peer in zip(qps, peers, strict=True):
            qp.post_recv(*(RecvWR(n, [element]) for n in range(MESSAGES)))
            peer.send(*sends(element.length))
            qp.post_send(*(SendWR(n, WROpcode.RDMA_WRITE, [element]) for n in range(MESSAGES)))
        device.run_cycles(2000)
        device.hold(transmit=True)
        device.run_cycles(40_000)
        device.hold()
        for qp, peer in zip(qps, peers, strict=True):
            peer.pump_until(lambda peer=peer: peer.ended, SECONDS)
            assert qp.query_state() == (QPState.ERR, Cause.CQ_OVERFLOW)
            assert peer.ulpdus[-1][1] == control_octet(Opcode.TERMINATE)
        bystander.check()

        def told() -> list[int]:
            """QPs of which an event came; the bystander's peer has gone, too."""
            quiet = bystander.end.qp.qp_num
            return sorted(event.qp_num for event in context.events if event.qp_num != quiet)

        context.poll_until(lambda: len(told()) >= count, SECONDS, "the events")
        assert told() == sorted(qp.qp_num for qp in qps)
        for qp, peer in zip(qps, peers, strict=True):
            qp.close()
            peer.close()
        assert device.statistics()["faults"] == []


@pytest.mark.requirement("RDMAP-8.1.1-11", "SEC-6.4.6-01")
@pytest.mark.parametrize("cqe, entries, each", [(100, 256, 136), (16_000, 32_768, 16_800)])
def test_a_cq_of_any_size_overflows_when_its_ring_is_full(cqe: int, entries: int, each: int):
    """With more receives than it has entries, and nobody who polls: all entries are good."""
    with open_device() as context:
        pd, cq = PD(context), CQ(context, cqe, overcommit=True)
        qps = [QP(pd, QPInitAttr(CQ(context), cq, QPCap(1, each))) for _ in range(2)]
        peers = [RawPeer(qp) for qp in qps]
        for qp in qps:
            qp.post_recv(*(RecvWR(n) for n in range(each)))
        for qp, peer in zip(qps, peers, strict=True):
            # A peer that goes on when the QP has stopped finds its stream closed.
            with contextlib.suppress(ConnectionError):
                for first in range(0, each, 100):
                    count = min(100, each - first)
                    peer.send(*(send(b"", msn=first + n + 1) for n in range(count)))
            assert qp is not qps[0] or qp.query_state() == (QPState.RTS, Cause.NONE)
        stopped = qps[-1]
        peers[-1].pump_until(lambda: peers[-1].ended, SECONDS)
        context.poll_until(lambda: bool(context.events), SECONDS, "the event")
        (event,) = context.events
        assert (event.qp_num, event.cause) == (stopped.qp_num, Cause.CQ_OVERFLOW)
        for qp in qps:
            qp.close()
        statuses = [wc.status for wc in cq.wait(2 * each, SECONDS)]
        assert statuses.count(WCStatus.SUCCESS) == entries
        assert statuses.count(WCStatus.WR_FLUSH_ERR) == 2 * each - entries
        for peer in peers:
            peer.close()
