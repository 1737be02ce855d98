"""Whatever is allocated, the resource manager is asked first; what it refuses does not happen."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    Context,
    QPCap,
    QPInitAttr,
    ResourceError,
    SRQInitAttr,
)
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.mr import FastMR
from stagecoach.host_driver.resources import Resources
from tests.host_driver.fake_device import FakeDevice

ALLOCATIONS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...], set[int]]] = {
    "PD": (lambda v: PD(v.context), ("take_pd",), set()),
    "CQ": (
        lambda v: CQ(v.context, 4),
        ("take_number", "reserve"),
        {CommandOpcode.CQ_ENABLE},
    ),
    "QP": (
        lambda v: QP(v.pd, QPInitAttr(v.cq, v.cq, QPCap(1, 1))),
        ("take_number", "reserve"),
        {CommandOpcode.QP_CREATE},
    ),
    "SRQ": (
        lambda v: SRQ(v.pd, SRQInitAttr(4)),
        ("reserve",),
        {CommandOpcode.SRQ_CREATE},
    ),
    "MR": (
        lambda v: MR(v.pd, bytearray(8)),
        ("take_stag", "reserve"),
        {CommandOpcode.STAG_WRITE},
    ),
    "MR of a given STag": (
        lambda v: MR(v.pd, bytearray(8), stag=0x12345678),
        ("claim_stag", "reserve"),
        {CommandOpcode.STAG_WRITE},
    ),
    "FastMR": (
        lambda v: FastMR(v.pd, bytearray(8)),
        ("take_stag", "reserve"),
        {CommandOpcode.STAG_WRITE},
    ),
}
"""What makes something, which questions it asks, and which commands make it in the device."""

ASKED = {(name, question) for name, (_, asked, _) in ALLOCATIONS.items() for question in asked}


def refuse(*_: object, **__: object) -> Any:
    raise ResourceError("refused")


@pytest.mark.requirement("RDMAP-8.1.2-02", "DDP-8.3.2-02", "SEC-3-02")
@pytest.mark.parametrize(("name", "question"), sorted(ASKED))
def test_what_is_refused_is_not_allocated(
    name: str, question: str, verbs: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, _, _ = ALLOCATIONS[name]
    device, before = verbs.device, snapshot(verbs)
    monkeypatch.setattr(verbs.context.resources, question, refuse)
    with pytest.raises(ResourceError, match="refused"):
        make(verbs)
    assert snapshot(verbs) == before
    monkeypatch.undo()
    commands = len(device.commands)
    make(verbs)
    assert ALLOCATIONS[name][2] <= set(device.commands[commands:])


def snapshot(verbs: SimpleNamespace) -> tuple[object, ...]:
    """What was allocated: of the device, of its view of memory, and of what is counted."""
    context, device = verbs.context, verbs.device
    return (
        list(device.commands),
        set(device.mapped),
        dict(device.stags),
        set(device.rings),
        set(context.qps),
        set(context.cqs),
        set(context.srqs),
        [
            context.resources.used[name]
            for name in ("qps", "cqs", "srqs", "mrs", "cq_entries", "octets")
        ],
    )


@pytest.mark.requirement("RDMAP-8.1.2-02", "DDP-8.3.2-02", "SEC-3-02")
def test_every_command_that_allocates_is_behind_a_question() -> None:
    """Commands that make something of which the device has only so many."""
    allocating = {
        CommandOpcode.QP_CREATE,
        CommandOpcode.CQ_ENABLE,
        CommandOpcode.SRQ_CREATE,
        CommandOpcode.STAG_WRITE,
    }
    assert set().union(*(commands for _, _, commands in ALLOCATIONS.values())) == allocating
    others = {"QP_CONNECT", "QP_STOP", "QP_DESTROY", "STAG_INVALIDATE", "STAG_RESET", "CQ_DISABLE"}
    others |= {"SRQ_LIMIT", "SRQ_DESTROY"}
    commands = {name for name in vars(CommandOpcode) if name.isupper()}
    assert {name for name in commands if getattr(CommandOpcode, name) not in allocating} == others
    questions = {name for name in vars(Resources) if name.startswith(("take", "claim", "reserve"))}
    assert {question for _, question in ASKED} == questions


@pytest.mark.requirement("RDMAP-8.1.2-02", "RDMAP-8.1.2-05")
def test_the_event_queue_is_the_only_ring_that_no_one_asks_for(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    for question in {question for _, question in ASKED}:
        monkeypatch.setattr(Resources, question, refuse)
    with Context(device) as context:
        assert set(device.rings) == {context.attr.max_cq}
        assert device.commands.count(CommandOpcode.CQ_ENABLE) == 1
        assert CommandOpcode.QP_CREATE not in device.commands
        assert CommandOpcode.STAG_WRITE not in device.commands
