"""A QP sends and takes atomics and Immediate Data only if its program asked for RFC 7306."""

import re

import pytest

from stagecoach.host_driver import QP, SGE, QPInitAttr, SendWR, WROpcode, registers
from tests.host_driver.fake_device import NoStream

SINK = SGE(0x1000, 8, 0xA1)
EXTENDED = [
    SendWR(1, WROpcode.IMM_DATA, imm_data=bytes(8)),
    SendWR(1, WROpcode.RDMA_WRITE_WITH_IMM, [SINK], imm_data=bytes(8)),
    SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, [SINK], compare_add=1),
    SendWR(1, WROpcode.ATOMIC_CMP_AND_SWP, [SINK], compare_add=1, swap=2),
    SendWR(1, WROpcode.ATOMIC_SWAP, [SINK], swap=2),
]


def connected(verbs, **options: bool) -> QP:
    qp = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, **options))
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return qp


def test_a_qp_has_none_unless_its_program_said_so(verbs):
    for options, told in (({}, 0), ({"rfc7306": False}, 0), ({"rfc7306": True}, 1)):
        qp = connected(verbs, **options)
        assert qp.rfc7306 is bool(told)
        assert verbs.device.field(registers.QP_MODE, "rfc7306") == told
        assert verbs.device.field(registers.QP_MODE, "crc") == 1
        qp.close()


@pytest.mark.parametrize("request_", EXTENDED, ids=lambda request: request.opcode.name)
def test_what_such_a_qp_does_not_send_is_not_posted(verbs, request_):
    qp = connected(verbs)
    message = (
        f"{request_.opcode.name} on QP {qp.qp_num}, which was made without RFC 7306; "
        "allowed: on a QP of QPInitAttr(..., rfc7306=True)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        # Nothing is posted of what stands before it, either.
        qp.post_send(SendWR(0), request_)
    assert verbs.device.doorbells == []
    qp.post_send(SendWR(0), SendWR(1, WROpcode.RDMA_READ, [SINK]))
    assert len(verbs.device.doorbells) == 1
    other = connected(verbs, rfc7306=True)
    other.post_send(request_)
    assert len(verbs.device.doorbells) == 2
