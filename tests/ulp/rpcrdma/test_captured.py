"""The headers of a Linux NFS/RDMA session: the codec and tshark say the same."""

import pytest

from stagecoach.ulp.rpcrdma.chunks import Segment
from stagecoach.ulp.rpcrdma.header import Header, Procedure, decode_header
from tests.ulp.rpcrdma.captured import dissected, sends

NAMES = (
    *("xid", "version", "flow_control", "msg_type", "reads_count", "writes_count", "reply_count"),
    *("segment_count", "position", "rdma_handle", "rdma_length", "rdma_offset"),
)


def fields_of(header: Header) -> dict[str, list[int]]:
    """The fields as tshark names them, in the order in which they come."""
    lists = header.lists
    chunks = lists.writes if lists.reply is None else (*lists.writes, lists.reply)
    segments = [each.target for each in lists.reads] + [each for chunk in chunks for each in chunk]
    fields = {
        "xid": [header.xid],
        "version": [header.version],
        "flow_control": [header.credits],
        "msg_type": [int(header.procedure)],
        "reads_count": [len(lists.reads)],
        "writes_count": [len(lists.writes)],
        "reply_count": [0 if lists.reply is None else 1],
        "segment_count": [len(chunk) for chunk in chunks],
        "position": [each.position for each in lists.reads],
    }
    for name in Segment.__slots__:
        fields[f"rdma_{name}"] = [getattr(segment, name) for segment in segments]
    return {name: numbers for name, numbers in fields.items() if numbers}


OF_THE_RFC = pytest.mark.requirement("RFC8166-4-01", "RFC8166-4.1.2-01")


@OF_THE_RFC
def test_every_header_has_the_fields_that_tshark_finds():
    decoded = {send.packet: decode_header(send.octets)[0] for send in sends()}
    found = dissected()
    assert len(found) == len(sends()) == len(decoded) == 64
    procedures = {header.procedure for header in decoded.values()}
    assert procedures == {Procedure.RDMA_MSG, Procedure.RDMA_NOMSG}
    assert any(header.lists.reads for header in decoded.values())
    assert any(header.lists.writes for header in decoded.values())
    for packet, fields in found:
        ours = fields_of(decoded[packet])
        assert ours == {name: numbers for name, numbers in fields.items() if name in NAMES}, packet


@OF_THE_RFC
def test_every_header_encodes_to_its_octets():
    for send in sends():
        header, end = decode_header(send.octets)
        assert header.encode() == send.octets[:end]
        if header.procedure is Procedure.RDMA_MSG:
            assert send.octets[end : end + 4] == header.xid.to_bytes(4)
