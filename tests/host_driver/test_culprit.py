"""Status is the culprit: which work request an error of a QP is of."""

from collections.abc import Iterable

import pytest

from stagecoach.host_driver import (
    QP,
    SGE,
    Cause,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendFlags,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.events import UNKNOWN_INDEX, AsyncEvent
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from stagecoach.sim.model import errors
from stagecoach.sim.model import terminate as model
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.host_driver.fake_device import NoStream
from tests.host_driver.test_terminate import receive_terminate

FLUSHED = WCStatus.WR_FLUSH_ERR
SINK = SGE(0x1000, 8, 0xAA)
QUIET = SendFlags(0)


@pytest.fixture
def qp(verbs) -> QP:
    """Connected with ORD 3."""
    qp = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, QPCap(16, 16), rfc7306=True))
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return qp


def read(number: int, flags: SendFlags = SendFlags.SIGNALED, sink: SGE = SINK) -> SendWR:
    return SendWR(number, WROpcode.RDMA_READ, [sink], send_flags=flags)


def atomic(number: int) -> SendWR:
    return SendWR(number, WROpcode.ATOMIC_FETCH_AND_ADD, [SINK], compare_add=1)


def statuses(verbs, count: int) -> dict[int, WCStatus]:
    return {wc.wr_id: wc.status for wc in verbs.cq.wait(count, 0.0)}


def request(opcode: Opcode = Opcode.RDMA_READ_REQUEST, msn: int = 1, qn: int = 1) -> bytes:
    """The segment that the peer refuses."""
    header = UntaggedHeader(qn, msn, rsvd_ulp=control_octet(opcode)).encode()
    return header + ReadRequest(1, 2, 3, 4, 5).encode()


def complain(verbs, qp: QP, error: ErrorCode, segment: bytes) -> None:
    receive_terminate(verbs.device, qp.qp_num, model.terminate_for(error, segment).encode())


@pytest.mark.requirement("RDMAP-4.8-12")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.RDMAP_INVALID_STAG, WCStatus.REM_ACCESS_ERR),
        (errors.RDMAP_BASE_OR_BOUNDS, WCStatus.REM_ACCESS_ERR),
        (errors.RDMAP_ACCESS_RIGHTS, WCStatus.REM_ACCESS_ERR),
        (errors.RDMAP_UNEXPECTED_OPCODE, WCStatus.REM_INV_REQ_ERR),
        (errors.DDP_NO_BUFFER, WCStatus.REM_INV_REQ_ERR),
        (ErrorCode(0, 2, 0x07), WCStatus.REM_OP_ERR),
        (ErrorCode(0, 2, 0xFF), WCStatus.REM_OP_ERR),
    ],
)
def test_a_read_that_the_peer_refuses_has_its_status(verbs, qp, error, status):
    qp.post_send(SendWR(1, WROpcode.RDMA_WRITE, [SINK]), read(2), SendWR(3))
    qp.post_recv(RecvWR(9))
    complain(verbs, qp, error, request())
    assert statuses(verbs, 4) == {1: FLUSHED, 2: status, 3: FLUSHED, 9: FLUSHED}
    assert qp.cause == Cause.TERMINATE_RECEIVED


def test_the_opcode_tells_an_atomic_from_a_read(verbs, qp):
    qp.post_send(read(1), atomic(2), read(3))
    complain(verbs, qp, errors.RDMAP_ACCESS_RIGHTS, request(Opcode.ATOMIC_REQUEST, 2))
    assert statuses(verbs, 3) == {1: FLUSHED, 2: WCStatus.REM_ACCESS_ERR, 3: FLUSHED}


def test_it_is_one_that_the_peer_can_have(verbs, qp):
    """Three are under way: of those after them the peer has heard nothing."""
    qp.post_send(atomic(1), read(2), atomic(3), read(4))
    complain(verbs, qp, errors.RDMAP_INVALID_STAG, request(msn=2))
    assert statuses(verbs, 4) == {1: FLUSHED, 2: WCStatus.REM_ACCESS_ERR, 3: FLUSHED, 4: FLUSHED}


def test_those_that_are_not_signaled_may_be_done(verbs, qp):
    qp.post_send(atomic(1), *(read(n, QUIET) for n in (2, 3, 4)), read(5))
    complain(verbs, qp, errors.RDMAP_INVALID_STAG, request(msn=5))
    assert set(statuses(verbs, 5).values()) == {FLUSHED}


@pytest.mark.parametrize("flags", [SendFlags.SIGNALED, QUIET])
@pytest.mark.parametrize("msn", [1, 2, 3])
def test_the_msn_tells_one_read_from_another(verbs, qp, flags, msn):
    qp.post_send(read(1, flags), read(2, flags), read(3))
    complain(verbs, qp, errors.RDMAP_INVALID_STAG, request(msn=msn))
    expected = dict.fromkeys((1, 2, 3), FLUSHED) | {msn: WCStatus.REM_ACCESS_ERR}
    assert statuses(verbs, 3) == expected


@pytest.mark.parametrize("msn", [0, 3, 1 + (1 << 8), 1 + (1 << 16), 2 + (1 << 31)])
def test_all_octets_of_the_msn_are_looked_at(verbs, qp, msn):
    qp.post_send(read(1), read(2))
    complain(verbs, qp, errors.RDMAP_INVALID_STAG, request(msn=msn))
    assert statuses(verbs, 2) == {1: FLUSHED, 2: FLUSHED}


@pytest.mark.parametrize(
    ("error", "segment"),
    [
        (errors.DDP_BASE_OR_BOUNDS, TaggedHeader(7, 8, rsvd_ulp=control_octet(0)).encode()),
        (errors.DDP_NO_BUFFER, request(Opcode.SEND, qn=0)),
        (errors.RDMAP_INVALID_STAG, request(qn=0)),
        (ErrorCode(0, 0, 0), b""),
    ],
    ids=["a Write", "a Send", "another queue", "no header"],
)
def test_a_terminate_of_anything_else_flushes_all(verbs, qp, error, segment):
    qp.post_send(read(1), SendWR(2, WROpcode.RDMA_WRITE, [SINK]), SendWR(3))
    complain(verbs, qp, error, segment)
    assert set(statuses(verbs, 3).values()) == {FLUSHED}


def receives(verbs, qp: QP) -> Iterable[int]:
    """Two receives of five are done: MSN 3 takes that with number 2."""
    qp.post_recv(*(RecvWR(n) for n in range(5)))
    for index in range(2):
        verbs.device.complete(0, qp.qp_num, index, CompletionOpcode.RECEIVE)
    verbs.cq.wait(2)
    return range(2, 5)


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.SEND_WITH_SE_AND_INVALIDATE])
def test_a_receive_that_is_too_short_for_its_message_has_loc_len_err(verbs, qp, opcode):
    left = receives(verbs, qp)
    verbs.device.event(qp.qp_num, Cause.UNTAGGED_TOO_LONG, header=request(opcode, 4, 0)[:18])
    found = statuses(verbs, len(left))
    assert found == {2: FLUSHED, 3: WCStatus.LOC_LEN_ERR, 4: FLUSHED}


def test_immediate_data_that_is_too_long_is_no_error_of_the_receive(verbs, qp):
    left = receives(verbs, qp)
    header = request(Opcode.IMMEDIATE_DATA, 3, 0)[:18]
    verbs.device.event(qp.qp_num, Cause.UNTAGGED_TOO_LONG, header=header)
    assert set(statuses(verbs, len(left)).values()) == {FLUSHED}


def test_an_event_that_was_lost_flushes_all(verbs, qp):
    left = receives(verbs, qp)
    qp._stopped(AsyncEvent(qp.qp_num, Cause.UNTAGGED_TOO_LONG, UNKNOWN_INDEX, 0, b""))
    assert set(statuses(verbs, len(left)).values()) == {FLUSHED}


RESPONSE = TaggedHeader(SINK.lkey, 0x1000, rsvd_ulp=control_octet(Opcode.RDMA_READ_RESPONSE))
WRITE = TaggedHeader(SINK.lkey, 0x1000, rsvd_ulp=control_octet(Opcode.RDMA_WRITE))
OTHER = SGE(0x1000, 8, 0xBB)


@pytest.mark.parametrize(
    ("posted", "header", "culprit"),
    [
        ([read(1), read(2)], RESPONSE, 1),
        ([read(1, QUIET, OTHER), read(2)], RESPONSE, 2),
        ([read(1, QUIET), read(2)], RESPONSE, None),
        ([read(1)], WRITE, None),
    ],
    ids=["the oldest", "the one with that sink", "one of two", "a Write of the peer"],
)
def test_a_read_whose_sink_is_gone_has_loc_prot_err(verbs, qp, posted, header, culprit):
    qp.post_send(*posted)
    verbs.device.event(qp.qp_num, Cause.TAGGED_STAG_INVALID, header=header.encode())
    found = statuses(verbs, len(posted))
    assert found == {
        each.wr_id: WCStatus.LOC_PROT_ERR if each.wr_id == culprit else FLUSHED for each in posted
    }
