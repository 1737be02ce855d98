"""Inline sends, signalling of all, limits of a QP, and what it says of itself."""

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
    QPAttr,
    QPCap,
    QPInitAttr,
    QPState,
    QPStateError,
    Quota,
    QuotaExceeded,
    RecvWR,
    SendFlags,
    SendWR,
    WROpcode,
    entries,
)
from stagecoach.hw.interface.queue_entries import CompletionOpcode
from tests.host_driver.fake_device import FakeDevice, NoStream, send_entry

INLINE = SendFlags.SIGNALED | SendFlags.INLINE
CAP = QPCap(max_send_wr=2, max_recv_wr=4, max_send_sge=3, max_recv_sge=2, max_inline_data=16)


def make_qp(verbs, **options) -> QP:
    qp = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, CAP, rfc7306=True, **options))
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return qp


@pytest.fixture
def qp(verbs) -> QP:
    return make_qp(verbs)


@pytest.fixture
def mr(verbs) -> MR:
    return MR(verbs.pd, bytearray(range(64)))


def element(mr: MR, offset: int, length: int) -> SGE:
    return SGE(mr.addr + offset, length, mr.lkey)


def message(verbs, index: int) -> bytes:
    """What the device finds at the elements of a send entry."""
    entry = send_entry(verbs, index)
    found = b""
    for number in range(entry["element_count"]):
        one = entries.ELEMENT.unpack_from(memoryview(entry["elements"]), 16 * number)
        region = verbs.context.mrs[one["stag"]]
        found += region.read(one["length"], one["tagged_offset"] - region.addr)
    assert len(found) == entry["length"]
    return found


@pytest.mark.parametrize(
    "opcode",
    [WROpcode.SEND, WROpcode.SEND_WITH_INV, WROpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM],
)
def test_an_inline_message_is_copied_when_it_is_posted(verbs, qp, mr, opcode):
    immediate = bytes(8) if opcode == WROpcode.RDMA_WRITE_WITH_IMM else None
    elements = [element(mr, 8, 4), element(mr, 0, 2), element(mr, 63, 1)]
    qp.post_send(SendWR(1, opcode, elements, send_flags=INLINE, imm_data=immediate))
    mr.buf[:] = bytes(64)
    mr.close()
    assert message(verbs, 0) == bytes([8, 9, 10, 11, 0, 1, 63])
    assert send_entry(verbs, 0)["element_count"] == 1


def test_a_copy_stays_until_its_request_has_completed(verbs, qp, mr):
    """Two may be outstanding: the third one takes the place of the first."""
    first, second, third = ([element(mr, at, 16)] for at in (0, 16, 32))
    qp.post_send(SendWR(1, sg=first, send_flags=INLINE))
    qp.post_send(SendWR(2, sg=second, send_flags=INLINE))
    assert (message(verbs, 0), message(verbs, 1)) == (bytes(range(16)), bytes(range(16, 32)))
    verbs.device.complete(0, qp.qp_num, 0, CompletionOpcode.SEND)
    qp.post_send(SendWR(3, sg=third, send_flags=INLINE))
    assert (message(verbs, 1), message(verbs, 2)) == (bytes(range(16, 32)), bytes(range(32, 48)))


def test_an_empty_inline_message_has_no_element(verbs, qp):
    qp.post_send(SendWR(1, send_flags=INLINE))
    assert send_entry(verbs, 0)["element_count"] == 0


def test_what_cannot_be_inline_is_refused_and_nothing_is_posted(verbs, qp, mr, context):
    bad = {
        r"RDMA_READ with INLINE; allowed: with SEND, SEND_WITH_INV, RDMA_WRITE, RDMA_WRITE_W": {
            "opcode": WROpcode.RDMA_READ,
            "sg": [element(mr, 0, 1)],
        },
        r"inline data of 17 bytes; allowed: 0 to 16 \(QPCap.max_inline_data\)": {
            "sg": [element(mr, 0, 8), element(mr, 0, 9)]
        },
        r"8 bytes at offset 57 of a region of 64; allowed: offset and length from 0 on, with a "
        r"sum up to 64": {"sg": [element(mr, 57, 8)]},
        r"inline element with STag 0x0000abcd; allowed: that of an open region of the QP's PD": {
            "sg": [SGE(0, 1, 0xABCD)]
        },
        r"inline element with STag": {"sg": [element(MR(PD(context), 8), 0, 8)]},
    }
    verbs.device.doorbells.clear()
    for text, fields in bad.items():
        with pytest.raises(ValueError, match=text):
            qp.post_send(SendWR(1), SendWR(2, send_flags=INLINE, **fields))
    with pytest.raises(ValueError, match="inline data of 1 bytes; allowed: 0 to 0"):
        plain = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, QPCap(2, 2)))
        plain.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
        plain.post_send(SendWR(1, sg=[element(mr, 0, 1)], send_flags=INLINE))
    assert not verbs.device.doorbells


def test_the_copies_are_freed_with_the_qp_and_count_against_quotas():
    with Context(FakeDevice(), Quota(mrs=1, octets=100)) as context:
        pd, cq = PD(context), CQ(context, 64)
        with pytest.raises(QuotaExceeded, match="quota octets"):
            QP(pd, QPInitAttr(cq, cq, QPCap(2, 2, max_inline_data=51)))
        assert not context.qps and not context.mrs and context.resources.used["qps"] == 0
        qp = QP(pd, QPInitAttr(cq, cq, QPCap(2, 2, max_inline_data=50)))
        assert [region.length for region in context.mrs.values()] == [100]
        qp.close()
        assert not context.mrs


@pytest.mark.parametrize("everything", [False, True])
def test_sq_sig_all_signals_what_is_not_signaled(verbs, everything):
    qp = make_qp(verbs, sq_sig_all=everything)
    quiet = SendFlags.FENCE
    qp.post_send(SendWR(1, send_flags=quiet))
    assert send_entry(verbs, 0)["flags"] == 2 + everything
    imm = SendWR(2, WROpcode.RDMA_WRITE_WITH_IMM, send_flags=SendFlags(0), imm_data=bytes(8))
    verbs.device.complete(0, qp.qp_num, 0, CompletionOpcode.SEND)
    qp.post_send(imm)
    assert [send_entry(verbs, n)["flags"] for n in (1, 2)] == [0, everything]


def test_more_elements_than_the_qp_was_made_for_are_refused(verbs, qp, mr):
    one = element(mr, 0, 1)
    qp.post_send(SendWR(1, sg=[one] * 3))
    qp.post_recv(RecvWR(1, [one] * 2))
    with pytest.raises(ValueError, match="4 scatter/gather elements; allowed: 0 to 3"):
        qp.post_send(SendWR(2, sg=[one] * 4))
    with pytest.raises(ValueError, match="3 scatter/gather elements; allowed: 0 to 2"):
        qp.post_recv(RecvWR(2, [one] * 3))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("max_send_sge", 0, "1 to 4"),
        ("max_send_sge", 5, "1 to 4"),
        ("max_recv_sge", 5, "1 to 4"),
        ("max_inline_data", -1, "0 to 4096"),
        ("max_inline_data", 4097, "0 to 4096"),
    ],
)
def test_limits_that_no_qp_has_are_named(name, value, allowed):
    with pytest.raises(ValueError, match=f"QPCap.{name} is {value}; allowed: {allowed}"):
        QPCap(**{name: value})


def test_a_qp_is_queried(verbs):
    made = QPInitAttr(verbs.cq, verbs.cq, CAP, rfc7306=True)
    qp = QP(verbs.pd, made)
    assert qp.query() == (QPAttr(QPState.INIT, Cause.NONE, CAP, None, None, None), made)
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    assert qp.query()[0] == QPAttr(QPState.RTS, Cause.NONE, CAP, 3, 2, 1460)
    verbs.device.states[qp.qp_num] = 3
    verbs.device.causes[qp.qp_num] = Cause.CRC_ERROR
    attr, _ = qp.query()
    assert (attr.qp_state, attr.cause) == (QPState.ERR, Cause.CRC_ERROR)
    qp.close()
    with pytest.raises(QPStateError, match="QP 1 is closed; allowed: an open QP"):
        qp.query()


# Regions with memory of their own


def test_a_region_may_have_memory_of_its_own(verbs, device):
    with MR(verbs.pd, 5000, AccessFlags.REMOTE_READ) as mr:
        assert mr.length == 5000 and device.stags[mr.stag] == 5000
        assert mr.host_address % 4096 == 0 and mr.read() == bytes(5000)
        mr.write(b"hello")
        mr.write(b"world!", 5, offset=4995)
        assert mr.read(5) == b"hello" and mr.read(offset=4995) == b"world"
        assert bytes(device.mapped[mr.host_address][:5]) == b"hello"
        assert mr.read(0, 5000) == b""


def test_any_buffer_is_read_and_written_as_octets(verbs):
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((2, 2), dtype="<u4")
    with MR(verbs.pd, array) as mr:
        mr.write(numpy.array([7], dtype="<u4"), offset=12)
        assert array[1, 1] == 7 and mr.read(4, 12) == b"\7\0\0\0"


def test_what_is_outside_a_region_is_refused(verbs):
    with pytest.raises(ValueError, match="a region of 0 bytes; allowed: 1 or more"):
        MR(verbs.pd, 0)
    with MR(verbs.pd, 8) as mr:
        for length, offset in ((9, 0), (1, 8), (-1, 0), (1, -1), (None, 9)):
            with pytest.raises(ValueError, match=r"bytes at offset -?[0-9] of a region of 8"):
                mr.read(length, offset)
        with pytest.raises(ValueError, match="9 bytes at offset 0 of a region of 8"):
            mr.write(bytes(9))
        with pytest.raises(ValueError, match="length is 3; allowed: 0 to 2, the length of data"):
            mr.write(b"ab", 3)
        assert mr.read() == bytes(8)
