"""Work requests, completions, phase bits, flushing: the driver's side of the rings."""

import math
import re
import threading
import time

import numpy as np
import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    Cause,
    ConnectionRequest,
    Context,
    DeviceError,
    QPCap,
    QPError,
    QPInitAttr,
    QPState,
    QPStateError,
    RecvWR,
    ResourceError,
    SendFlags,
    SendWR,
    WaitTimeout,
    WCOpcode,
    WCStatus,
    WROpcode,
    entries,
    registers,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.mpa_startup import StartupFrame
from stagecoach.host_driver.qp import ERROR_FLUSH_SECONDS, FLUSH_SECONDS, raise_if_stopped
from stagecoach.host_driver.ring import LOOKS
from stagecoach.hw.interface.queue_entries import (
    RECEIVE_ENTRY_OCTETS,
    SEND_UNIT_OCTETS,
    CompletionOpcode,
)
from tests.host_driver.fake_device import CQS, RTS, FakeDevice, entry_at


class NoStream:
    """Stands for the stream of a connection."""

    closed = False

    def close(self) -> None:
        self.closed = True


def connect(qp: QP, stream: NoStream | None = None) -> NoStream:
    stream = stream or NoStream()
    qp.connect(stream, initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return stream


def send_entry(verbs, index: int) -> dict:
    return entry_at(send_ring(verbs.device), index)


def send_ring(device) -> memoryview:
    return device.mapped[device.wide(registers.QP_SEND_BASE_LOW, registers.QP_SEND_BASE_HIGH)]


def test_posts_of_a_responder_that_wait_for_the_first_fpdu_say_so(verbs):
    """Until something completes: then the first FPDU has come."""
    verbs.qp.connect(NoStream(), initiator=False, crc=True, ord=3, ird=2, emss=1460)
    assert not verbs.qp._awaits_first_fpdu  # nothing is posted
    verbs.qp.post_send(SendWR(7))
    text = "QP 0 is MPA Responder and sends nothing before the Initiator's first FPDU"
    with pytest.raises(WaitTimeout, match=f"1 completions in 0 s; {text}"):
        verbs.cq.wait(1, 0)
    verbs.cq.req_notify()
    with pytest.raises(WaitTimeout, match=f"no event in 0 s; {text}"):
        verbs.cq.wait_event(0)
    with pytest.raises(WaitTimeout, match=f"end of the send queue of QP 0, which {text[5:]}"):
        verbs.qp.disconnect(0, drain=0.01)


@pytest.mark.parametrize("initiator", [False, True])
def test_what_has_begun_to_complete_does_not_wait_for_the_first_fpdu(verbs, initiator):
    verbs.qp.connect(NoStream(), initiator=initiator, crc=True, ord=3, ird=2, emss=1460)
    verbs.qp.post_send(SendWR(7), SendWR(8))
    assert verbs.qp._awaits_first_fpdu != initiator
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    with pytest.raises(WaitTimeout) as caught:
        verbs.cq.wait(2, 0)
    assert "Responder" not in str(caught.value)
    assert not verbs.qp._awaits_first_fpdu


def poll_for_long(cq: CQ) -> list[WC]:
    """What comes when the device has been asked what is lost."""
    return [wc for _ in range(LOOKS) for wc in cq.poll()]


def statuses(completions) -> list[tuple[int, WCStatus]]:
    return [(one.wr_id, one.status) for one in completions]


@pytest.mark.requirement("RDMAP-6.1-02", "RDMAP-6.1-03", "RDMAP-8.1.1-12", "SEC-6.4.3.3-02")
def test_connect_tells_the_device_what_startup_agreed(verbs):
    connect(verbs.qp)
    device = verbs.device
    assert device.states[0] == RTS
    assert device.field(registers.QP_READS, "ord") == 3
    assert device.field(registers.QP_READS, "ird") == 2
    assert device.field(registers.QP_EMSS, "emss") == 1460
    assert device.field(registers.QP_MODE, "crc") == 1
    assert device.field(registers.QP_MODE, "initiator") == 1


def test_a_qp_is_connected_once_and_sends_only_then(verbs):
    with pytest.raises(QPStateError, match="QP 0 is in state INIT; allowed: RTS or ERR"):
        verbs.qp.post_send(SendWR())
    connect(verbs.qp)
    with pytest.raises(QPStateError, match="is in state RTS; allowed: INIT"):
        connect(verbs.qp)


def test_a_qp_without_stream_stops(verbs, monkeypatch):
    def fail(connection, stream):
        raise OSError("no stream")

    monkeypatch.setattr(verbs.device, "attach", fail)
    verbs.qp.post_recv(RecvWR(1))
    with pytest.raises(OSError, match="no stream"):
        connect(verbs.qp)
    assert verbs.qp.state == QPState.ERR
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.WR_FLUSH_ERR)]


@pytest.mark.requirement("RDMAP-5.1-08", "RDMAP-5.2.1-09", "DDP-5.2-06", "RPCRDMA-2-01")
def test_send_entry_is_what_was_asked_for(verbs):
    connect(verbs.qp)
    elements = [SGE(0x1111, 10, 0xA1), SGE(0x2222, 20, 0xA2)]
    verbs.qp.post_send(
        SendWR(1, WROpcode.RDMA_WRITE, elements, remote_addr=1 << 63, rkey=0xFFFFFFFF)
    )
    entry = send_entry(verbs, 0)
    assert entry["opcode"] == WROpcode.RDMA_WRITE
    assert entry["flags"] == 1
    assert entry["element_count"] == 2
    assert entry["length"] == 30
    assert entry["remote_stag"] == 0xFFFFFFFF
    assert entry["remote_tagged_offset"] == 1 << 63
    raw = entry["elements"]
    first = entries.ELEMENT.unpack_from(memoryview(raw), 0)
    assert first == {"tagged_offset": 0x1111, "length": 10, "stag": 0xA1}
    second = entries.ELEMENT.unpack_from(memoryview(raw), 16)
    assert second == {"tagged_offset": 0x2222, "length": 20, "stag": 0xA2}
    assert not any(raw[32:])


def test_an_entry_keeps_nothing_of_the_one_before_in_its_place(verbs):
    connect(verbs.qp)
    four = [SGE(0xFFFFFFFF, 1, 1)] * 4
    for index in range(4):
        verbs.qp.post_send(SendWR(index, sg=four))
        verbs.device.complete(0, 0, 2 * index, CompletionOpcode.SEND)
    verbs.cq.wait(4)
    verbs.qp.post_send(SendWR(4))
    entry = send_entry(verbs, 8)
    assert entry["element_count"] == 0
    assert not any(entry["elements"])


FOUR = [SGE(0x1000 * n, n, n) for n in range(1, 5)]


@pytest.mark.parametrize("elements", range(5))
def test_more_than_two_elements_take_a_second_unit(verbs, elements):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1, sg=FOUR[:elements]), SendWR(2))
    entry = send_entry(verbs, 0)
    raw = memoryview(entry["elements"])
    found = [entries.ELEMENT.unpack_from(raw, 16 * n) for n in range(elements)]
    assert (
        found
        == [{"tagged_offset": s.addr, "length": s.length, "stag": s.lkey} for s in FOUR][:elements]
    )
    units = 1 if elements <= 2 else 2
    assert verbs.device.doorbells == [("SEND_DOORBELL", {"qp": 0, "producer": units + 1})]
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    verbs.device.complete(0, 0, units, CompletionOpcode.SEND)
    assert [wc.wr_id for wc in verbs.cq.wait(2)] == [1, 2]


def test_so_many_requests_of_any_size_fit_the_queue(verbs):
    connect(verbs.qp)
    ring = send_ring(verbs.device)
    number = 1  # so that an entry begins in the last unit of the ring and ends in the first
    verbs.qp.post_send(SendWR(99))
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    for _ in range(5):
        verbs.qp.post_send(*[SendWR(n, sg=FOUR) for n in range(4)])
        with pytest.raises(ResourceError, match="send queue that holds 4 and has 4; allowed: 0"):
            verbs.qp.post_send(SendWR(9))
        for n in range(4):
            assert entry_at(ring, number + 2 * n) == send_entry(verbs, 1)
            verbs.device.complete(0, 0, number + 2 * n, CompletionOpcode.SEND)
        number += 8
        verbs.cq.poll(10)
    assert number * SEND_UNIT_OCTETS > 2 * len(ring)


def test_an_error_of_an_entry_of_two_units_is_its_own(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1, sg=FOUR), SendWR(2, sg=FOUR), SendWR(3))
    verbs.device.event(0, Cause.LOCAL_BAD_ENTRY, index=2)
    assert statuses(verbs.cq.wait(3)) == [
        (1, WCStatus.WR_FLUSH_ERR),
        (2, WCStatus.LOC_QP_OP_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]


@pytest.mark.parametrize(("cap", "most"), [((16385, 1), 16384), ((0, 1), 16384), ((1, 0), 32768)])
def test_a_queue_that_no_ring_holds_is_named(cap, most):
    with pytest.raises(ValueError, match=f"a queue of (16385|0) entries; allowed: 1 to {most}"):
        QPCap(*cap)


def test_one_doorbell_for_all_requests_of_a_call(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1), SendWR(2), SendWR(3))
    verbs.qp.post_recv(RecvWR(4), RecvWR(5))
    assert verbs.device.doorbells == [
        ("SEND_DOORBELL", {"qp": 0, "producer": 3}),
        ("RECEIVE_DOORBELL", {"qp": 0, "producer": 2}),
    ]


@pytest.mark.requirement("DDP-5.2-02")
@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([SendWR(), SendWR(sg=[SGE(0, 1, 1)] * 5)], "5 scatter/gather elements; allowed: 0 to 4"),
        (
            [SendWR(), SendWR(sg=[SGE(0, 1 << 31, 1)] * 2)],
            "a message of 4294967296 bytes; allowed: 0 to 2^32 - 1",
        ),
        (
            [SendWR(), SendWR(opcode=WROpcode.RDMA_READ, sg=[SGE(0, 1, 1)] * 2)],
            "RDMA Read with 2 elements; allowed: 0 or 1",
        ),
        ([SendWR(), SendWR(opcode=7)], "7 is not a valid WROpcode"),
    ],
)
def test_nothing_is_posted_if_one_request_is_wrong(verbs, requests, message):
    connect(verbs.qp)
    with pytest.raises(ValueError, match=re.escape(message)):
        verbs.qp.post_send(*requests)
    assert verbs.device.doorbells == []
    verbs.qp.post_send(*[SendWR(number) for number in range(4)])


def test_a_read_that_could_never_start_is_not_posted(verbs):
    verbs.qp.connect(NoStream(), initiator=True, crc=True, ord=0, ird=1, emss=1460)
    message = (
        "RDMA Read or atomic on QP 0, which is connected with ORD 0; "
        "allowed: on a QP with ORD 1 to 8"
    )
    with pytest.raises(ValueError, match=message):
        verbs.qp.post_send(SendWR(1), SendWR(2, WROpcode.RDMA_READ, [SGE(0, 1, 1)]))
    assert verbs.device.doorbells == []
    verbs.qp.post_send(SendWR(3))


def test_a_full_queue_is_a_resource_error_and_has_room_again_after_completions(verbs):
    connect(verbs.qp)
    qp, device = verbs.qp, verbs.device
    qp.post_send(*[SendWR(number) for number in range(4)])
    with pytest.raises(ResourceError, match="send queue that holds 4 and has 4; allowed: 0"):
        qp.post_send(SendWR(9))
    qp.post_recv(*[RecvWR(number) for number in range(4)])
    with pytest.raises(ResourceError, match="receive queue that holds 4 and has 4; allowed: 0"):
        qp.post_recv(RecvWR(9))
    # Nobody polls: posting itself sees what was completed.
    device.complete(0, 0, 0, CompletionOpcode.SEND)
    device.complete(0, 0, 1, CompletionOpcode.SEND)
    device.complete(0, 0, 0, CompletionOpcode.RECEIVE)
    qp.post_send(SendWR(10), SendWR(11))
    qp.post_recv(RecvWR(12))
    with pytest.raises(ResourceError):
        qp.post_send(SendWR(13))


def test_silent_requests_complete_with_the_next_signaled_one(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(
        SendWR(1, send_flags=SendFlags(0)), SendWR(2, send_flags=SendFlags(0)), SendWR(3)
    )
    assert send_entry(verbs, 0)["flags"] == 0
    verbs.device.complete(0, 0, 2, CompletionOpcode.SEND, 5)
    (completion,) = verbs.cq.wait()
    assert (completion.wr_id, completion.byte_len, completion.qp_num) == (3, 5, 0)
    verbs.qp.post_send(*[SendWR(number) for number in range(4)])


def test_a_completion_of_nothing_posted_is_not_told_to_the_users_of_other_cqs(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1))
    verbs.device.complete(0, 0, 7, CompletionOpcode.SEND)
    verbs.device.event(0, Cause.CRC_ERROR)
    assert CQ(verbs.context, 4).poll() == []
    assert verbs.qp.state == QPState.ERR
    with pytest.raises(DeviceError, match="completion of entry 7 of the send queue"):
        verbs.cq.poll()
    assert [wc.status for wc in verbs.cq.poll()] == [WCStatus.WR_FLUSH_ERR]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_completion_that_could_not_be_written_holds_up_no_other(verbs, lost):
    connect(verbs.qp)
    cq = CQ(verbs.context, 2)  # a ring of four entries
    qp = QP(verbs.pd, QPInitAttr(cq, cq, QPCap(1, 4)))
    connect(qp)
    ring = verbs.device.rings[cq.number]
    ring.producer += lost  # of another QP, which has stopped
    assert cq.poll() == []
    # For some turns of the ring: its place is not taken for an entry later.
    for index in range(12):
        qp.post_recv(RecvWR(index))
        assert cq.poll() == []
        verbs.device.complete(cq.number, qp.qp_num, index, CompletionOpcode.RECEIVE)
        assert [wc.wr_id for wc in poll_for_long(cq)] == [index]


@pytest.mark.parametrize("lost", [1, 16, 17, 300, 1000])
def test_any_number_of_completions_that_could_not_be_written_holds_up_no_other(verbs, lost):
    cq = CQ(verbs.context, 1024)  # a ring of 2048 entries
    qp = QP(verbs.pd, QPInitAttr(cq, cq))
    connect(qp)
    qp.post_recv(RecvWR(7))
    verbs.device.rings[cq.number].producer += lost
    verbs.device.complete(cq.number, qp.qp_num, 0, CompletionOpcode.RECEIVE)
    assert [wc.wr_id for wc in cq.wait(1)] == [7]


def test_who_waits_in_vain_learns_of_a_qp_whose_event_could_not_be_written(verbs):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(7))
    verbs.device.states[0], verbs.device.causes[0] = QPState.ERR, Cause.CRC_ERROR
    verbs.device.rings[CQS].producer += 1
    (flushed,) = verbs.cq.wait(1, timeout=0)
    assert (flushed.wr_id, flushed.status) == (7, WCStatus.WR_FLUSH_ERR)
    assert [event.cause for event in verbs.context.events] == [Cause.CRC_ERROR]


@pytest.mark.parametrize("look", ["poll", "process_events"])
def test_who_only_polls_learns_of_a_qp_whose_event_could_not_be_written(verbs, look):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(7))
    verbs.device.states[0], verbs.device.causes[0] = QPState.ERR, Cause.CRC_ERROR
    verbs.device.rings[CQS].producer += 1
    for _ in range(LOOKS):
        assert verbs.qp.known_state == QPState.RTS
        verbs.cq.poll() if look == "poll" else verbs.context.process_events()
    assert (verbs.qp.state, verbs.qp.cause) == (QPState.ERR, Cause.CRC_ERROR)
    assert statuses(verbs.cq.poll()) == [] if look == "poll" else [(7, WCStatus.WR_FLUSH_ERR)]


@pytest.mark.parametrize("wait", ["wait", "wait_event"])
def test_who_waits_without_end_learns_of_a_qp_whose_event_could_not_be_written(verbs, wait):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(7))
    device, turns = verbs.device, []
    device.wait_interrupt = lambda timeout: turns.append(timeout)  # None: there was none
    device.states[0], device.causes[0] = QPState.ERR, Cause.CRC_ERROR
    device.rings[CQS].producer += 1
    if wait == "wait":
        assert statuses(verbs.cq.wait(1, math.inf)) == [(7, WCStatus.WR_FLUSH_ERR)]
    else:
        verbs.cq.req_notify()
        verbs.cq.wait_event(math.inf)
    assert len(turns) == 1 and turns[0] <= 0.1


def test_an_event_on_its_way_is_not_taken_for_lost(verbs):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(7))
    device = verbs.device
    device.states[0] = QPState.ERR
    with pytest.raises(WaitTimeout):
        verbs.cq.wait(1, timeout=0)
    assert verbs.context.events == []
    device.event(0, Cause.CRC_ERROR, header=bytes(range(18)))
    verbs.context.process_events()
    (event,) = verbs.context.events
    assert event.header == bytes(range(18))


def test_a_completion_that_is_seen_behind_the_next_one_is_not_taken_for_lost(verbs):
    """AXI lets two writes become visible in any order before their responses."""
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1), SendWR(2))
    device, ring = verbs.device, verbs.device.rings[0]
    ring.producer = 1
    device.complete(0, 0, 1, CompletionOpcode.SEND)
    for ring.unanswered in (2, 2, 2):
        assert poll_for_long(verbs.cq) == []
    with pytest.raises(WaitTimeout):
        verbs.cq.wait(1, 0.0)
    ring.producer = 0
    device.complete(0, 0, 0, CompletionOpcode.SEND)
    ring.producer, ring.unanswered = 2, 0
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.SUCCESS), (2, WCStatus.SUCCESS)]


def test_no_completion_is_flushed_because_that_of_another_qp_is_lost(verbs):
    """The completions of a QP that stops are taken, also after one that is lost."""
    connect(verbs.qp)
    other = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, QPCap(4, 4)))
    connect(other)
    other.post_send(SendWR(1), SendWR(2))
    verbs.device.rings[0].producer += 1
    verbs.device.complete(0, other.qp_num, 0, CompletionOpcode.SEND)
    other.disconnect()
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.SUCCESS), (2, WCStatus.WR_FLUSH_ERR)]


def test_nothing_succeeds_behind_a_completion_that_could_not_be_written(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1), SendWR(2, send_flags=SendFlags(0)), SendWR(3), SendWR(4))
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    verbs.device.rings[0].producer += 1
    verbs.device.complete(0, 0, 3, CompletionOpcode.SEND)
    assert [(wc.wr_id, wc.status) for wc in verbs.cq.poll()] == [(1, WCStatus.SUCCESS)]
    verbs.device.event(0, Cause.HOST_WRITE_ERROR)
    flushed = [(wc.wr_id, wc.status) for wc in verbs.cq.wait(3)]
    assert flushed == [(wr_id, WCStatus.WR_FLUSH_ERR) for wr_id in (2, 3, 4)]


def test_an_event_that_could_not_be_written_holds_up_no_other(verbs):
    connect(verbs.qp)
    other = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq))
    connect(other)
    verbs.qp.post_recv(RecvWR(7))
    verbs.device.states[0], verbs.device.causes[0] = QPState.ERR, Cause.LOCAL_RECEIVE_PROTECTION
    verbs.device.rings[CQS].producer += 1
    verbs.device.event(other.qp_num, Cause.CRC_ERROR)
    verbs.context.process_events(ask=True)
    assert [event.cause for event in verbs.context.events] == [
        Cause.CRC_ERROR,
        Cause.LOCAL_RECEIVE_PROTECTION,
    ]
    assert "of the receive queue" not in verbs.context.events[1].describe()
    assert (verbs.qp.state, other.state) == (QPState.ERR, QPState.ERR)
    (flushed,) = verbs.cq.poll()
    assert (flushed.wr_id, flushed.status) == (7, WCStatus.WR_FLUSH_ERR)


def test_an_event_without_a_known_cause_is_a_named_error_and_is_told_once(verbs):
    connect(verbs.qp)
    verbs.device.event(0, 99)
    verbs.device.event(0, Cause.CRC_ERROR)
    with pytest.raises(DeviceError, match="event of QP 0 with cause 99; allowed: a Cause"):
        verbs.cq.poll()
    assert verbs.cq.poll() == []
    assert verbs.qp.cause == Cause.CRC_ERROR


def test_a_completion_of_nothing_posted_is_an_error_of_the_device(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1), SendWR(2))
    verbs.device.complete(0, 0, 2, CompletionOpcode.SEND)
    message = "QP 0: completion of entry 2 of the send queue; allowed: one of 2 from 0"
    with pytest.raises(DeviceError, match=message):
        verbs.cq.poll()
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    verbs.device.complete(0, 0, 1, CompletionOpcode.SEND)
    assert [one.wr_id for one in verbs.cq.wait(2)] == [1, 2]


def test_rings_go_round_with_the_phase_bit(verbs):
    connect(verbs.qp)
    qp, device, cq = verbs.qp, verbs.device, verbs.cq
    for number in range(70_000 // 50):
        # More turns than the running number has values.
        for step in range(50):
            index = (number * 50 + step) & 0xFFFF
            qp.post_recv(RecvWR(index))
            device.complete(0, 0, index, CompletionOpcode.RECEIVE, index)
            if step % 3 == 0:
                continue
            while found := cq.poll(2):
                for one in found:
                    assert (one.wr_id, one.opcode) == (one.byte_len, WCOpcode.RECV)
        assert cq.poll() == [] or step
        device.doorbells.clear()
    assert cq.poll(16) == []


def test_poll_wants_a_number(verbs):
    with pytest.raises(ValueError, match="num_entries is 0; allowed: 1 or more"):
        verbs.cq.poll(0)


def test_consumed_completions_are_told_to_the_device(verbs):
    connect(verbs.qp)
    for index in range(8):
        verbs.qp.post_recv(RecvWR(index))
        verbs.device.complete(0, 0, index, CompletionOpcode.RECEIVE)
        verbs.cq.poll(16)
    assert (
        "CQ_DOORBELL",
        {"cq": 0, "consumer": 8, "arm": 0, "solicited": 0},
    ) in verbs.device.doorbells


@pytest.mark.requirement("RDMAP-8.1.2-05", "SEC-6.4.3.2-01")
@pytest.mark.parametrize("cqe", [1, 2, 5, 64, 20_000, 1 << 15])
def test_a_cq_holds_what_it_says(context, device, cqe):
    cq = CQ(context, cqe)
    assert cq.cqe >= cqe
    outstanding = min(cq.cqe, 1 << 15)
    qp = QP(PD(context), QPInitAttr(cq, cq, QPCap(1, outstanding)))
    connect(qp)
    receive = RecvWR()
    qp.post_recv(*[receive] * outstanding)
    posted, completed = outstanding, 0
    # The worst moment to fill the CQ is when the device knows least of what was consumed.
    for consumed in (outstanding // 2 - 1, 1, 1, outstanding // 2, outstanding - 1):
        consumed = max(consumed, 1)
        for index in range(completed, completed + consumed):
            device.complete(cq.number, qp.qp_num, index & 0xFFFF, CompletionOpcode.RECEIVE)
        completed += consumed
        assert len(cq.poll(consumed)) == consumed
        qp.post_recv(*[receive] * consumed)
        posted += consumed
        used = device.rings[cq.number].producer - device.rings[cq.number].consumer & 0xFFFF
        assert used + posted - completed <= 1 << device.rings[cq.number].log2


@pytest.mark.requirement("MPA-7.1.2-25")
def test_waiting_arms_the_cq_and_ends_in_time(verbs):
    with pytest.raises(WaitTimeout, match=r"CQ 0: 0 of 1 completions in 0\.05 s"):
        verbs.cq.wait(timeout=0.05)
    assert verbs.device.doorbells[0] == (
        "CQ_DOORBELL",
        {"cq": 0, "consumer": 0, "arm": 1, "solicited": 0},
    )
    assert isinstance(WaitTimeout(), TimeoutError)


def test_completions_that_came_before_a_timeout_are_not_lost(verbs):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(1), RecvWR(2))
    verbs.device.complete(0, 0, 0, CompletionOpcode.RECEIVE)
    verbs.device.complete(0, 0, 1, CompletionOpcode.RECEIVE)
    with pytest.raises(WaitTimeout, match="2 of 3"):
        verbs.cq.wait(3, timeout=0.01)
    assert [one.wr_id for one in verbs.cq.wait(2)] == [1, 2]


@pytest.mark.requirement("RDMAP-6.2.1-02", "RDMAP-7.1-01", "DDP-6.2.2-02")
def test_an_error_flushes_what_is_left_in_order_behind_what_was_completed(verbs):
    stream = connect(verbs.qp)
    verbs.qp.post_send(*[SendWR(number) for number in range(10, 13)])
    verbs.qp.post_recv(*[RecvWR(number) for number in range(20, 23)])
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    verbs.device.complete(0, 0, 0, CompletionOpcode.RECEIVE)
    verbs.device.event(0, Cause.TAGGED_BOUNDS, header=b"\xc1\x40")
    assert statuses(verbs.cq.wait(6)) == [
        (10, WCStatus.SUCCESS),
        (20, WCStatus.SUCCESS),
        (11, WCStatus.WR_FLUSH_ERR),
        (12, WCStatus.WR_FLUSH_ERR),
        (21, WCStatus.WR_FLUSH_ERR),
        (22, WCStatus.WR_FLUSH_ERR),
    ]
    assert verbs.device.commands[-1] == CommandOpcode.QP_STOP
    assert stream.closed
    assert verbs.qp.query_state() == (QPState.ERR, Cause.TAGGED_BOUNDS)
    (event,) = verbs.context.events
    assert (event.qp_num, event.cause, event.header) == (0, Cause.TAGGED_BOUNDS, b"\xc1\x40")
    with pytest.raises(QPError, match="QP 0 stopped: tagged segment outside base and bounds"):
        raise_if_stopped(verbs.qp)


def test_the_request_at_fault_has_its_own_status(verbs):
    connect(verbs.qp)
    verbs.qp.post_send(SendWR(1), SendWR(2), SendWR(3))
    verbs.device.complete(0, 0, 0, CompletionOpcode.SEND)
    verbs.device.event(0, Cause.LOCAL_SEND_PROTECTION, index=1)
    completions = verbs.cq.wait(3)
    assert statuses(completions) == [
        (1, WCStatus.SUCCESS),
        (2, WCStatus.LOC_PROT_ERR),
        (3, WCStatus.WR_FLUSH_ERR),
    ]
    assert completions[1].cause == Cause.LOCAL_SEND_PROTECTION


@pytest.mark.requirement("RDMAP-6.2.1-02")
def test_requests_after_the_error_are_flushed_at_once(verbs):
    connect(verbs.qp)
    verbs.device.event(0, Cause.CRC_ERROR)
    verbs.context.process_events()
    doorbells = len(verbs.device.doorbells)
    verbs.qp.post_send(SendWR(1))
    verbs.qp.post_recv(RecvWR(2))
    assert len(verbs.device.doorbells) == doorbells
    assert statuses(verbs.cq.poll()) == [(1, WCStatus.WR_FLUSH_ERR), (2, WCStatus.WR_FLUSH_ERR)]


def test_one_qp_stops_alone(verbs):
    other = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, QPCap(4, 4)))
    connect(verbs.qp)
    connect(other)
    other.post_recv(RecvWR(5))
    verbs.device.event(0, Cause.UNTAGGED_MSN)
    verbs.context.process_events()
    assert (verbs.qp.state, other.state) == (QPState.ERR, QPState.RTS)
    verbs.device.complete(0, 1, 0, CompletionOpcode.RECEIVE, 9)
    (completion,) = verbs.cq.wait()
    assert (completion.wr_id, completion.qp_num, completion.byte_len) == (5, 1, 9)


def test_disconnecting_flushes(verbs):
    stream = connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(1))
    verbs.qp.disconnect()
    verbs.qp.disconnect()
    assert stream.closed
    (completion,) = verbs.cq.poll()
    assert completion.status == WCStatus.WR_FLUSH_ERR
    assert completion.cause == Cause.STOPPED_BY_DRIVER
    raise_if_stopped(verbs.qp)


@pytest.mark.parametrize("end", ["disconnect", "close", "close of the PD"])
def test_others_go_on_while_a_peer_that_does_not_read_is_waited_for(verbs, monkeypatch, end):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(1))
    detach, waiting, read = verbs.device.detach, threading.Event(), threading.Event()

    def wait_for_the_peer(connection, timeout):
        waiting.set()
        assert read.wait(5)
        detach(connection, timeout)

    monkeypatch.setattr(verbs.device, "detach", wait_for_the_peer)
    ends = {
        "disconnect": verbs.qp.disconnect,
        "close": verbs.qp.close,
        "close of the PD": verbs.pd.close,
    }
    threads = [threading.Thread(target=ends[end])]
    threads[0].start()
    try:
        assert waiting.wait(5)
        begun = time.monotonic()
        with verbs.context.lock:
            assert time.monotonic() - begun < 1
        # It is flushed, and takes requests only to flush them.
        verbs.qp.post_recv(RecvWR(2))
        flushed = [(1, WCStatus.WR_FLUSH_ERR), (2, WCStatus.WR_FLUSH_ERR)]
        assert statuses(verbs.cq.poll()) == flushed
        # Its number is not free before its connection is.
        threads.append(threading.Thread(target=verbs.qp.close))
        threads[1].start()
        threads[1].join(0.1)
        assert threads[1].is_alive()
        assert verbs.qp.qp_num in verbs.context.qps
    finally:
        read.set()
        for thread in threads:
            thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    assert not verbs.context.qps
    assert verbs.device.commands.count(CommandOpcode.QP_DESTROY) == 1


def test_a_connection_is_free_even_if_the_qp_cannot_be_stopped(verbs, monkeypatch):
    connect(verbs.qp)

    def fail():
        raise OSError("the event ring is broken")

    with monkeypatch.context() as broken:
        broken.setattr(verbs.context, "process_events", fail)
        with pytest.raises(OSError, match="the event ring is broken"):
            verbs.qp.close()
    assert not verbs.device.attached
    assert verbs.device.commands[-1] == CommandOpcode.QP_DESTROY
    assert not verbs.context.qps


def test_after_an_error_nobody_waits_for_the_peer(verbs):
    connect(verbs.qp)
    verbs.device.event(0, Cause.CRC_ERROR)
    verbs.cq.poll()
    other = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq))
    connect(other)
    other.disconnect()
    assert verbs.device.detach_timeouts == [ERROR_FLUSH_SECONDS, FLUSH_SECONDS]
    assert ERROR_FLUSH_SECONDS < 0.1


def test_events_are_consumed_and_told(verbs):
    connect(verbs.qp)
    verbs.device.event(0, Cause.LLP_CLOSED)
    verbs.context.process_events()
    assert (
        "CQ_DOORBELL",
        {"cq": CQS, "consumer": 1, "arm": 1, "solicited": 0},
    ) in verbs.device.doorbells


def test_every_event_raises_the_interrupt(verbs):
    device = verbs.device
    for number in range(3):
        assert device.field(registers.INTERRUPT_STATUS, "event") == 0
        device.event(0, Cause.LLP_CLOSED)
        assert device.field(registers.INTERRUPT_STATUS, "event") == 1, f"event {number}"
        verbs.context.process_events()


def test_waiting_sees_an_error_in_its_first_turn(verbs, monkeypatch):
    connect(verbs.qp)
    verbs.qp.post_recv(RecvWR(1), RecvWR(2))
    device, clear = verbs.device, verbs.context.clear_interrupts

    def comes_now():
        # The interrupt of both is cleared unseen, and the completion is found first.
        device.complete(0, 0, 0, CompletionOpcode.RECEIVE)
        device.event(0, Cause.LLP_CLOSED)
        clear()

    def must_not_wait(seconds):
        raise AssertionError("waits although all is there")

    monkeypatch.setattr(verbs.context, "clear_interrupts", comes_now)
    monkeypatch.setattr(verbs.context, "wait", must_not_wait)
    assert [one.wr_id for one in verbs.cq.wait(2)] == [1, 2]


def test_polling_for_something_lowers_the_interrupt(verbs):
    device = verbs.device

    def lowered() -> bool:
        return device.field(registers.INTERRUPT_STATUS, "event") == 0

    device.event(0, Cause.LLP_CLOSED)
    verbs.context.process_events()
    device.words[registers.INTERRUPT_STATUS.address] |= 3  # of an entry that was taken early
    verbs.context.poll_until(lowered, 0.1, "the interrupt")


def test_an_event_of_a_closed_qp_is_not_for_the_next_one_of_its_number(verbs, monkeypatch):
    connect(verbs.qp)
    device, command = verbs.device, verbs.device._command

    def closed_by_the_peer(opcode):
        if opcode == CommandOpcode.QP_STOP:
            device.event(verbs.qp.qp_num, Cause.LLP_CLOSED)
        command(opcode)

    monkeypatch.setattr(device, "_command", closed_by_the_peer)
    verbs.qp.close()
    assert [event.cause for event in verbs.context.events] == [Cause.LLP_CLOSED]
    # The same number at once, as if it were the only one left.
    verbs.context.resources._next_numbers.clear()
    after = QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq))
    assert after.qp_num == verbs.qp.qp_num
    verbs.cq.poll()
    assert (after.state, after.cause) == (QPState.INIT, Cause.NONE)


def test_a_closed_qp_is_not_stopped_by_its_last_event(verbs, monkeypatch):
    device, command = verbs.device, verbs.device._command

    def failed_at_the_end(opcode):
        if opcode == CommandOpcode.QP_DESTROY:
            device.event(verbs.qp.qp_num, Cause.LOCAL_BAD_ENTRY)
        command(opcode)

    monkeypatch.setattr(device, "_command", failed_at_the_end)
    verbs.qp.close()
    assert verbs.qp.state == QPState.RESET
    assert device.commands[-1] == CommandOpcode.QP_DESTROY


def test_two_cqs_get_their_own_completions(verbs):
    receive_cq = CQ(verbs.context, 4)
    qp = QP(verbs.pd, QPInitAttr(verbs.cq, receive_cq))
    connect(qp)
    qp.post_send(SendWR(1))
    qp.post_recv(RecvWR(2))
    verbs.device.complete(receive_cq.number, qp.qp_num, 0, CompletionOpcode.RECEIVE)
    verbs.device.complete(verbs.cq.number, qp.qp_num, 0, CompletionOpcode.SEND)
    assert [one.wr_id for one in verbs.cq.wait()] == [1]
    assert [one.wr_id for one in receive_cq.wait()] == [2]


def test_receive_entry_is_what_was_asked_for(verbs):
    region = MR(verbs.pd, bytearray(64))
    verbs.qp.post_recv(RecvWR(1, [SGE(region.addr, 64, region.lkey)]))
    device = verbs.device
    base = device.wide(registers.QP_RECEIVE_BASE_LOW, registers.QP_RECEIVE_BASE_HIGH)
    raw = bytes(device.mapped[base][:RECEIVE_ENTRY_OCTETS])
    expected = entries.ELEMENT.pack(tagged_offset=region.addr, length=64, stag=region.lkey)
    assert raw == expected.ljust(RECEIVE_ENTRY_OCTETS, b"\0")


def test_an_entry_has_no_other_fields():
    with pytest.raises(ValueError, match=r"no field \['colour'\]; allowed: \['tagged_offset'"):
        entries.ELEMENT.pack(colour=1)


def test_wrong_types_are_named_and_nothing_is_posted(verbs):
    connect(verbs.qp)
    good = SendWR(1)
    with pytest.raises(TypeError, match=r"SGE.addr is 1.5; allowed: an integer"):
        verbs.qp.post_send(good, SendWR(12, sg=[SGE(1.5, 1, 1)]))
    hint = r", those of a sequence with \* before it"
    with pytest.raises(TypeError, match=f"request is a list; allowed: SendWR{hint}"):
        verbs.qp.post_send(good, [SendWR()])
    with pytest.raises(TypeError, match=f"request is a list; allowed: RecvWR{hint}"):
        verbs.qp.post_recv([RecvWR()])
    with pytest.raises(TypeError, match="request is a RecvWR; allowed: SendWR"):
        verbs.qp.post_send(good, RecvWR())
    with pytest.raises(TypeError, match="request is a SendWR; allowed: RecvWR"):
        verbs.qp.post_recv(RecvWR(), SendWR())
    with pytest.raises(TypeError, match=r"RecvWR.sg is 'x'; allowed: a sequence of SGE"):
        RecvWR(sg="x")
    assert not verbs.qp._queues.send.posted and not verbs.qp._queues.receive.posted


@pytest.mark.requirement("RDMAP-8.1.1-10", "SEC-7.1-01")
def test_a_cq_of_another_device_is_refused(verbs):
    with Context(FakeDevice()) as other:
        foreign = CQ(other)
        for attr in (QPInitAttr(foreign, verbs.cq), QPInitAttr(verbs.cq, foreign)):
            with pytest.raises(ValueError, match="belongs to another device"):
                QP(verbs.pd, attr)


def test_a_connection_accepts_only_a_qp_of_its_device(verbs):
    with Context(FakeDevice()) as other:
        request = ConnectionRequest(other, NoStream(), StartupFrame(reply=False))
        with pytest.raises(ValueError, match="belongs to another device"):
            request.accept(verbs.qp)


@pytest.mark.parametrize("access", [-1, 8, 99])
def test_unknown_access_is_refused(verbs, access):
    with pytest.raises(ValueError, match=f"access is {access}; allowed: AccessFlags"):
        MR(verbs.pd, bytearray(8), access)


@pytest.mark.requirement("DDP-8.2-03")
def test_memory_of_objects_is_refused(verbs):
    with pytest.raises(TypeError, match="Python objects"):
        MR(verbs.pd, np.array([None, "text"], dtype=object))
    with pytest.raises(TypeError, match="pd is a Context; allowed: PD"):
        MR(verbs.context, bytearray(8))
