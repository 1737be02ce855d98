"""A fake device, opened, with a PD, a CQ and a QP; and two ends of a connection."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from stagecoach.host_driver import CQ, PD, QP, Context, QPCap, QPInitAttr
from tests.host_driver.fake_device import FakeDevice, NoStream
from tests.host_driver.startup_rig import Side


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def context(device: FakeDevice) -> Iterator[Context]:
    with Context(device) as opened:
        device.doorbells.clear()  # that of the event ring
        yield opened


@pytest.fixture
def verbs(context: Context, device: FakeDevice) -> SimpleNamespace:
    """`pd`, `cq`, `qp` (4 sends, 4 receives) and their `context` and `device`."""
    pd = PD(context)
    cq = CQ(context, 8, overcommit=True)
    qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_send_wr=4, max_recv_wr=4), rfc7306=True))
    return SimpleNamespace(context=context, device=device, pd=pd, cq=cq, qp=qp)


@pytest.fixture
def connected(verbs: SimpleNamespace) -> SimpleNamespace:
    """`verbs` whose QP is connected to nobody."""
    verbs.qp.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return verbs


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    """Two open devices, the first to be Initiator."""
    active, passive = Side(), Side()
    yield active, passive
    active.context.close()
    passive.context.close()


@pytest.fixture
def active(sides: tuple[Side, Side]) -> Side:
    """An end that is Initiator."""
    return sides[0]


@pytest.fixture
def passive(sides: tuple[Side, Side]) -> Side:
    """An end that is Responder."""
    return sides[1]
