"""Registration and invalidation of own STags by work request, and the fence, on a whole device."""

from collections.abc import Callable, Iterator

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Cause,
    Context,
    FastMR,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    SendFlags,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
    inc_rkey,
)
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from stagecoach.sim.transport import SimulatedDevice
from tests.integration.rig import ALL, End, RawPeer, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 10.0
OCTETS = 4096
MULPDU = 1440
REMOTE = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
FENCED = SendFlags.SIGNALED | SendFlags.FENCE
LOCAL_CATASTROPHIC = bytes([0x00, 0x00, 0x00, 0x00])
"""Terminate control field, layer 0, type 0, code 0, without headers (RFC 5040, 4.8)."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    """Written words are visible only with their write responses."""
    with open_device(read_latency=50, write_latency=300, late_writes=True) as opened:
        yield opened


def write(stag: int, to: int, payload: bytes) -> list[bytes]:
    control = control_octet(Opcode.RDMA_WRITE)
    return ddp.segment_tagged(payload, stag=stag, tagged_offset=to, mulpdu=MULPDU, rsvd_ulp=control)


def read_response(request: ReadRequest, payload: bytes) -> list[bytes]:
    control = control_octet(Opcode.RDMA_READ_RESPONSE)
    return ddp.segment_tagged(
        payload,
        stag=request.sink_stag,
        tagged_offset=request.sink_tagged_offset,
        mulpdu=MULPDU,
        rsvd_ulp=control,
    )


def send(msn: int, invalidate: int | None = None) -> bytes:
    opcode = Opcode.SEND if invalidate is None else Opcode.SEND_WITH_INVALIDATE
    header = ddp.UntaggedHeader(
        rdmap.QN_SEND, msn, rsvd_ulp=control_octet(opcode), rsvd_ulp_word=invalidate or 0
    )
    return header.encode()


def register(region: FastMR, access: AccessFlags = REMOTE, wr_id: int = 0) -> SendWR:
    return SendWR(wr_id, WROpcode.REG_MR, mr=region, rkey=inc_rkey(region.rkey), access=access)


def wait_success(end: End, *opcodes: WCOpcode) -> None:
    completions = end.cq.wait(len(opcodes), SECONDS)
    assert [(wc.opcode, wc.status) for wc in completions] == [
        (opcode, WCStatus.SUCCESS) for opcode in opcodes
    ]


@pytest.mark.requirement("RDMAP-3.2-04", "RDMAP-8.1.1-05")
def test_a_region_is_registered_used_and_invalidated_with_key_after_key(context: Context):
    end = End(context)
    buffer = bytearray(OCTETS)
    region = FastMR(end.pd, buffer)
    first = region.rkey
    peer = RawPeer(end.qp)
    msn = 1
    for number in range(5):
        # The Send after the registration tells the peer that it may begin.
        end.qp.post_send(register(region), SendWR(1, WROpcode.SEND))
        wait_success(end, WCOpcode.REG_MR, WCOpcode.SEND)
        payload = bytes([number + 1]) * OCTETS
        end.qp.post_recv(RecvWR(2))
        peer.send(*write(region.rkey, region.addr, payload), send(msn))
        msn += 1
        wait_success(end, WCOpcode.RECV)
        assert buffer == payload
        end.qp.post_send(SendWR(3, WROpcode.LOCAL_INV, rkey=region.rkey))
        wait_success(end, WCOpcode.LOCAL_INV)
    assert region.rkey == first + 5 & 0xFF | first & ~0xFF
    # Another key of the same region, and the last one, which is invalid by now.
    before = bytes(buffer)
    peer.send(*write(region.rkey, region.addr, bytes(OCTETS)))
    context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")
    assert end.qp.cause == Cause.TAGGED_STAG_INVALID
    assert buffer == before
    region.close()
    end.close()
    peer.close()


def test_a_registration_is_done_before_what_is_posted_behind_it(context: Context):
    """Registration, Write out of the region and invalidation of it, all in one doorbell."""
    end = End(context)
    buffer = bytearray(n % 251 for n in range(OCTETS))
    region = FastMR(end.pd, buffer, addr=0x1234_0000_0000)
    peer = RawPeer(end.qp)
    requests = []
    for number in range(3):
        rkey = region.rkey & ~0xFF | region.rkey + 1 + number & 0xFF
        requests += [
            SendWR(1, WROpcode.REG_MR, mr=region, rkey=rkey),
            SendWR(2, WROpcode.RDMA_WRITE, [SGE(region.addr, OCTETS, rkey)], rkey=7),
            SendWR(3, WROpcode.LOCAL_INV, rkey=rkey),
        ]
    end.qp.post_send(*requests)
    wait_success(end, *[WCOpcode.REG_MR, WCOpcode.RDMA_WRITE, WCOpcode.LOCAL_INV] * 3)
    peer.pump_until(lambda: sum(len(u) - 14 for u in peer.ulpdus) == 3 * OCTETS)
    assert b"".join(ulpdu[14:] for ulpdu in peer.ulpdus) == bytes(buffer) * 3
    region.close()
    end.close()
    peer.close()


def test_an_unregistered_region_reaches_nobody(context: Context):
    end = End(context)
    region = FastMR(end.pd, bytearray(OCTETS))
    peer = RawPeer(end.qp)
    peer.send(*write(region.rkey, region.addr, b"x"))
    context.poll_until(lambda: end.qp.state == QPState.ERR, SECONDS, "the error")
    assert end.qp.cause == Cause.TAGGED_STAG_INVALID
    region.close()
    end.close()
    peer.close()


@pytest.mark.requirement("RDMAP-5.3-13")
def test_what_the_peer_invalidated_can_be_registered_again(context: Context):
    end = End(context)
    buffer = bytearray(OCTETS)
    region = FastMR(end.pd, buffer, qp=end.qp)
    peer = RawPeer(end.qp)
    for number in range(3):
        end.qp.post_send(register(region))
        wait_success(end, WCOpcode.REG_MR)
        end.qp.post_recv(RecvWR(2))
        payload = bytes([number + 1]) * OCTETS
        ulpdus = write(region.rkey, region.addr, payload)
        peer.send(*ulpdus, send(number + 1, invalidate=region.rkey))
        wait_success(end, WCOpcode.RECV)
        assert region.invalidated and buffer == payload
    end.close()
    peer.close()


# Refusals


class Other:
    """Regions of another PD, one of the same, and a QP that has nothing to do with all this."""

    def __init__(self, context: Context, end: End):
        self.pd = PD(context)
        self.foreign = FastMR(self.pd, bytearray(OCTETS))
        self.foreign_valid = MR(self.pd, bytearray(OCTETS), ALL)
        self.sibling = End(context)
        self.fast = FastMR(end.pd, bytearray(OCTETS))

    def close(self) -> None:
        self.fast.close()
        self.sibling.close()
        self.foreign.close()
        self.foreign_valid.close()
        self.pd.close()


def _scoped_to_sibling(end: End, other: Other) -> FastMR:
    cq = CQ(end.context)
    qp = QP(end.pd, QPInitAttr(cq, cq, QPCap(4, 4)))
    return FastMR(end.pd, bytearray(OCTETS), qp=qp)


def _valid_of_sibling(end: End, other: Other) -> MR:
    scoped = _scoped_to_sibling(end, other)
    return MR(end.pd, bytearray(OCTETS), ALL, qp=scoped._qp)


REFUSALS: dict[str, Callable[[End, Other], list[SendWR]]] = {
    "register, of another PD": lambda e, o: [register(o.foreign)],
    "register, of another QP": lambda e, o: [register(_scoped_to_sibling(e, o))],
    "register, valid": lambda e, o: [register(o.fast), register(o.fast)],
    "invalidate, unknown": lambda e, o: [SendWR(9, WROpcode.LOCAL_INV, rkey=0x5A5A5A5A)],
    "invalidate, not registered": lambda e, o: [SendWR(9, WROpcode.LOCAL_INV, rkey=o.fast.rkey)],
    "invalidate, other key": lambda e, o: [SendWR(9, WROpcode.LOCAL_INV, rkey=inc_rkey(e.mr.rkey))],
    "invalidate, of another PD": lambda e, o: [
        SendWR(9, WROpcode.LOCAL_INV, rkey=o.foreign_valid.rkey)
    ],
    "invalidate, of another QP": lambda e, o: [
        SendWR(9, WROpcode.LOCAL_INV, rkey=_valid_of_sibling(e, o).rkey)
    ],
    "invalidate twice": lambda e, o: [
        SendWR(8, WROpcode.LOCAL_INV, rkey=e.mr.rkey),
        SendWR(9, WROpcode.LOCAL_INV, rkey=e.mr.rkey),
    ],
}


@pytest.mark.requirement("RDMAP-8.1.1-01", "RDMAP-8.1.1-02", "RDMAP-8.1.1-03", "SEC-6.1.1-01")
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_stops_the_qp(name: str, context: Context):
    end = End(context)
    other = Other(context, end)
    peer = RawPeer(end.qp)
    requests = REFUSALS[name](end, other)
    end.qp.post_send(*requests, SendWR(99, WROpcode.SEND))
    completions = end.cq.wait(len(requests) + 1, SECONDS)
    good = len(requests) - 1
    assert [wc.status for wc in completions] == [
        *[WCStatus.SUCCESS] * good,
        WCStatus.MW_BIND_ERR,
        WCStatus.WR_FLUSH_ERR,
    ]
    assert end.qp.query_state() == (QPState.ERR, Cause.LOCAL_STAG_OPERATION)
    peer.pump_until(lambda: peer.ended, SECONDS)
    (terminate,) = peer.ulpdus
    assert terminate[18:] == LOCAL_CATASTROPHIC
    # What belongs to the others is as it was.
    sibling = RawPeer(other.sibling.qp)
    sibling.send(*write(other.sibling.mr.rkey, other.sibling.mr.addr, b"still there"))
    other.sibling.qp.post_recv(RecvWR(1))
    sibling.send(send(1))
    wait_success(other.sibling, WCOpcode.RECV)
    assert other.sibling.buffer.startswith(b"still there")
    other.close()
    end.close()
    sibling.close()
    peer.close()


# Order


def _requests(peer: RawPeer) -> list[ReadRequest]:
    """The Read Requests that came."""
    return [
        ReadRequest.decode(payload)
        for header, payload in map(ddp.decode, peer.ulpdus)
        if rdmap.decode_control(header.rsvd_ulp).opcode == Opcode.RDMA_READ_REQUEST
    ]


@pytest.mark.parametrize("opcode", [WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.LOCAL_INV])
def test_a_fenced_request_begins_when_all_before_it_have_completed(
    opcode: WROpcode, context: Context
):
    """An RDMA Read into a buffer, and after a fence what sends or invalidates that buffer."""
    end = End(context)
    peer = RawPeer(end.qp)
    elements = [] if opcode == WROpcode.LOCAL_INV else [end.element()]
    rkey = end.mr.rkey if opcode == WROpcode.LOCAL_INV else 0x77
    end.qp.post_send(
        SendWR(1, WROpcode.RDMA_READ, [end.element()], rkey=5),
        SendWR(2, opcode, elements, FENCED, rkey=rkey),
    )
    peer.pump_until(lambda: bool(peer.ulpdus), SECONDS)
    transport = context.transport
    assert isinstance(transport, SimulatedDevice)
    transport.run_cycles(5000)
    peer.pump(0.05)
    assert len(peer.ulpdus) == 1, "the fence was passed before the RDMA Read was complete"
    payload = bytes(n % 253 for n in range(OCTETS))
    peer.send(*read_response(_requests(peer)[0], payload))
    wait_success(end, WCOpcode.RDMA_READ, WCOpcode[opcode.name])
    assert end.buffer == payload
    if elements:
        # What left is what was read.
        peer.pump_until(lambda: sum(len(u) for u in peer.ulpdus[1:]) > OCTETS, SECONDS)
        assert b"".join(ddp.decode(ulpdu)[1] for ulpdu in peer.ulpdus[1:]) == payload
    end.close()
    peer.close()


def test_without_a_fence_an_invalidation_does_not_wait_for_an_rdma_read(context: Context):
    """Its answer then finds the STag invalid; the completion of the invalidation waits its turn."""
    end = End(context)
    peer = RawPeer(end.qp)
    end.qp.post_send(
        SendWR(1, WROpcode.RDMA_READ, [end.element()], rkey=5),
        SendWR(2, WROpcode.LOCAL_INV, rkey=end.mr.rkey),
        SendWR(3, WROpcode.SEND),
    )
    peer.pump_until(lambda: len(peer.ulpdus) == 2, SECONDS)
    peer.send(*read_response(_requests(peer)[0], bytes([1]) * OCTETS))
    completions = end.cq.wait(3, SECONDS)
    flushed = WCStatus.WR_FLUSH_ERR
    assert [wc.status for wc in completions] == [WCStatus.LOC_PROT_ERR, flushed, flushed]
    assert end.qp.cause == Cause.TAGGED_STAG_INVALID
    assert end.buffer == bytes(OCTETS)
    end.close()
    peer.close()


@pytest.mark.requirement("RDMAP-8.1.1-04", "RDMAP-8.1.1-05", "RDMAP-8.1.1-06", "SEC-6.2.2-01")
def test_no_octet_changes_when_an_invalidation_has_completed(context: Context):
    """Writes of another QP's peer are on their way while the STag becomes invalid."""
    transport = context.transport
    assert isinstance(transport, SimulatedDevice)
    for number in range(8):
        writer = End(context)
        buffer = bytearray(1 << 16)
        # Another QP of the same PD invalidates.
        cq = CQ(context)
        qp = QP(writer.pd, QPInitAttr(cq, cq))
        region = FastMR(writer.pd, buffer)
        peer, other = RawPeer(writer.qp), RawPeer(qp)
        qp.post_send(register(region))
        cq.wait(1, SECONDS)
        octets = bytes([number + 1]) * len(buffer)
        ulpdus = write(region.rkey, region.addr, octets)
        peer.send(*ulpdus[: 20 + 3 * number])
        qp.post_send(SendWR(3, WROpcode.LOCAL_INV, rkey=region.rkey))
        peer.send(*ulpdus[20 + 3 * number :])
        (completion,) = cq.wait(1, SECONDS)
        assert completion.status == WCStatus.SUCCESS
        seen = bytes(buffer)
        transport.run_cycles(3000)
        assert bytes(buffer) == seen, f"round {number}"
        qp.close()
        region.close()
        cq.close()
        writer.close()
        peer.close()
        other.close()
