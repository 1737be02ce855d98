"""A fake device, opened, with a PD, a CQ and a QP."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from host_driver import CQ, PD, QP, Context, QPCap, QPInitAttr
from tests.host_driver.fake_device import FakeDevice


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
    cq = CQ(context, 8)
    qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_send_wr=4, max_recv_wr=4)))
    return SimpleNamespace(context=context, device=device, pd=pd, cq=cq, qp=qp)
