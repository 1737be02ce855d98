"""Every object says in its repr which one it is."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest

import stagecoach
from stagecoach import pyverbs
from stagecoach.host_driver import (
    CQ,
    MR,
    SGE,
    AccessFlags,
    Cause,
    CompChannel,
    FastMR,
    RecvWR,
    SendFlags,
    SendWR,
    WROpcode,
    listen,
)
from stagecoach.pyverbs import base
from tests.host_driver.fake_device import NoStream
from tests.host_driver.startup_rig import PATIENCE, raw_initiator
from tests.host_driver.test_async_accept import OCTETS

HARDWARE = {"Rnic", "RnicNic", "RnicPair"}
"""Descriptions of circuits for Amaranth, not objects of a program."""


def public_classes() -> set[type]:
    """What users of `stagecoach` and of `stagecoach.pyverbs` can have objects of."""
    found = [getattr(stagecoach, name) for name in stagecoach.__all__ if name not in HARDWARE]
    for module in iter_modules(pyverbs.__path__):
        if not module.name.startswith("_"):
            found += vars(import_module(f"stagecoach.pyverbs.{module.name}")).values()
    return {each for each in found if inspect.isclass(each) and has_objects(each)}


def has_objects(found: type) -> bool:
    """Whether it is a class of the project: no base, no protocol, nothing that is refused."""
    ours = found.__module__.startswith("stagecoach.")
    abstract = found in (base.PyverbsObject, base.PyverbsCM) or getattr(found, "_is_protocol", 0)
    return ours and not abstract and not (found.__doc__ or "").startswith("Not supported: ")


@pytest.mark.parametrize(
    "found", sorted(public_classes(), key=str), ids=lambda found: found.__name__
)
def test_a_public_class_has_a_repr_of_its_own(found):
    assert found.__repr__ is not object.__repr__


def test_objects_of_a_device_tell_their_numbers(verbs):
    qp = verbs.qp
    assert repr(verbs.context) == "<Context of FakeDevice: 1 QPs, 1 CQs, 0 regions>"
    assert repr(verbs.pd) == "<PD 0>" and repr(verbs.cq) == "<CQ 0: 8 completions>"
    assert repr(qp) == "<QP 0: INIT, PD 0, CQs 0 and 0>"
    assert repr(verbs.context.qps) == f"{{0: {qp!r}}}"
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    verbs.device.event(0, Cause.LLP_CLOSED)
    assert repr(qp).startswith("<QP 0: RTS"), "it has looked for events"
    verbs.context.process_events()
    assert repr(qp) == "<QP 0: ERR, PD 0, CQs 0 and 0, LLP_CLOSED>"
    channel = CompChannel(verbs.context)
    assert repr(channel) == "<CompChannel of CQs: none>"
    cq = CQ(verbs.context, 8, channel=channel)
    assert repr(channel) == "<CompChannel of CQs: 1>"
    for each in (qp, channel, cq, verbs.cq, verbs.pd, verbs.context):
        each.close()
    assert repr(qp) == "<QP 0: closed, PD 0, CQs 0 and 0, LLP_CLOSED>"
    assert repr(verbs.context) == "<Context of FakeDevice: closed>"
    closed = (repr(channel), repr(verbs.cq), repr(verbs.pd))
    assert closed == (
        "<CompChannel of CQs: none, closed>",
        "<CQ 0: 8 completions, closed>",
        "<PD 0, closed>",
    )


def test_regions_tell_where_they_are_and_what_for(verbs):
    rights = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ
    mr = MR(verbs.pd, bytearray(5), rights, addr=0x1234, stag=0xAB)
    text = "MR STag 0x000000ab of PD 0: 5 bytes at 0x1234, LOCAL_WRITE | REMOTE_READ"
    assert repr(mr) == f"<{text}>"
    mr.close()
    assert repr(mr) == f"<{text}, closed>"
    fast = FastMR(verbs.pd, 8, addr=0, stag=0xCD00)
    assert repr(fast) == "<FastMR STag 0x0000cd00 of PD 0: 8 bytes at 0x0, local reading, invalid>"


def test_requests_tell_addresses_and_keys_as_regions_do():
    element = SGE(0x7F00_0000_1000, 64, 0xAB)
    words = "SGE(addr=0x7f0000001000, length=64, lkey=0x000000ab)"
    assert repr(element) == words
    assert repr(SGE(np.int64(16), 8, np.int64(1))) == "SGE(addr=0x10, length=8, lkey=0x00000001)"
    assert repr(RecvWR(3, [element])) == f"RecvWR(wr_id=3, sg=[{words}])"
    assert repr(SendWR()) == "SendWR(wr_id=0, opcode=<WROpcode.SEND: 3>)"
    request = SendWR(
        2,
        WROpcode.ATOMIC_CMP_AND_SWP,
        [element],
        SendFlags(0),
        remote_addr=0x1000,
        rkey=0x12AB,
        swap=5,
        swap_mask=0xFF,
    )
    assert repr(request) == (
        f"SendWR(wr_id=2, opcode={WROpcode.ATOMIC_CMP_AND_SWP!r}, sg=[{words}], "
        f"send_flags={SendFlags(0)!r}, remote_addr=0x1000, rkey=0x000012ab, swap=5, "
        "swap_mask=0x00000000000000ff)"
    )


def test_a_listener_and_its_requests_tell_ports(passive):
    listener = listen(passive.context)
    assert repr(listener) == f"<ConnectionListener at port {listener.port}>"
    with raw_initiator(listener.port, OCTETS) as peer:
        request = listener.get_request(PATIENCE)
        address = "{}:{}".format(*peer.getsockname())
        assert repr(request) == f"<ConnectionRequest from {address}, IRD 8, ORD 8>"
        accepted = request.accept(None)
        assert repr(request) == "<ConnectionRequest answered or closed, IRD 8, ORD 8>"
        assert repr(accepted) == f"<AcceptedRequest from {address}, IRD 8, ORD 8>"
        accepted.close()
    listener.close()
    assert repr(listener).endswith(", closed>")
