"""Context.reset, and opening a device that somebody left in use."""

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    Cause,
    Context,
    DeviceClosed,
    QPInitAttr,
    QPState,
    listen,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.device_reset import reset_device
from stagecoach.host_driver.transport.base import TransportError
from tests.host_driver.fake_device import CQS, INIT, QPS, RESET


def test_a_reset_leaves_a_device_as_newly_opened(verbs):
    context, device = verbs.context, verbs.device
    region = MR(verbs.pd, bytearray(100))
    listener = listen(context)
    device.event(0, Cause.CRC_ERROR)
    context.process_events()
    assert context.events and verbs.qp.state == QPState.ERR
    context.reset()
    assert (context.qps, context.cqs, context.mrs, context.events) == ({}, {}, {}, [])
    assert not device.stags
    assert set(device.rings) == {CQS}
    assert set(device.states.values()) == {RESET}
    assert list(device.mapped) == [context._event_queue._ring.address]
    assert [context.resources.used[name] for name in ("qps", "cqs", "mrs")] == [0, 0, 0]
    for closed in (region, verbs.qp, verbs.cq, verbs.pd, listener):
        closed.close()
    # All of it can be used again; an event is seen from the first entry of the ring on.
    pd, cq = PD(context), CQ(context)
    qps = [QP(pd, QPInitAttr(cq, cq)) for _ in range(QPS)]
    device.event(qps[0].qp_num, Cause.LLP_CLOSED)
    context.process_events()
    assert [event.cause for event in context.events] == [Cause.LLP_CLOSED]
    assert qps[0].cause == Cause.LLP_CLOSED


def test_a_reset_goes_on_after_an_error_and_tells_it(verbs, monkeypatch):
    MR(verbs.pd, bytearray(8))
    unmap, failed = verbs.device.unmap_memory, []

    def fail_once(address: int) -> None:
        if not failed:
            failed.append(address)
            raise TransportError("cannot unmap")
        unmap(address)

    monkeypatch.setattr(verbs.device, "unmap_memory", fail_once)
    with pytest.raises(TransportError, match="cannot unmap"):
        verbs.context.reset()
    assert not verbs.device.stags and set(verbs.device.rings) == {CQS}
    QP(PD(verbs.context), QPInitAttr(cq := CQ(verbs.context), cq))


def test_a_closed_context_is_not_reset(context):
    context.close()
    with pytest.raises(DeviceClosed, match=r"the context of \w+ is closed"):
        context.reset()


def test_what_another_process_left_on_the_device_is_cleared_at_opening(device):
    before = Context(device)
    device.states[1] = INIT
    device.stags[0x1234] = 100
    device.rings[0] = device.rings[CQS]
    device.commands.clear()
    with Context(device):
        assert set(device.states.values()) == {RESET}
        assert not device.stags
        assert set(device.rings) == {CQS}
    assert not before.qps
    destroyed = device.commands.index(CommandOpcode.QP_DESTROY)
    # The rings go first: what is stopped writes to them.
    assert device.commands[:destroyed] == [CommandOpcode.CQ_DISABLE] * (CQS + 1)


def test_only_qps_that_live_are_destroyed(context, device):
    device.commands.clear()
    reset_device(context)
    assert CommandOpcode.QP_DESTROY not in device.commands
