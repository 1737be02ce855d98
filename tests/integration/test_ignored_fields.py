"""What a receiver does not look at may have any value (RFC 5041, 4.1; RFC 5040, 4.1)."""

from collections.abc import Iterator

import pytest

from stagecoach.host_driver import Cause, Context, QPState, RecvWR, WCStatus
from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet
from tests.integration.rig import End, RawPeer, open_device

pytestmark = pytest.mark.timeout(150)  # the first test may have to build the device

SECONDS = 10.0
OCTETS = 64
PAYLOAD = bytes(range(OCTETS))
SINK = (0xFFFFFFFF, 2**64 - OCTETS)
"""STag and Tagged Offset of the Data Sink, which mean nothing to the Data Source."""


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    with open_device() as opened:
        yield opened


def exchange(
    context: Context, *, ddp_bits: int = 0, rdmap_bits: int = 0, word: int | None = 0
) -> ddp.Header:
    """A Write, a Read of it, a Send, another Write, Immediate Data; the header of the answer.

    All headers have these reserved bits, and `word` for the field of the Invalidate STag, the
    STag of the region itself if it is None.
    """
    end = End(context)
    end.qp.post_recv(*(RecvWR(number, [end.element(2000, OCTETS)]) for number in range(3)))
    peer = RawPeer(end.qp)
    field = end.mr.rkey if word is None else word

    def write(offset: int) -> bytes:
        control = control_octet(Opcode.RDMA_WRITE, reserved=rdmap_bits)
        to = end.mr.addr + offset
        header = TaggedHeader(end.mr.rkey, to, rsvd_ulp=control, reserved=ddp_bits)
        return header.encode() + PAYLOAD

    def untagged(opcode: Opcode, qn: int, msn: int, payload: bytes) -> bytes:
        control = control_octet(opcode, reserved=rdmap_bits)
        header = UntaggedHeader(qn, msn, rsvd_ulp=control, rsvd_ulp_word=field, reserved=ddp_bits)
        return header.encode() + payload

    read = ReadRequest(*SINK, OCTETS, end.mr.rkey, end.mr.addr).encode()
    peer.send(
        write(0),
        untagged(Opcode.RDMA_READ_REQUEST, rdmap.QN_READ_REQUEST, 1, read),
        untagged(Opcode.SEND, rdmap.QN_SEND, 1, PAYLOAD[::-1]),
        write(1000),
        untagged(Opcode.SEND_WITH_SE, rdmap.QN_SEND, 2, PAYLOAD[::-1]),
        untagged(Opcode.IMMEDIATE_DATA, rdmap.QN_SEND, 3, PAYLOAD[:8]),
    )
    completions = end.cq.wait(3, SECONDS)
    assert [wc.imm_data for wc in completions] == [b"", b"", PAYLOAD[:8]]
    assert [(wc.wr_id, wc.status) for wc in completions] == [
        (number, WCStatus.SUCCESS) for number in range(3)
    ]
    peer.pump_until(lambda: bool(peer.ulpdus), SECONDS)
    assert end.buffer[:OCTETS] == end.buffer[1000 : 1000 + OCTETS] == PAYLOAD
    assert end.buffer[2000 : 2000 + OCTETS] == PAYLOAD[::-1]
    assert end.qp.query_state() == (QPState.RTS, Cause.NONE)
    end.close()
    peer.close()
    ((header, payload),) = [ddp.decode(ulpdu) for ulpdu in peer.ulpdus]
    assert payload == PAYLOAD
    return header


@pytest.mark.requirement("DDP-4.1-07", "DDP-4.1-08", "RDMAP-4.4-02")
@pytest.mark.parametrize("bits", range(0, 0x40, 0x04))
def test_reserved_bits_of_ddp_are_not_checked(context: Context, bits: int):
    header = exchange(context, ddp_bits=bits)
    assert isinstance(header, TaggedHeader)
    assert (header.stag, header.tagged_offset, header.reserved) == (*SINK, 0)


@pytest.mark.requirement("RDMAP-4.1-08", "RDMAP-4.1-09")
@pytest.mark.parametrize("bits", range(0, 0x40, 0x10))
def test_reserved_bits_of_rdmap_are_ignored(context: Context, bits: int):
    header = exchange(context, rdmap_bits=bits)
    assert header.rsvd_ulp == control_octet(Opcode.RDMA_READ_RESPONSE)


@pytest.mark.requirement("RDMAP-4.1-11")
@pytest.mark.parametrize("word", [1, 0xFFFFFFFF, None], ids=["one", "all ones", "its own"])
def test_the_invalidate_stag_of_other_messages_is_ignored(context: Context, word: int | None):
    exchange(context, word=word)
