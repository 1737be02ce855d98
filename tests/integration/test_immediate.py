"""Immediate Data of the whole device: on the wire, in its order, and as an event (RFC 7306, 6)."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import (
    Cause,
    Context,
    SendFlags,
    SendWR,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.ddp import TaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.integration.rig import End, RawPeer, open_device
from tests.integration.test_revoke import SECONDS, Link
from tests.sim.model.vectors import vector

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SIGNALED, SOLICITED, FENCE = SendFlags.SIGNALED, SendFlags.SOLICITED, SendFlags.FENCE
OCTETS = bytes(range(1, 9))
REMOTE = {"remote_addr": 0x123456789, "rkey": 0x77}


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


@pytest.fixture
def end(context: Context) -> Iterator[End]:
    end = End(context)
    yield end
    end.close()


def opcodes(peer: RawPeer) -> list[int]:
    headers = [ddp.decode(ulpdu)[0] for ulpdu in peer.ulpdus]
    return [rdmap.decode_control(header.rsvd_ulp).opcode for header in headers]


@pytest.mark.requirement("EXT-6.3-01", "EXT-6.3-04", "EXT-6.3-05", "EXT-6.3-06")
def test_the_octets_on_the_wire_are_those_of_the_vectors(end: End):
    peer = RawPeer(end.qp)
    end.qp.post_send(
        SendWR(1),
        SendWR(2),
        SendWR(3, WROpcode.IMM_DATA, imm_data=OCTETS),
        SendWR(4, WROpcode.IMM_DATA, send_flags=SIGNALED | SOLICITED, imm_data=OCTETS),
    )
    peer.pump_until(lambda: len(peer.ulpdus) == 4, SECONDS)
    names = ["Immediate Data", "Immediate Data with SE"]
    expected = [vector("fpdu", name)["ulpdus_hex"] for name in names]
    assert [[ulpdu.hex()] for ulpdu in peer.ulpdus[2:]] == expected
    found = [(wc.wr_id, wc.opcode, wc.byte_len) for wc in end.cq.wait(4, SECONDS)][2:]
    assert found == [(3, WCOpcode.IMM_DATA, 8), (4, WCOpcode.IMM_DATA, 8)]
    peer.close()


@pytest.mark.parametrize("flags", [SIGNALED, SIGNALED | SOLICITED])
def test_a_write_with_immediate_data_is_both_in_this_order(end: End, flags: SendFlags):
    peer = RawPeer(end.qp)
    sg = [end.element(0, 1000), end.element(1000, 2000)]
    end.qp.post_send(SendWR(7, WROpcode.RDMA_WRITE_WITH_IMM, sg, flags, **REMOTE, imm_data=OCTETS))
    peer.pump_until(lambda: len(peer.ulpdus) == 4, SECONDS)
    last = Opcode.IMMEDIATE_DATA_WITH_SE if flags & SOLICITED else Opcode.IMMEDIATE_DATA
    assert opcodes(peer) == [Opcode.RDMA_WRITE] * 3 + [last]
    parts = [ddp.decode(ulpdu)[1] for ulpdu in peer.ulpdus]
    assert b"".join(parts[:3]) == end.buffer[:3000]
    assert parts[3] == OCTETS
    (completion,) = end.cq.wait(1, SECONDS)
    assert (completion.wr_id, completion.opcode) == (7, WCOpcode.RDMA_WRITE)
    assert completion.byte_len == 3000
    assert end.cq.poll() == []
    peer.close()


@pytest.mark.parametrize("opcode", [WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM])
@pytest.mark.parametrize("fence", [False, True])
def test_it_completes_behind_a_read_and_begins_behind_it_with_a_fence(
    end: End, opcode: WROpcode, fence: bool
):
    peer = RawPeer(end.qp)
    flags = SIGNALED | FENCE if fence else SIGNALED
    end.qp.post_send(
        SendWR(1, WROpcode.RDMA_READ, [end.element(0, 8)], **REMOTE),
        SendWR(2, opcode, send_flags=flags, **REMOTE, imm_data=OCTETS),
    )
    sent = 1 if opcode == WROpcode.IMM_DATA else 2
    at_once = 1 if fence else 1 + sent
    peer.pump_until(lambda: len(peer.ulpdus) >= at_once, SECONDS)
    peer.pump(0.05)
    assert len(peer.ulpdus) == at_once
    assert end.cq.poll() == []
    request = ReadRequest.decode(ddp.decode(peer.ulpdus[0])[1])
    control = control_octet(Opcode.RDMA_READ_RESPONSE)
    header = TaggedHeader(request.sink_stag, request.sink_tagged_offset, rsvd_ulp=control)
    peer.send(header.encode() + OCTETS)
    assert [wc.wr_id for wc in end.cq.wait(2, SECONDS)] == [1, 2]
    peer.pump_until(lambda: len(peer.ulpdus) == 1 + sent, SECONDS)
    peer.close()


def test_without_a_receive_it_stops_both_ends(context: Context):
    link = Link(context, seeded_random())
    write = {"remote_addr": link.passive.mr.addr, "rkey": link.passive.mr.rkey}
    requests = [
        SendWR(
            n, WROpcode.RDMA_WRITE_WITH_IMM, [link.active.element(0, 8)], **write, imm_data=OCTETS
        )
        for n in range(3)
    ]
    link.active.qp.post_send(*requests)
    for stopped in link.ends:
        link.wait_stopped(stopped)
    assert link.passive.qp.cause == Cause.UNTAGGED_NO_BUFFER
    assert link.active.qp.cause == Cause.TERMINATE_RECEIVED
    # They may have been sent before the Terminate came; each is told of once.
    completions = link.active.cq.wait(3, SECONDS)
    assert [wc.wr_id for wc in completions] == [0, 1, 2]
    assert {wc.status for wc in completions} <= {WCStatus.SUCCESS, WCStatus.WR_FLUSH_ERR}
    assert link.active.cq.poll() == []
    link.close()
