"""A QP without RFC 7306 beside one with it, on the same device."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    QP,
    Cause,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    WCFlags,
    WCStatus,
)
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.atomics import FETCH_ADD, AtomicRequest, AtomicResponse
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.errors import DDP_INVALID_QN, RDMAP_UNEXPECTED_OPCODE, ErrorCode
from stagecoach.sim.model.rdmap import Opcode, control_octet
from stagecoach.sim.model.terminate import terminate_for
from tests.integration.rig import End, RawPeer, open_device

pytestmark = pytest.mark.timeout(600)  # the first test may have to build the device

SECONDS = 10.0
DATA = b"\x01opaque\xfe"


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


def message(opcode: int, qn: int, octets: bytes) -> bytes:
    return UntaggedHeader(qn, 1, rsvd_ulp=control_octet(opcode)).encode() + octets


def add(end: End) -> bytes:
    request = AtomicRequest(FETCH_ADD, 7, end.mr.rkey, end.mr.addr + -end.mr.addr % 8, 1, 0, 0, 0)
    return message(Opcode.ATOMIC_REQUEST, 1, request.encode())


MESSAGES = {
    # Literal octets (RFC 7306, 6.2): untagged, last, DV 1; RV 1, opcode 8 or 9; QN 0, MSN 1, MO 0.
    "Immediate Data": lambda _: bytes.fromhex("4148 00000000 00000000 00000001 00000000") + DATA,
    "Immediate Data with SE": lambda _: (
        bytes.fromhex("4149 00000000 00000000 00000001 00000000") + DATA
    ),
    "Atomic Request": add,
    "Atomic Response": lambda _: message(Opcode.ATOMIC_RESPONSE, 3, AtomicResponse(1, 5).encode()),
}


def plain(end: End) -> End:
    """`end` with a QP that says nothing of RFC 7306, as that of every program that needs none."""
    end.qp.close()
    end.qp = QP(end.pd, QPInitAttr(end.cq, end.cq, QPCap(16, 16)))
    return end


def check_refused(end: End, peer: RawPeer, ulpdu: bytes, cause: Cause, error: ErrorCode) -> None:
    end.context.events.clear()
    peer.send(ulpdu)
    end.context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")
    assert end.qp.query_state() == (QPState.ERR, cause)
    (event,) = end.context.events
    assert event.cause == cause
    peer.pump_until(lambda: peer.ended, SECONDS)
    (sent,) = peer.ulpdus
    header, octets = ddp.decode(sent)
    assert rdmap.decode_control(header.rsvd_ulp).opcode == Opcode.TERMINATE
    assert octets == terminate_for(error, ulpdu).encode()
    assert end.buffer == bytes(len(end.buffer))
    peer.close()


@pytest.mark.requirement("RDMAP-7.2-02", "RDMAP-7.2-07", "RDMAP-7.1-01", "EXT7306-1.1-03")
@pytest.mark.parametrize("name", MESSAGES)
def test_messages_of_rfc_7306_are_unexpected_opcodes(name: str, context: Context):
    end = plain(End(context))
    end.qp.post_recv(RecvWR(3, [end.element()]))
    peer = RawPeer(end.qp)
    ulpdu = MESSAGES[name](end)
    check_refused(end, peer, ulpdu, Cause.UNEXPECTED_OPCODE, RDMAP_UNEXPECTED_OPCODE)
    # The receive is the program's again: no completion told of what was not asked for.
    (flushed,) = end.cq.wait(1, SECONDS)
    assert (flushed.wr_id, flushed.status, flushed.cause) == (
        *(3, WCStatus.WR_FLUSH_ERR, Cause.UNEXPECTED_OPCODE),
    )
    end.close()


@pytest.mark.requirement("DDP-7.1-01")
def test_queue_3_is_unknown(context: Context):
    end = plain(End(context))
    check_refused(
        end, RawPeer(end.qp), message(Opcode.SEND, 3, b"x"), Cause.UNTAGGED_QN, DDP_INVALID_QN
    )
    end.close()


def test_another_qp_of_the_device_takes_them_meanwhile(context: Context):
    ends = [End(context), plain(End(context)), End(context)]
    peers = [RawPeer(end.qp) for end in ends]
    for end, peer in zip(ends, peers, strict=True):
        end.qp.post_recv(RecvWR(1, [end.element()]))
        peer.send(MESSAGES["Immediate Data"](end))
    for end in (ends[0], ends[2]):
        (found,) = end.cq.wait(1, SECONDS)
        assert (found.status, found.imm_data) == (WCStatus.SUCCESS, DATA)
        assert found.wc_flags & WCFlags.WITH_IMM
        assert end.qp.query_state() == (QPState.RTS, Cause.NONE)
    (flushed,) = ends[1].cq.wait(1, SECONDS)
    assert flushed.status == WCStatus.WR_FLUSH_ERR
    for end, peer in zip(ends, peers, strict=True):
        peer.close()
        end.close()
