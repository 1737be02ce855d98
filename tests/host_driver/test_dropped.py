"""What a program drops open: a warning tells of it, and all that it held comes back at once."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    Cause,
    CompChannel,
    Context,
    DeviceError,
    FastMR,
    QPCap,
    QPInitAttr,
    QPState,
    SRQInitAttr,
    listen,
)
from stagecoach.host_driver.device import CommandOpcode
from tests.host_driver.fake_device import CQS, QPS, STAGS_LOG2, FakeDevice, NoStream
from tests.host_driver.startup_rig import PATIENCE, raw_initiator
from tests.host_driver.test_accept import REQUEST
from tests.host_driver.waiting_device import WaitingDevice

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Nothing here waits for the garbage collector, unless a test calls it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def rig() -> Iterator[SimpleNamespace]:
    """An open device with a PD and a CQ, and a listener that has two peers."""
    device = WaitingDevice()
    with Context(device) as context:
        pd, cq = PD(context), CQ(context, 8, overcommit=True)
        listener = listen(context)
        with raw_initiator(listener.port, REQUEST.encode()) as peer:
            yield SimpleNamespace(
                device=device, context=context, pd=pd, cq=cq, listener=listener, peer=peer
            )


def test_a_context_that_another_one_has_replaced_leaves_the_device_alone():
    device = FakeDevice()
    context = Context(device)
    cq = CQ(context)
    context = Context(device)
    mine = CQ(context)
    assert mine.number == cq.number
    del cq
    assert not device.closed
    mine.poll()
    context.close()
    assert device.closed


def connected(rig: SimpleNamespace) -> QP:
    qp = QP(rig.pd, QPInitAttr(rig.cq, rig.cq, QPCap(max_inline_data=8)))
    qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return qp


def stopped(rig: SimpleNamespace) -> QP:
    qp = connected(rig)
    rig.device.event(qp.qp_num, Cause.LLP_CLOSED)
    assert qp.state == QPState.ERR
    rig.context.events.clear()
    return qp


def told_by_descriptor(rig: SimpleNamespace) -> CompChannel:
    channel = CompChannel(rig.context)
    channel.fileno()
    return channel


def notified(rig: SimpleNamespace) -> CQ:
    """Its channel has an event of it."""
    cq = CQ(rig.context, 8, channel=CompChannel(rig.context))
    cq.req_notify()
    cq._tell(solicited=True)
    return cq


KINDS = {
    "PD": lambda rig: PD(rig.context),
    "CQ": lambda rig: CQ(rig.context, 8),
    "CQ with a channel": lambda rig: CQ(rig.context, 8, channel=CompChannel(rig.context)),
    "CQ with an event": notified,
    "MR": lambda rig: MR(rig.pd, 64),
    "MR of a buffer": lambda rig: MR(rig.pd, bytearray(64)),
    "FastMR": lambda rig: FastMR(rig.pd, 64),
    "SRQ": lambda rig: SRQ(rig.pd, SRQInitAttr(4)),
    "QP": lambda rig: QP(rig.pd, QPInitAttr(rig.cq, rig.cq)),
    "QP with inline data": lambda rig: QP(
        rig.pd, QPInitAttr(rig.cq, rig.cq, QPCap(max_inline_data=8))
    ),
    "QP with an SRQ": lambda rig: QP(
        rig.pd, QPInitAttr(rig.cq, rig.cq, srq=SRQ(rig.pd, SRQInitAttr(4)))
    ),
    "MR of a QP": lambda rig: MR(rig.pd, 64, qp=QP(rig.pd, QPInitAttr(rig.cq, rig.cq))),
    "connected QP": connected,
    "stopped QP": stopped,
    "CompChannel": lambda rig: CompChannel(rig.context),
    "CompChannel with a descriptor": told_by_descriptor,
    "ConnectionListener": lambda rig: listen(rig.context),
    "ConnectionRequest": lambda rig: rig.listener.get_request(PATIENCE),
    "AcceptedRequest": lambda rig: rig.listener.get_request(PATIENCE).accept(None),
}


def held(rig: SimpleNamespace) -> object:
    """All that may be in use: of the device, of the driver, of the process."""
    context, device = rig.context, rig.device
    return (
        sorted(device.stags),
        dict(device.states),
        sorted(device.rings),
        set(device.shared),
        sorted(device.mapped),
        sorted(device.attached),
        sorted(context.qps),
        sorted(context._qp_numbers),
        sorted(context._srq_numbers),
        sorted(context._cq_numbers),
        len(context.channels),
        set(context.resources._pds),
        sorted(context.resources._stags),
        {name: context.resources.used[name] for name in ("qps", "cqs", "srqs", "mrs", "octets")},
        list(rig.pd.children),
        list(context._open),
        context.watcher._users,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_an_object_held_comes_back_when_it_is_dropped(rig, kind):
    before, descriptors = held(rig), len(os.listdir("/proc/self/fd"))
    made = KINDS[kind](rig)
    assert held(rig) != before
    words, gone = repr(made), weakref.ref(made)
    with pytest.warns(ResourceWarning) as caught:
        del made
    assert f"dropped open: {words}" in [str(each.message) for each in caught]
    assert all(each.filename == __file__ for each in caught if words in str(each.message))
    caught.clear()  # a warning holds what it is of
    assert gone() is None
    assert held(rig) == before
    # The peer's connection is one more that was taken and is closed.
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_closed_is_not_told(rig, kind):
    made = KINDS[kind](rig)
    made.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="dropped open: <(CompChannel|QP|SRQ)")
        words = repr(made)
        del made
    assert words


def drop(_: object) -> None:
    """What is made for the call alone is dropped when it returns."""


@pytest.mark.filterwarnings("ignore:dropped open")
def test_a_program_that_drops_all_does_not_run_out(rig):
    for _ in range(3 << STAGS_LOG2):
        drop(MR(rig.pd, 4096))
    for _ in range(3 * QPS):
        drop(QP(rig.pd, QPInitAttr(rig.cq, rig.cq)))
        drop(SRQ(rig.pd, SRQInitAttr(4)))
    for _ in range(3 * CQS):
        drop(CQ(rig.context, 8))
    assert len(rig.device.mapped) == 2  # the rings of the CQ and of the events


@pytest.mark.filterwarnings("ignore:dropped open")
def test_a_region_gives_its_memory_back(rig):
    buffer = numpy.zeros(1 << 16, dtype=numpy.uint8)
    gone = weakref.ref(buffer)
    region = MR(rig.pd, buffer)
    del buffer
    assert gone() is not None
    del region
    assert gone() is None


def test_what_another_object_uses_stays(rig):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qp = QP(PD(rig.context), QPInitAttr(CQ(rig.context, 8), CQ(rig.context, 8)))
    assert len(rig.context.cqs) == 3
    told: list[str] = []
    # A record of a warning would keep what it is of.
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: told.append(str(message).split()[2])
        del qp
    assert sorted(told) == ["<CQ", "<CQ", "<PD", "<QP"] and told[0] == "<QP"
    assert len(rig.context.cqs) == 1


# Where it is not safe to free at once


@pytest.mark.filterwarnings("ignore:dropped open")
def test_what_is_dropped_in_the_middle_of_a_call_is_freed_as_it_ends(rig):
    region = MR(rig.pd, 64)
    with rig.context.lock:
        rig.device.commands.clear()
        with rig.context.lock:
            del region
        assert rig.device.commands == []
    assert rig.device.commands == [CommandOpcode.STAG_INVALIDATE]


@pytest.mark.filterwarnings("ignore:dropped open")
def test_what_is_dropped_while_another_thread_has_the_device_is_freed_by_that(rig):
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        with rig.context.lock:
            taken.set()
            assert release.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    region = MR(rig.pd, 64)
    thread.start()
    assert taken.wait(PATIENCE)
    rig.device.commands.clear()
    del region
    assert rig.device.commands == []
    release.set()
    thread.join()
    assert rig.device.commands == [CommandOpcode.STAG_INVALIDATE]


@pytest.mark.filterwarnings("ignore:dropped open")
def test_what_is_in_a_circle_is_freed_with_the_next_call_in_whatever_order(rig):
    for _ in range(3):
        before = held(rig)
        cq, pd = CQ(rig.context, 8), PD(rig.context)
        srq = SRQ(pd, SRQInitAttr(4))
        qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_inline_data=8), srq=srq))
        circle = [cq, qp, srq, MR(pd, 64), MR(pd, 64, qp=qp), pd]
        circle.append(circle)
        rig.device.commands.clear()
        del cq, pd, srq, qp, circle
        gc.collect()
        assert rig.device.commands == []
        rig.context.process_events()
        assert held(rig) == before


@pytest.mark.filterwarnings("ignore:dropped open")
def test_a_device_that_takes_calls_from_some_threads_frees_with_the_next_call():
    device = FakeDevice()
    device.calls_from_any_thread = False
    with Context(device) as context:
        drop(MR(PD(context), 64))
        assert device.stags
        context.process_events()
        assert not device.stags and not context.resources._pds


@pytest.mark.filterwarnings("ignore:dropped open")
def test_what_cannot_be_freed_is_logged_and_hinders_nobody(rig, caplog):
    region, other = MR(rig.pd, 64), MR(rig.pd, 64)
    rig.device.refuse.add(CommandOpcode.STAG_INVALIDATE)
    del region
    assert "which was dropped open, cannot be closed: the device refused" in caplog.text
    rig.device.refuse.clear()
    other.close()
    with pytest.raises(DeviceError):
        rig.device.refuse.add(CommandOpcode.STAG_INVALIDATE)
        MR(rig.pd, 64).close()


# A context


def everything(context: Context) -> list[object]:
    context.fileno()
    channel = CompChannel(context)
    channel.fileno()
    pd, cq = PD(context), CQ(context, 8, channel=channel)
    qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_inline_data=8)))
    return [context, channel, pd, cq, qp, MR(pd, 64), MR(pd, 64, qp=qp), listen(context)]


def wait_for(done) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore:dropped open")
@pytest.mark.parametrize("first", [0, -1])
def test_a_context_that_is_dropped_with_all_of_it_is_closed(first):
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    device = WaitingDevice()
    made = everything(Context(device))
    gone = weakref.ref(made[0])
    while made:
        made.pop(first)
    # The thread that waits for its interrupts may have it for a moment.
    wait_for(lambda: gone() is None and device.closed)
    wait_for(lambda: threading.active_count() == threads)
    assert not (device.stags or device.rings or device.mapped)
    assert set(device.states.values()) == {0}
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.filterwarnings("ignore:dropped open")
def test_a_context_in_a_circle_is_closed_when_the_collector_finds_it():
    device = WaitingDevice()
    made = everything(Context(device))[:-1]  # the collector itself closes a socket
    made.append(made)
    del made
    assert not device.closed
    wait_for(lambda: gc.collect() >= 0 and device.closed)
    assert not device.rings


def test_a_context_says_what_was_open(device):
    with pytest.warns(ResourceWarning, match="dropped open: <Context of FakeDevice: 0 QPs, 0 CQs"):
        Context(device)
    assert device.closed


def test_a_context_that_was_closed_or_not_opened_or_is_of_another_process_is_not_told(
    device, monkeypatch
):
    refused = FakeDevice()
    refused.refuse.add(CommandOpcode.CQ_ENABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Context(FakeDevice()).close()
        for transport in (refused, None):
            with pytest.raises((DeviceError, TypeError)):
                Context(transport)
        context = Context(device)
        region = MR(PD(context), 64)
        commands = list(device.commands)
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            del region, context
        assert device.commands == commands and not device.closed


# A whole process

PROGRAM = """
import sys
import time
from stagecoach.host_driver import *
from tests.host_driver.fake_device import FakeDevice, NoStream

context = Context(FakeDevice())
pd, channel = PD(context), CompChannel(context)
cq = CQ(context, 8, channel=channel)
qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_inline_data=8)))
qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
region, listener = MR(pd, 64), listen(context)
context.fileno()
if "drop" in sys.argv:
    del region, qp, cq, channel, listener, pd, context
    time.sleep(0.5)  # the thread that waits for interrupts has the context for a moment
    print("goes on")
"""


@pytest.mark.parametrize("options", [[], ["-W", "error"], ["-X", "dev"]])
@pytest.mark.parametrize("arguments", [[], ["drop"]])
def test_a_process_ends_well_whatever_is_open(options, arguments):
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM, *arguments],
        cwd=root,
        env=os.environ | {"PYTHONPATH": f"{root}/src:{root}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE * 3,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ("goes on\n" if arguments else "")
    if not options:
        assert ended.stderr == ""  # nobody asked for warnings
    elif not arguments:
        # Python tells of its socket.
        assert "dropped open" not in ended.stderr and "Traceback" not in ended.stderr
    else:
        kinds = ("MR", "QP", "CQ", "CompChannel", "ConnectionListener", "PD", "Context")
        for kind in kinds:
            assert f"ResourceWarning: dropped open: <{kind} " in ended.stderr
