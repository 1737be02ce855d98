"""Litmus tests for the ordering rules: RFC 5040, 5.5 and Appendix B, on a host memory that is slow.

A peer sends two messages back to back; what the second one does must see the first one done.
"""

from collections.abc import Callable, Iterator

import pytest

from stagecoach.host_driver import Context, RecvWR, WCStatus
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.integration.rig import End, RawPeer, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 10.0
ROUNDS = 20
MULPDU = 8192
OCTETS = 30_000
TAIL_OCTETS = 64
TAIL = TAIL_OCTETS, OCTETS - TAIL_OCTETS
"""Octets and offset of what is placed last: a Read that is too early finds it missing."""

SINK = (0x77, 0)


MEMORIES = {
    "fast": {"write_latency": 1},
    "slow": {"write_latency": 400},
    "late": {"write_latency": 400, "late_writes": True},
}
"""Of the slow one, written words are there at once and only the responses late; of the late one,
also the words come with the responses, as AXI allows."""


@pytest.fixture(scope="module", params=MEMORIES.values(), ids=MEMORIES)
def context(request: pytest.FixtureRequest) -> Iterator[Context]:
    """Reads take no longer than they must, so that they find what is not there yet."""
    with open_device(read_latency=1, **request.param) as opened:
        yield opened


def pattern(number: int) -> bytes:
    return bytes([number + 1]) * OCTETS


def write(end: End, payload: bytes, offset: int = 0) -> list[bytes]:
    to = end.mr.addr + offset
    control = control_octet(Opcode.RDMA_WRITE)
    return ddp.segment_tagged(
        payload, stag=end.mr.rkey, tagged_offset=to, mulpdu=MULPDU, rsvd_ulp=control
    )


def send(msn: int, payload: bytes = b"") -> list[bytes]:
    control = control_octet(Opcode.SEND)
    return ddp.segment_untagged(payload, qn=0, msn=msn, mulpdu=MULPDU, rsvd_ulp=control)


def immediate(msn: int) -> list[bytes]:
    header = UntaggedHeader(rdmap.QN_SEND, msn, rsvd_ulp=control_octet(Opcode.IMMEDIATE_DATA))
    return [header.encode() + msn.to_bytes(8)]


def read(end: End, msn: int, octets: int = OCTETS, offset: int = 0) -> list[bytes]:
    request = ReadRequest(*SINK, octets, end.mr.rkey, end.mr.addr + offset)
    control = control_octet(Opcode.RDMA_READ_REQUEST)
    return ddp.segment_untagged(
        request.encode(), qn=rdmap.QN_READ_REQUEST, msn=msn, mulpdu=MULPDU, rsvd_ulp=control
    )


def answers(peer: RawPeer) -> list[bytes]:
    """The payloads of the whole Read Responses that came."""
    found, current = list[bytes](), b""
    for ulpdu in peer.ulpdus:
        header, payload = ddp.decode(ulpdu)
        current += payload
        if header.last:
            found.append(current)
            current = b""
    return found


@pytest.mark.requirement("RDMAP-5.5-08", "RDMAP-5.5-14", "RDMAP-B-01")
def test_a_read_sees_the_write_before_it(context: Context):
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    for number in range(ROUNDS):
        peer.send(*write(end, pattern(number)), *read(end, number + 1, *TAIL))
        peer.pump_until(lambda count=number + 1: len(answers(peer)) == count, SECONDS)
        assert answers(peer)[-1] == pattern(number)[-TAIL_OCTETS:], f"round {number}"
    end.close()
    peer.close()


@pytest.mark.requirement("RDMAP-5.5-08", "RDMAP-5.5-14", "RDMAP-B-01")
def test_a_read_sees_the_send_before_it(context: Context):
    end = End(context, OCTETS)
    end.qp.post_recv(*(RecvWR(n, [end.element()]) for n in range(10)))
    peer = RawPeer(end.qp)
    for number in range(10):
        peer.send(*send(number + 1, pattern(number)), *read(end, number + 1, *TAIL))
        peer.pump_until(lambda count=number + 1: len(answers(peer)) == count, SECONDS)
        assert answers(peer)[-1] == pattern(number)[-TAIL_OCTETS:], f"round {number}"
    end.close()
    peer.close()


@pytest.mark.requirement("RDMAP-5.5-06", "RDMAP-5.5-13", "RDMAP-B-01", "RPCRDMA-2-02")
@pytest.mark.requirement("EXT-6-01", "EXT-6.4-01")
@pytest.mark.parametrize("last", [send, immediate])
@pytest.mark.parametrize("first", ["write", "send"])
def test_a_completion_comes_behind_all_before_it(
    context: Context, first: str, last: Callable[[int], list[bytes]]
):
    """Also an empty Send or Immediate Data, which place nothing themselves, tell of that."""
    end = End(context, OCTETS)
    peer = RawPeer(end.qp)
    msn = 1
    for number in range(ROUNDS):
        before = [RecvWR(0, [end.element()])] if first == "send" else []
        end.qp.post_recv(*before, RecvWR(1))
        if first == "send":
            peer.send(*send(msn, pattern(number)), *last(msn + 1))
            msn += 2
        else:
            peer.send(*write(end, pattern(number)), *last(msn))
            msn += 1
        completions = end.cq.wait(len(before) + 1, SECONDS)
        # Looked at as soon as the last completion is there.
        assert end.buffer == pattern(number), f"round {number}"
        assert [wc.wr_id for wc in completions] == [*(wr.wr_id for wr in before), 1]
        assert {wc.status for wc in completions} == {WCStatus.SUCCESS}
    end.close()
    peer.close()


@pytest.mark.requirement("RDMAP-5.2.1-08", "RDMAP-5.2.2-06", "RDMAP-5.5-17", "RDMAP-B-01")
def test_reads_are_answered_in_their_order(context: Context):
    end = End(context, OCTETS)
    end.buffer[:] = bytes(n % 251 for n in range(OCTETS))
    peer = RawPeer(end.qp)
    ranges = [(20_000, 0), (0, 0), (1, 77), (9000, 20_000), (3, 5), (8192, 1)]
    requests = [
        segment
        for msn, (octets, offset) in enumerate(ranges, start=1)
        for segment in read(end, msn, octets, offset)
    ]
    peer.send(*requests)
    peer.pump_until(lambda: len(answers(peer)) == len(ranges), SECONDS)
    assert answers(peer) == [
        bytes(end.buffer[offset : offset + octets]) for octets, offset in ranges
    ]
    end.close()
    peer.close()
