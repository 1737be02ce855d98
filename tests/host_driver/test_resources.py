"""Devices, Protection Domains, memory regions and CQs: what is handed out, and what is refused."""

import mmap
import re

import numpy
import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    DeviceClosed,
    DeviceError,
    FastMR,
    QPCap,
    QPInitAttr,
    QPStateError,
    RecvWR,
    ResourceError,
    SendWR,
    StagecoachError,
    listen,
    registers,
)
from stagecoach.host_driver.answers import KNOWN
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.transport.base import TransportError
from tests.host_driver.fake_device import CQS, QPS, STAGS_LOG2, NoStream

SLOTS = 1 << STAGS_LOG2


def slot_of(stag: int) -> int:
    return stag >> 8 & (SLOTS - 1)


def test_another_device_is_refused(device):
    device.words[registers.ID.address] = 0xDEADBEEF
    with pytest.raises(DeviceError, match="ID 0xDEADBEEF; allowed: 0x50525769"):
        Context(device)


def set_version(device, major, minor):
    device.words[registers.VERSION.address] = registers.VERSION.pack(major=major, minor=minor)


@pytest.mark.parametrize("version", [(1, KNOWN[1] + 1), (KNOWN[0], 0), (KNOWN[0] + 1, 0)])
def test_another_version_is_refused(device, version):
    set_version(device, *version)
    digest = f"digest 0x{registers.INTERFACE.constant:08X}"
    found = digest if version > KNOWN else "no digest"
    with pytest.raises(DeviceError) as refused:
        Context(device)
    assert str(refused.value) == (
        f"the device has interface {version[0]}.{version[1]} with {found}; allowed: "
        f"{KNOWN[0]}.{KNOWN[1]} with {digest}, or a later {KNOWN[0]}.x"
    )


def test_another_interface_of_the_same_version_is_refused(device):
    device.words[registers.INTERFACE.address] ^= 1
    found = f"0x{registers.INTERFACE.constant ^ 1:08X}"
    with pytest.raises(DeviceError, match=f"interface {KNOWN[0]}.{KNOWN[1]} with digest {found};"):
        Context(device)


def test_a_later_minor_version_is_taken(device):
    set_version(device, KNOWN[0], KNOWN[1] + 1)
    device.words[registers.INTERFACE.address] ^= 1
    with Context(device) as context:
        attr = context.query_device()
    assert attr.version == (KNOWN[0], KNOWN[1] + 1)
    assert attr.interface_digest == registers.INTERFACE.constant ^ 1


@pytest.mark.parametrize("wrong", ["identity", "refused"])
def test_a_context_that_is_not_opened_keeps_nothing(device, wrong):
    if wrong == "identity":
        device.words[registers.ID.address] = 0xDEADBEEF
    else:
        device.refuse.add(CommandOpcode.CQ_ENABLE)
    with pytest.raises(DeviceError):
        Context(device)
    assert device.closed
    assert not device.mapped


@pytest.mark.parametrize(
    ("command", "make"),
    [
        (CommandOpcode.CQ_ENABLE, lambda verbs: CQ(verbs.context, 4)),
        (CommandOpcode.QP_CREATE, lambda verbs: QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq))),
        (CommandOpcode.STAG_WRITE, lambda verbs: MR(verbs.pd, bytearray(8), stag=0x100)),
        (None, lambda verbs: QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq, QPCap(4, 0)))),
    ],
    ids=["CQ", "QP", "MR", "QP rings"],
)
def test_what_is_refused_keeps_nothing(verbs, command, make):
    device = verbs.device
    mapped, closing = set(device.mapped), len(verbs.context._open)
    children = list(verbs.pd.children)
    if command is not None:
        device.refuse.add(command)
    with pytest.raises((DeviceError, ValueError)):
        make(verbs)
    assert set(device.mapped) == mapped
    assert len(verbs.context._open) == closing
    assert list(verbs.pd.children) == children
    device.refuse.clear()
    # Its number and its STag are free.
    if command is not None:
        make(verbs)
    for _ in range(QPS - len(verbs.context.qps)):
        QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq))


def test_a_ring_that_cannot_be_mapped_keeps_nothing(verbs, monkeypatch):
    mapped = set(verbs.device.mapped)
    map_memory, rings = verbs.device.map_memory, []

    def fail(buffer):
        if rings:
            raise TransportError("no more mappings")
        rings.append(buffer)
        return map_memory(buffer)

    monkeypatch.setattr(verbs.device, "map_memory", fail)
    with pytest.raises(TransportError, match="no more mappings"):
        QP(verbs.pd, QPInitAttr(verbs.cq, verbs.cq))
    assert set(verbs.device.mapped) == mapped
    assert rings[0].closed


def test_sizes_come_from_the_registers(context):
    attr = context.query_device()
    assert (attr.max_qp, attr.max_cq, attr.max_mr, attr.max_qp_rd_atom) == (QPS, CQS, SLOTS, 8)
    assert attr.version == KNOWN
    assert attr.interface_digest == registers.INTERFACE.constant


def test_a_refused_command_is_an_error(context, device):
    device.refuse.add(CommandOpcode.STAG_WRITE)
    with pytest.raises(DeviceError, match="5"):
        MR(PD(context), bytearray(8))


def test_a_command_that_never_ends_is_an_error_and_the_last_one(device):
    """Another COMMAND would hang the bus, and other arguments would be those of the first."""
    context = Context(device, command_seconds=0.05)
    pd, cq = PD(context), CQ(context)
    qp = QP(pd, QPInitAttr(cq, cq))
    device.stuck = True
    commands, words = list(device.commands), dict(device.words)
    with pytest.raises(DeviceError, match="command 3, QP_STOP, is not finished: COMM"):
        context.command(CommandOpcode.QP_STOP)
    for use in (lambda: MR(pd, bytearray(8)), qp.query_state, qp.close):
        with pytest.raises(DeviceError, match="command 3 has not ended"):
            use()
    with pytest.raises(StagecoachError):
        context.close()
    assert device.commands == [*commands, CommandOpcode.QP_STOP]
    arguments = range(registers.QP_NUMBER.address, registers.FPDUS_SENT.address)
    assert all(device.words[at] == words[at] for at in arguments if at in words)
    assert device.closed


def test_a_device_with_a_command_of_another_program_is_not_opened(device):
    device.stuck = True
    with pytest.raises(DeviceError, match="command of another program is not finished"):
        Context(device, command_seconds=0.05)
    assert device.commands == [] and device.closed


@pytest.mark.requirement("RDMAP-8.1.1-09", "RFC8166-8.1.2-01")
def test_stags_are_drawn_over_the_whole_space_and_in_free_slots(context):
    pd = PD(context)
    seen = []
    for _ in range(40):
        regions = [MR(pd, bytearray(8)) for _ in range(SLOTS)]
        assert {slot_of(region.rkey) for region in regions} == set(range(SLOTS))
        seen += [region.rkey for region in regions]
        for region in regions:
            region.close()
    # Of 640 draws every bit is set in about half; 200 is more than nine deviations away.
    for bit in range(32):
        assert 200 < sum(stag >> bit & 1 for stag in seen) < 440, f"bit {bit}"


@pytest.mark.requirement("RDMAP-8.1.1-08", "RDMAP-8.1.1-09")
def test_stags_come_from_the_random_source_of_the_system(context, monkeypatch):
    drawn = [0xFFFFFF01, 0x00000002, 0x00000F03, 0x12345604]

    def randbits(bits: int) -> int:
        assert bits == 32
        return drawn.pop(0)

    monkeypatch.setattr("secrets.randbits", randbits)
    pd = PD(context)
    # The third one has the slot of the first.
    regions = [MR(pd, bytearray(8)) for _ in range(3)]
    assert [region.rkey for region in regions] == [0xFFFFFF01, 0x00000002, 0x12345604]
    assert drawn == []


@pytest.mark.requirement("SEC-6.1.1-04")
def test_the_stag_of_a_closed_region_does_not_come_back_soon(context):
    pd = PD(context)
    seen = []
    for _ in range(200):
        with MR(pd, bytearray(8)) as region:
            seen.append(region.rkey)
    # By chance two of 200 are the same in one of 200,000 runs.
    assert len(set(seen)) == len(seen)


@pytest.mark.requirement("RDMAP-8.1.2-02", "DDP-8.3.2-02", "SEC-3-02", "SEC-6.4.1-01")
def test_a_full_stag_table_is_a_resource_error(context):
    pd = PD(context)
    regions = [MR(pd, bytearray(8)) for _ in range(SLOTS)]
    with pytest.raises(ResourceError, match=f"all {SLOTS} STags"):
        MR(pd, bytearray(8))
    freed = slot_of(regions[3].rkey)
    regions[3].close()
    assert slot_of(MR(pd, bytearray(8)).rkey) == freed


def test_a_given_stag_is_used_and_its_slot_is_taken(context, device):
    pd = PD(context)
    region = MR(pd, bytearray(8), stag=0x12345678)
    assert region.stag in device.stags
    with pytest.raises(ResourceError, match="its slot 6 is in use"):
        MR(pd, bytearray(8), stag=0x00000601)
    with pytest.raises(ValueError, match="allowed: 0 to 2"):
        MR(pd, bytearray(8), stag=1 << 32)


@pytest.mark.requirement("RDMAP-8.1.2-04", "DDP-8.3.2-04", "SEC-7.3-01")
@pytest.mark.parametrize(
    "buffer",
    [b"read-only", bytearray(), numpy.zeros((4, 4), numpy.uint8)[:, ::2], numpy.zeros((2, 3)).T],
    ids=["read-only", "empty", "scattered", "fortran"],
)
def test_a_buffer_that_cannot_be_registered_is_a_type_error(context, device, buffer):
    with pytest.raises(TypeError, match="allowed: a writable, C-contiguous buffer"):
        MR(PD(context), buffer)
    assert not device.stags


def test_any_writable_buffer_is_registered_without_a_copy(context, device):
    pd = PD(context)
    array = numpy.zeros(100, numpy.uint32)
    anonymous = mmap.mmap(-1, 5000)
    for buffer, octets in ((bytearray(7), 7), (array, 400), (anonymous, 5000)):
        region = MR(pd, buffer, AccessFlags.REMOTE_WRITE)
        assert region.length == octets == device.stags[region.rkey]
        device.mapped[region.addr][:3] = b"abc"
        assert bytes(memoryview(buffer).cast("B")[:3]) == b"abc"


@pytest.mark.requirement("DDP-8.3-01", "RPCRDMA-2-01", "RFC8166-2.3.2-01")
def test_a_chosen_tagged_offset_is_written_and_checked(context, device):
    pd = PD(context)
    region = MR(pd, bytearray(16), addr=(1 << 64) - 17)
    assert region.addr == (1 << 64) - 17
    assert device.wide(registers.STAG_BASE_LOW, registers.STAG_BASE_HIGH) == region.addr
    with pytest.raises(ValueError, match=f"addr is {(1 << 64) - 16}"):
        MR(pd, bytearray(16), addr=(1 << 64) - 16)


@pytest.mark.requirement("RDMAP-3.2-04", "RDMAP-8.1.1-04", "DDP-8.3-02", "DDP-8.3.1-05")
def test_a_closed_region_is_unknown_to_the_device_and_its_buffer_is_free(context, device):
    buffer = bytearray(8)
    region = MR(PD(context), buffer)
    assert region.rkey in device.stags
    region.close()
    region.close()
    assert not device.stags
    assert region.addr not in device.mapped
    assert device.commands.count(CommandOpcode.STAG_INVALIDATE) == 1


def test_a_context_does_not_remember_closed_regions(context):
    pd = PD(context)
    before = len(context._open)
    for _ in range(100):
        MR(pd, bytearray(8)).close()
    assert len(context._open) == before


def test_closing_a_pd_closes_what_is_in_it(verbs):
    MR(verbs.pd, bytearray(8))
    verbs.pd.close()
    assert not verbs.device.stags
    assert verbs.qp.qp_num not in verbs.context.qps


def test_a_pd_closed_twice_does_not_free_the_number_of_another(context):
    first = PD(context)
    first.close()
    second = PD(context)
    first.close()
    assert PD(context).number != second.number


@pytest.mark.requirement("DDP-8.2-03")
def test_a_closed_pd_takes_nothing_more(verbs):
    closed = PD(verbs.context)
    closed.close()
    message = f"PD {closed.number} is closed; allowed: an open PD"
    with pytest.raises(ValueError, match=message):
        MR(closed, bytearray(8))
    with pytest.raises(ValueError, match=message):
        QP(closed, QPInitAttr(verbs.cq, verbs.cq))
    assert not verbs.device.stags


def test_a_closed_cq_takes_nothing_more(verbs):
    closed = CQ(verbs.context, 4)
    closed.close()
    message = f"CQ {closed.number} is closed; allowed: an open CQ"
    for queues in (QPInitAttr(closed, verbs.cq), QPInitAttr(verbs.cq, closed)):
        with pytest.raises(ValueError, match=message):
            QP(verbs.pd, queues)
    doorbells = len(verbs.device.doorbells)
    for call in (closed.poll, closed.wait, closed.wait_event, lambda: closed.ack_events(0)):
        with pytest.raises(ValueError, match=message):
            call()
    assert len(verbs.device.doorbells) == doorbells


def test_what_was_in_a_cq_is_polled_after_it_is_closed(connected):
    cq = CQ(connected.context, 8)
    qp = QP(connected.pd, QPInitAttr(cq, cq))
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    qp.post_recv(RecvWR(1), RecvWR(2))
    qp.close()
    cq.close()
    assert [completion.wr_id for completion in cq.poll()] == [1, 2]
    with pytest.raises(ValueError, match="CQ 1 is closed; allowed: an open CQ"):
        cq.poll()


@pytest.mark.parametrize("kind", [MR, FastMR])
def test_a_closed_region_is_neither_read_nor_written(verbs, kind):
    region = kind(verbs.pd, 8)
    region.close()
    message = f"{kind.__name__} of STag 0x{region.stag:08x} is closed; allowed: an open one"
    for call in (region.read, lambda: region.write(b"x")):
        with pytest.raises(ValueError, match=message):
            call()


def test_calls_after_the_context_is_closed_say_so(verbs):
    verbs.context.close()
    cq, context = verbs.cq, verbs.context
    of_the_context = (context.query_device, context.clear_interrupts)
    for call in (cq.poll, cq.wait, cq.wait_event, cq.req_notify, *of_the_context):
        with pytest.raises(DeviceClosed, match="the context of FakeDevice is closed; allowed: an"):
            call()


@pytest.mark.parametrize("name", ["wait", "wait_event", "get_async_event"])
def test_a_wait_that_ends_with_the_context_says_so(verbs, monkeypatch, name):
    """Another thread closes it meanwhile."""

    def closed(_: float) -> bool:
        verbs.context.close()
        raise DeviceClosed("the transport is closed")

    monkeypatch.setattr(verbs.device, "wait_interrupt", closed)
    verbs.cq.req_notify()
    call = getattr(verbs.context if name == "get_async_event" else verbs.cq, name)
    with pytest.raises(DeviceClosed, match="the context of FakeDevice is closed; allowed: an open"):
        call(timeout=5)


def test_a_wait_that_ends_with_the_device_says_why(verbs, monkeypatch):
    def ended(_: float) -> bool:
        raise DeviceClosed("the device was unplugged")

    monkeypatch.setattr(verbs.device, "wait_interrupt", ended)
    with pytest.raises(DeviceClosed, match="the device was unplugged"):
        verbs.cq.wait(timeout=5)


def test_a_closed_qp_takes_nothing_more(verbs):
    verbs.qp.close()
    message = "QP 0 is closed; allowed: an open QP"
    with pytest.raises(QPStateError, match=message):
        MR(verbs.pd, bytearray(8), qp=verbs.qp)
    with pytest.raises(QPStateError, match=message):
        verbs.qp.post_recv(RecvWR())
    with pytest.raises(QPStateError, match=message):
        verbs.qp.query_state()
    with pytest.raises(QPStateError, match=message):
        verbs.qp.post_send(SendWR())
    assert not verbs.device.stags


def test_a_region_of_a_qp_ends_with_it(verbs):
    mine = MR(verbs.pd, bytearray(8), qp=verbs.qp)
    closed = MR(verbs.pd, bytearray(8), qp=verbs.qp)
    other = MR(verbs.pd, bytearray(8))
    closed.close()
    verbs.qp.close()
    assert list(verbs.device.stags) == [other.rkey]
    assert mine.addr not in verbs.device.mapped
    # Nobody may use the number before the region is gone.
    last = [CommandOpcode.STAG_INVALIDATE, CommandOpcode.QP_DESTROY]
    assert verbs.device.commands[-2:] == last
    mine.close()
    verbs.pd.close()
    assert verbs.device.commands.count(CommandOpcode.STAG_INVALIDATE) == 3


def test_a_qp_is_freed_even_if_a_region_of_it_is_not(verbs):
    region = MR(verbs.pd, bytearray(8), qp=verbs.qp)
    verbs.device.refuse.add(CommandOpcode.STAG_INVALIDATE)
    with pytest.raises(DeviceError):
        verbs.qp.close()
    assert verbs.device.commands[-1] == CommandOpcode.QP_DESTROY
    assert not verbs.context.qps and "closed" in repr(region)


def test_a_cq_in_use_is_not_closed(verbs):
    with pytest.raises(ResourceError, match=r"in use by QPs \[0\]"):
        verbs.cq.close()
    verbs.qp.close()
    verbs.cq.close()
    assert verbs.cq.number not in verbs.device.rings


@pytest.mark.requirement("RDMAP-8.1.2-02", "RDMAP-8.1.2-05", "DDP-8.3.2-02", "SEC-3-02")
@pytest.mark.requirement("SEC-6.4.1-01", "SEC-6.4.3.2-01")
def test_all_queues_of_the_device_can_be_used_and_no_more(context):
    pd = PD(context)
    cqs = [CQ(context) for _ in range(CQS)]
    with pytest.raises(ResourceError, match=f"all {CQS} CQs"):
        CQ(context, 4)
    qps = [QP(pd, QPInitAttr(cqs[0], cqs[0])) for _ in range(QPS)]
    with pytest.raises(ResourceError, match=f"all {QPS} QPs"):
        QP(pd, QPInitAttr(cqs[0], cqs[0]))
    qps[2].close()
    assert QP(pd, QPInitAttr(cqs[0], cqs[0])).qp_num == 2


def test_numbers_are_used_again_as_late_as_possible(context):
    pd = PD(context)
    cq = CQ(context, 4)
    numbers = []
    for _ in range(2 * QPS):
        with QP(pd, QPInitAttr(cq, cq)) as qp:
            numbers.append(qp.qp_num)
    assert numbers == 2 * list(range(QPS))


@pytest.mark.requirement("RDMAP-8.1.2-05", "SEC-6.4.3.2-01")
@pytest.mark.parametrize("entries", [0, -1, (1 << 15) + 1])
def test_a_queue_size_that_is_not_possible_is_named(context, entries):
    with pytest.raises(ValueError, match=re.escape(f"{entries} entries; allowed: 1 to 32768")):
        CQ(context, entries)


@pytest.mark.requirement("DDP-5.2-02")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGE(-1, 1, 1), "SGE.addr is -1; allowed: 0 to 2^64 - 1"),
        (lambda: SGE(0, 1 << 32, 1), "SGE.length is 4294967296; allowed: 0 to 2^32 - 1"),
        (lambda: SGE(0, 1, 1 << 32), "SGE.lkey is 4294967296; allowed: 0 to 2^32 - 1"),
        (lambda: SendWR(rkey=1 << 32), "SendWR.rkey is 4294967296; allowed: 0 to 2^32 - 1"),
        (lambda: SendWR(remote_addr=-5), "SendWR.remote_addr is -5; allowed: 0 to 2^64 - 1"),
    ],
)
def test_values_that_do_not_fit_are_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_closing_goes_on_after_an_error_and_tells_it(device, monkeypatch):
    context = Context(device)
    pd = PD(context)
    MR(pd, bytearray(8))
    region = MR(pd, bytearray(8))

    def fail(address: int) -> None:
        raise TransportError("cannot unmap")

    monkeypatch.setattr(device, "unmap_memory", fail)
    with pytest.raises(TransportError, match="cannot unmap"):
        context.close()
    assert region.rkey not in device.stags
    assert not device.stags
    assert device.closed
    context.close()


def test_everything_of_a_context_ends_with_it(device):
    with Context(device) as context:
        pd = PD(context)
        cq = CQ(context, 8)
        QP(pd, QPInitAttr(cq, cq))
        MR(pd, bytearray(100))
    assert device.closed
    assert not device.stags
    assert not device.rings
    assert not device.mapped
    assert set(device.states.values()) == {0}


def test_a_closed_context_refuses_all_that_is_new(device):
    context = Context(device)
    context.close()
    for make in (PD, CQ, listen, Context.__enter__):
        with pytest.raises(DeviceClosed, match=r"the context of \w+ is closed"):
            make(context)
    assert issubclass(DeviceClosed, StagecoachError)


@pytest.mark.parametrize("make", [Context, PD, CQ, listen])
def test_what_is_no_device_is_refused(make):
    with pytest.raises(TypeError, match="is a NoneType; allowed:"):
        make(None)


def test_events_without_a_place_are_counted_from_the_opening_on(device):
    lost = registers.EVENTS_LOST.address
    device.words[lost] = 65_534
    with Context(device) as context:
        context.process_events(ask=True)
        assert context.events_lost == 0
        device.words[lost] = 3  # mod 2^16
        context.process_events(ask=True)
        context.process_events(ask=True)
        assert (context.events_lost, context.events) == (5, [])
