"""What the objects of pyverbs ask of those of the driver, and get."""

import ctypes
import errno
import logging
import re

import pytest

from stagecoach import host_driver as driver
from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.queue_entries import CompletionFlags, CompletionOpcode
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.base import inc_rkey, translated
from stagecoach.pyverbs.cq import CQ, WC, CompChannel
from stagecoach.pyverbs.device import Context, Device, get_device_list
from stagecoach.pyverbs.mr import MR
from stagecoach.pyverbs.pd import PD
from stagecoach.pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from stagecoach.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from stagecoach.pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from stagecoach.pyverbs.wr import SGE, RecvWR, SendWR
from tests.host_driver.fake_device import send_entry

ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


def refused(code: int, match: str):
    """`PyverbsRDMAError` of an errno, with these words."""
    return pytest.raises(PyverbsRDMAError, match=f"{match}.*Errno: {code}")


# Errors


def test_an_error_has_its_number_in_the_text():
    assert str(PyverbsError("no")) == "no"
    error = PyverbsRDMAError("no", errno.ENOMEM)
    assert str(error) == "no. Errno: 12, Cannot allocate memory"
    assert (error.error_code, PyverbsRDMAError("no").error_code) == (errno.ENOMEM, -1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (driver.ConnectionRejected(b""), errno.ECONNREFUSED),
        (driver.ConnectionRefused("x"), errno.ECONNREFUSED),
        (driver.WaitTimeout("x"), errno.ETIMEDOUT),
        (DeviceClosed("x"), errno.ENODEV),
        (driver.QuotaExceeded("qps", 1, 1, 1), errno.ENOMEM),
        (driver.QPStateError("x"), errno.EINVAL),
        (ValueError("x"), errno.EINVAL),
        (driver.StartupError("x"), errno.ECONNABORTED),
        (driver.DeviceError("x"), errno.EIO),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_the_driver_become_those_of_pyverbs(error, code):
    with refused(code, f"call: {error}") as caught, translated("call"):
        raise error
    assert caught.value.__cause__ is error


def test_a_connection_that_is_refused_has_the_number_of_that():
    error = driver.StartupError("x")
    error.__cause__ = driver.TransportError("y")
    error.__cause__.__cause__ = ConnectionRefusedError(111, "z")
    with refused(errno.ECONNREFUSED, "call: x"), translated("call"):
        raise error


def test_a_wrong_type_stays_a_type_error(context):
    with pytest.raises(TypeError):
        MR(PD(context), "many")  # type: ignore[arg-type]


# Devices


def test_the_device_of_the_environment_is_listed(monkeypatch):
    monkeypatch.setenv("STAGECOACH_DEVICE", "serial:///dev/ttyUSB7")
    (device,) = get_device_list()
    assert (device.name, device.index) == (b"serial:///dev/ttyUSB7", 0)
    assert (device.node_type, device.transport_type) == (e.IBV_NODE_RNIC, e.IBV_TRANSPORT_IWARP)
    assert str(device) == "Device serial:///dev/ttyUSB7, RNIC, iWARP"
    monkeypatch.delenv("STAGECOACH_DEVICE")
    assert get_device_list()[0].name == b"simulation"


def test_a_context_needs_a_device():
    with pytest.raises(PyverbsUserError, match="Context without a device"):
        Context()
    with refused(errno.EINVAL, "device mlx5_0: device is 'mlx5_0'; allowed: simulation"):
        Context(name="mlx5_0")
    with refused(errno.EIO, "/dev/no_such_port"):
        Context(name="serial:///dev/no_such_port")
    with refused(errno.EOPNOTSUPP, r"Context\(cmd_fd=...\)"):
        Context(cmd_fd=3)


def test_a_named_context_closes_its_device_and_a_given_one_does_not(monkeypatch, device):
    monkeypatch.setattr("stagecoach.host_driver.locate.Locator.open", lambda _: device)
    with Context(name="simulation") as context:
        assert context.name == "simulation"
        with Context(verbs=context.verbs) as same:
            assert same.name == "FakeDevice"
        assert not device.closed
    assert device.closed


def test_a_device_tells_its_sizes(context):
    attr = context.query_device()
    assert (attr.max_qp, attr.max_cq, attr.max_qp_rd_atom, attr.max_res_rd_atom) == (4, 4, 8, 32)
    assert (attr.max_sge, attr.max_sge_rd, attr.atomic_caps) == (4, 1, e.IBV_ATOMIC_HCA)
    assert (attr.max_srq, attr.max_srq_sge, attr.max_ah, attr.phys_port_cnt) == (4, 4, 0, 1)
    assert context.num_comp_vectors == 1
    context.verbs.close()
    with refused(errno.ENODEV, "query_device: the context of FakeDevice is closed"):
        context.query_device()


def test_sizes_are_those_that_the_driver_allows(context):
    attr = context.query_device()
    assert driver.QPCap(max_send_wr=attr.max_qp_wr)
    with pytest.raises(ValueError):
        driver.QPCap(max_send_wr=attr.max_qp_wr + 1)
    assert CQ(context, attr.max_cqe)
    assert driver.SRQInitAttr(attr.max_srq_wr, attr.max_srq_sge)
    for make in (
        lambda: CQ(context, attr.max_cqe + 1),
        lambda: SRQ(PD(context), SrqInitAttr(SrqAttr(attr.max_srq_wr + 1))),
    ):
        with refused(errno.EINVAL, "a queue of 32769 entries"):
            make()


def test_an_asynchronous_event_is_that_of_a_qp(objects):
    objects.device.event(objects.qp.qp_num, Cause.CRC_ERROR)
    event = objects.context.get_async_event()
    event.ack()
    assert event.event_type == e.IBV_EVENT_QP_FATAL
    assert (event.verbs.qp_num, event.verbs.cause) == (objects.qp.qp_num, Cause.CRC_ERROR)


def test_objects_have_a_logger(objects):
    objects.cq.set_log_level(logging.DEBUG)
    assert objects.cq.logger is logging.getLogger("CQ")
    assert objects.cq.logger.level == logging.DEBUG


# Memory


def test_a_region_has_memory_that_can_be_read_and_written(objects):
    with MR(objects.pd, 100, ALL) as region:
        region.write("text", 4, 10)
        region.write(b"octets", 2)
        assert region.read(14, 0) == b"oc" + bytes(8) + b"text"
        assert (region.length, region.lkey, region.buf) == (100, region.rkey, region.verbs.addr)
        assert region.verbs.access == driver.AccessFlags(7)
        with refused(errno.EINVAL, "read: 101 bytes"):
            region.read(101, 0)
        with pytest.raises(PyverbsUserError, match="offset -1"):
            region.read(1, -1)
    assert region.rkey not in objects.device.stags


def test_a_region_can_be_memory_of_the_program(objects):
    memory = ctypes.create_string_buffer(b"mine", 16)
    region = MR(objects.pd, 16, ALL, address=ctypes.addressof(memory))
    assert region.buf == ctypes.addressof(memory)
    region.write(b"M", 1)
    assert memory.value == b"Mine"
    region.close()


def test_rights_are_those_of_libibverbs(objects):
    flags = driver.AccessFlags
    for access, rights in (
        (0, flags(0)),
        (e.IBV_ACCESS_REMOTE_READ, flags.REMOTE_READ),
        # libibverbs refuses these two without LOCAL_WRITE
        (e.IBV_ACCESS_REMOTE_WRITE, flags.REMOTE_WRITE),
        (e.IBV_ACCESS_REMOTE_ATOMIC, flags.REMOTE_ATOMIC),
        (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_RELAXED_ORDERING, flags.LOCAL_WRITE),
    ):
        with MR(objects.pd, 8, access) as region:
            assert region.verbs.access == rights
    for access in (e.IBV_ACCESS_MW_BIND, e.IBV_ACCESS_ON_DEMAND, e.IBV_ACCESS_ZERO_BASED):
        with refused(errno.EOPNOTSUPP, f"access {access:#x}"):
            MR(objects.pd, 8, access | ALL)


def test_keys_count_in_their_lowest_octet():
    assert inc_rkey(0x123456FF) == 0x12345600


def test_handles_of_a_kernel_are_refused(objects):
    for make in (
        lambda: PD(objects.context, handle=1),
        lambda: MR(objects.pd, handle=1),
        lambda: MR(objects.pd, implicit=True),
    ):
        with refused(errno.EOPNOTSUPP, "is not supported"):
            make()


# Queue Pairs


def test_only_connected_qps_can_be_made(objects):
    with refused(errno.EOPNOTSUPP, "qp_type 4"):
        QP(objects.pd, QPInitAttr(scq=objects.cq, rcq=objects.cq))
    with pytest.raises(PyverbsUserError, match="without CQs"):
        QP(objects.pd, QPInitAttr(e.IBV_QPT_RC))
    with refused(errno.EOPNOTSUPP, "QP of a Context"):
        QP(objects.context, QPInitAttr(e.IBV_QPT_RC))  # type: ignore[arg-type]


def test_a_qp_is_what_it_was_asked_to_be(objects):
    _, made = objects.qp.verbs.query()
    assert made.rfc7306 and made.sq_sig_all
    assert made.cap == driver.QPCap(4, 4, 1, 1, 16)
    attr, init = objects.qp.query(e.IBV_QP_STATE)
    assert (attr.qp_state, attr.max_rd_atomic, attr.max_dest_rd_atomic) == (e.IBV_QPS_RTS, 3, 2)
    assert init.max_inline_data == attr.cap.max_inline_data == 16
    assert objects.qp.qp_type == e.IBV_QPT_RC


def test_sizes_of_a_qp_can_be_set_one_by_one():
    cap = QPCap(max_recv_wr=0)
    init = QPInitAttr(cap=cap)
    init.max_send_wr, init.max_send_sge = 5, 2
    assert cap == QPCap(max_recv_wr=0)
    assert (init.cap.max_send_wr, init.cap.max_send_sge, init.max_recv_wr) == (5, 2, 0)
    assert init.cap.verbs == driver.QPCap(5, 1, 2, 1, 0), "one receive at least"


def test_a_qp_without_signals_completes_what_asks_for_it(objects):
    cq = CQ(objects.context, 8)
    quiet = QP(objects.pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq, sq_sig_all=0))
    assert not quiet.verbs.query()[1].sq_sig_all


def test_qps_may_share_a_cq_that_they_could_overflow(objects):
    cq = CQ(objects.context, 1)
    for _ in range(2):
        QP(objects.pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq, cap=QPCap(50, 50)))


def test_a_qp_is_moved_to_error_alone(objects):
    qp = objects.qp
    qp.modify(QPAttr(e.IBV_QPS_RTR), e.IBV_QP_STATE)
    qp.modify(QPAttr(e.IBV_QPS_ERR), e.IBV_QP_ACCESS_FLAGS)
    with refused(errno.EOPNOTSUPP, "modify to state 3"):
        qp.modify(QPAttr(e.IBV_QPS_RTS), e.IBV_QP_STATE)
    assert qp.qp_state == e.IBV_QPS_RTS
    qp.modify(QPAttr(e.IBV_QPS_ERR), e.IBV_QP_STATE)
    assert qp.qp_state == e.IBV_QPS_ERR
    qp.close()
    assert qp.qp_state == e.IBV_QPS_RESET
    assert qp.query_data_in_order(e.IBV_WR_SEND) == 0


# Shared Receive Queues


def test_an_srq_is_what_it_was_asked_to_be(objects):
    asked = SrqAttr(max_wr=8, max_sge=2, srq_limit=5)
    init = SrqInitAttr(asked)
    asked.max_wr = 9
    assert (init.max_wr, init.max_sge, init.srq_limit) == (8, 2, 5)
    srq = SRQ(objects.pd, init)
    assert srq.query() == SrqAttr(8, 2, 0), "no limit is armed"
    assert srq.get_srq_num() == srq.verbs.number
    assert SrqInitAttr().max_wr == 0
    with refused(errno.EOPNOTSUPP, "SRQ of a Context"):
        SRQ(objects.context, init)  # type: ignore[arg-type]


def test_qps_take_from_their_srq_and_are_closed_with_it(objects):
    srq = SRQ(objects.pd, SrqInitAttr(SrqAttr(8)))
    qp = QP(objects.pd, QPInitAttr(e.IBV_QPT_RC, None, objects.cq, objects.cq, srq))
    assert qp.verbs.srq is srq.verbs
    receive = RecvWR(3, 1, [SGE(0x1000, 8, 7)], RecvWR(4, 1, [SGE(0x1000, 8, 7)]))
    objects.device.doorbells.clear()
    srq.post_recv(receive)
    fields = {"qp": srq.get_srq_num(), "producer": 2}
    assert objects.device.doorbells == [("RECEIVE_DOORBELL", fields)]
    objects.device.complete(objects.cq.verbs.number, qp.qp_num, 0, CompletionOpcode.RECEIVE, 8)
    _, (found,) = objects.cq.poll()
    assert (found.qp_num, found.wr_id, found.byte_len) == (qp.qp_num, 3, 8)
    with refused(errno.ENOMEM, "post_recv: "):
        for _ in range(8):
            srq.post_recv(RecvWR(0, 1, [SGE(0x1000, 8, 7)]))
    srq.close()
    assert qp.qp_state == e.IBV_QPS_RESET
    srq.close()


def test_a_limit_is_armed_by_its_mask_alone(objects):
    srq = SRQ(objects.pd, SrqInitAttr(SrqAttr(8)))
    limit = SrqAttr(srq_limit=2)
    srq.modify(limit, 0)
    assert srq.query().srq_limit == 0
    with refused(errno.EOPNOTSUPP, "modify with mask 0x1"):
        srq.modify(limit, e.IBV_SRQ_MAX_WR | e.IBV_SRQ_LIMIT)
    with refused(errno.EINVAL, "modify: srq_limit is 9"):
        srq.modify(SrqAttr(srq_limit=9), e.IBV_SRQ_LIMIT)
    srq.modify(limit, e.IBV_SRQ_LIMIT)
    assert srq.query().srq_limit == 2
    objects.device.srq_event(srq.get_srq_num(), Cause.SRQ_LIMIT_REACHED)
    event = objects.context.get_async_event()
    assert event.event_type == e.IBV_EVENT_SRQ_LIMIT_REACHED
    assert event.verbs.srq_num == srq.get_srq_num()


# Work requests


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (e.IBV_WR_SEND, driver.WROpcode.SEND),
        (e.IBV_WR_RDMA_WRITE, driver.WROpcode.RDMA_WRITE),
        (e.IBV_WR_RDMA_READ, driver.WROpcode.RDMA_READ),
    ],
)
def test_a_request_is_that_of_the_driver(opcode, expected):
    request = SendWR(5, opcode, num_sge=1, sg=[SGE(100, 8, 7), SGE(1, 1, 1)], send_flags=0)
    request.set_wr_rdma(rkey=0x11, addr=0x22)
    assert request.verbs == driver.SendWR(
        5, expected, [driver.SGE(100, 8, 7)], driver.SendFlags(0), remote_addr=0x22, rkey=0x11
    )


def test_atomics_have_their_operands():
    swap = SendWR(opcode=e.IBV_WR_ATOMIC_CMP_AND_SWP, num_sge=1, sg=[SGE(0, 8, 1)])
    swap.set_wr_atomic(1, 2, 3, 4)
    assert (swap.verbs.rkey, swap.verbs.remote_addr) == (1, 2)
    assert (swap.verbs.compare_add, swap.verbs.swap) == (3, 4)
    add = SendWR(opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[SGE(0, 8, 1)])
    assert add.verbs.opcode == driver.WROpcode.ATOMIC_FETCH_AND_ADD


def test_immediate_data_is_a_number_and_an_stag_to_invalidate_too():
    write = SendWR(opcode=e.IBV_WR_RDMA_WRITE_WITH_IMM, num_sge=1, sg=[SGE(0, 1, 1)], imm_data=258)
    assert write.verbs.imm_data == bytes(6) + b"\x01\x02"
    for opcode in (e.IBV_WR_LOCAL_INV, e.IBV_WR_SEND_WITH_INV):
        invalidate = SendWR(opcode=opcode, imm_data=0xABC)
        assert (invalidate.verbs.rkey, invalidate.verbs.imm_data) == (0xABC, None)


def test_flags_are_those_of_libibverbs():
    flags = driver.SendFlags
    for given, expected in (
        (e.IBV_SEND_SIGNALED, flags.SIGNALED),
        (e.IBV_SEND_FENCE | e.IBV_SEND_SOLICITED, flags.FENCE | flags.SOLICITED),
        (e.IBV_SEND_INLINE, flags.INLINE),
    ):
        assert SendWR(num_sge=1, sg=[SGE(0, 1, 1)], send_flags=given).verbs.send_flags == expected


def test_what_the_device_does_not_send_is_refused(objects):
    for request, match in (
        (SendWR(opcode=e.IBV_WR_SEND_WITH_IMM, num_sge=1, sg=[SGE(0, 1, 1)]), "opcode 3"),
        (SendWR(num_sge=1, sg=[SGE(0, 1, 1)], send_flags=e.IBV_SEND_IP_CSUM), "send_flags 0x10"),
    ):
        with refused(errno.EOPNOTSUPP, match):
            objects.qp.post_send(request)


def test_an_inline_message_is_in_registered_memory(objects):
    memory = ctypes.create_string_buffer(b"mine", 16)
    element = SGE(ctypes.addressof(memory), 4, 0)
    with refused(errno.EINVAL, "inline element with STag 0x00000000; allowed: "):
        objects.qp.post_send(SendWR(num_sge=1, sg=[element], send_flags=e.IBV_SEND_INLINE))


def test_a_request_needs_an_element():
    for make in (SendWR, RecvWR, lambda: SendWR(num_sge=2, sg=[SGE(0, 1, 1)])):
        with pytest.raises(PyverbsUserError, match=r"num_sge is \d, sg has"):
            make()


def test_a_chain_is_posted_with_one_doorbell(objects):
    element = SGE(0x1000, 8, 7)
    second = SendWR(2, num_sge=1, sg=[element])
    first = SendWR(1, num_sge=1, sg=[element], next_wr=second)
    objects.device.doorbells.clear()
    objects.qp.post_send(first)
    receive = RecvWR(3, 1, [element])
    receive.next_wr = RecvWR(4, 1, [element])
    objects.qp.post_recv(receive)
    rung = [(name, fields["producer"]) for name, fields in objects.device.doorbells]
    assert rung == [("SEND_DOORBELL", 2), ("RECEIVE_DOORBELL", 2)]
    assert send_entry(objects, 1)["elements"] != bytes(len(send_entry(objects, 1)["elements"]))


def test_a_full_queue_is_an_error(objects):
    request = RecvWR(num_sge=1, sg=[SGE(0, 1, 1)])
    for _ in range(4):
        objects.qp.post_recv(request)
    with refused(errno.ENOMEM, "post_recv: "):
        objects.qp.post_recv(request)


# Completions


def test_completions_are_polled_with_their_number(objects):
    cq, qp, device = objects.cq, objects.qp, objects.device
    for wr_id in (7, 8):
        qp.post_recv(RecvWR(wr_id, 1, [SGE(0, 64, 1)]))
    assert cq.poll() == (0, [])
    for index in range(2):
        device.complete(cq.verbs.number, qp.qp_num, index, CompletionOpcode.RECEIVE, 20)
    number, found = cq.poll(num_entries=16)
    assert number == 2
    expected = WC(7, e.IBV_WC_SUCCESS, e.IBV_WC_RECV, byte_len=20, qp_num=qp.qp_num)
    expected.verbs = found[0].verbs
    assert found[0] == expected
    assert found[1].verbs.describe() == f"RECV 8 of QP {qp.qp_num}: SUCCESS, 20 bytes"


def test_a_completion_has_immediate_data_or_the_stag_that_was_invalidated(objects):
    cq, qp, device = objects.cq, objects.qp, objects.device
    region = driver.MR(objects.pd.verbs, 8, qp=qp.verbs)
    for _ in range(2):
        qp.post_recv(RecvWR(0, 1, [SGE(0, 64, 1)]))
    device.complete(
        *(cq.verbs.number, qp.qp_num, 0, CompletionOpcode.RECEIVE, 8),
        flags=CompletionFlags.IMMEDIATE,
        immediate_data=int.from_bytes(bytes(7) + b"\x05", "little"),
    )
    device.receive_invalidating(cq.verbs.number, qp.qp_num, 1, region.stag)
    _, (immediate, invalidated) = cq.poll(2)
    assert (immediate.wc_flags, immediate.imm_data) == (e.IBV_WC_WITH_IMM, 5)
    assert immediate.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM
    assert (invalidated.wc_flags, invalidated.imm_data) == (e.IBV_WC_WITH_INV, region.stag)


def test_a_completion_in_error_has_the_cause(objects):
    objects.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(0, 1, 1)]))
    objects.device.event(objects.qp.qp_num, Cause.CRC_ERROR)
    _, (flushed,) = objects.cq.poll()
    assert (flushed.status, flushed.vendor_err) == (e.IBV_WC_WR_FLUSH_ERR, Cause.CRC_ERROR)


def test_a_channel_tells_of_its_cq(context, device):
    channel = CompChannel(context)
    cqs = [CQ(context, 8, None, channel, 0) for _ in range(2)]
    pd = PD(context)
    qps = [QP(pd, QPInitAttr(e.IBV_QPT_RC, None, cq, cq)) for cq in cqs]
    for cq, qp in zip(cqs, qps, strict=True):
        assert cq.comp_channel is channel
        cq.req_notify()
        qp.post_recv(RecvWR(num_sge=1, sg=[SGE(0, 1, 1)]))
        device.complete(cq.verbs.number, qp.qp_num, 0, CompletionOpcode.RECEIVE)
        channel.get_cq_event(cq)
        cq.ack_events(1)
    cqs[0].req_notify()
    with pytest.raises(PyverbsRDMAError, match="an event of <CQ 0"):
        channel.get_cq_event(cqs[1])
    channel.close()


def test_another_vector_is_refused(context):
    with refused(errno.EOPNOTSUPP, "comp_vector 1"):
        CQ(context, 8, None, None, 1)


def test_objects_close_what_they_stand_for(objects):
    for each in (objects.qp, objects.cq, objects.pd):
        each.close()
        each.close()
    assert "closed" in repr(objects.cq) and "closed" in repr(objects.pd)


# What objects say of themselves


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Device(b"simulation", 0, 4, 1, 0), r"Device\(name=b'simulation', guid=0, node_type=4, .*"),
        (RecvWR(7, 1, [SGE(16, 4, 9)]), r"RecvWR\(wr_id=7, num_sge=1, sg=\[SGE\(addr=16, .*\)\]\)"),
        (SendWR(7, num_sge=1, sg=[SGE(16, 4, 9)]), r"SendWR\(wr_id=7, opcode=2, .*, swap=0\)"),
        (SrqInitAttr(SrqAttr(5, 2)), r"SrqInitAttr\(max_wr=5, max_sge=2, srq_limit=0\)"),
        (QPInitAttr(e.IBV_QPT_RC, cap=QPCap(4)), r"QPInitAttr\(qp_type=2, .*max_send_wr=4, .*\)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_program_makes_shows_its_numbers(made, text):
    assert re.fullmatch(text, repr(made))


def test_attributes_show_queues_that_are_closed(objects):
    attr = QPInitAttr(e.IBV_QPT_RC, scq=objects.cq)
    assert "send_cq=<CQ 0: 8 completions>, recv_cq=None" in repr(attr)
    objects.qp.close()
    objects.cq.close()
    assert "send_cq=<CQ 0: 8 completions, closed>" in repr(attr)


def test_an_event_shows_what_happened(objects):
    objects.device.event(0, Cause.LLP_CLOSED)
    shown = repr(objects.context.get_async_event())
    assert shown.startswith("AsyncEvent(event_type=1, verbs=") and "LLP_CLOSED" in shown
