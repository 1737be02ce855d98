"""All users of a CQ overflow it at once, while the device cannot send."""

import pytest

from host_driver import (
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
    WROpcode,
)
from sim.disturbed import DisturbedDevice
from sim.model import rdmap
from sim.model.ddp import UntaggedHeader
from sim.model.rdmap import Opcode, control_octet
from tests.integration.rig import RawPeer
from tests.integration.test_failures import Bystander

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
        assert sorted(event.qp_num for event in context.events) == sorted(qp.qp_num for qp in qps)
        for qp, peer in zip(qps, peers, strict=True):
            qp.close()
            peer.close()
        assert device.statistics()["faults"] == []
