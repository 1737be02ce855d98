"""Objects of pyverbs on fake devices."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from stagecoach import host_driver as driver
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.cq import CQ
from stagecoach.pyverbs.device import Context
from stagecoach.pyverbs.pd import PD
from stagecoach.pyverbs.qp import QP, QPCap, QPInitAttr
from tests.host_driver.fake_device import FakeDevice, NoStream


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def context(device: FakeDevice) -> Iterator[Context]:
    with driver.Context(device) as opened:
        yield Context(verbs=opened)


@pytest.fixture
def objects(context: Context, device: FakeDevice) -> SimpleNamespace:
    """`pd`, `cq`, and `qp` (4 sends, 4 receives), which is connected to nobody."""
    pd = PD(context)
    cq = CQ(context, 8, None, None, 0)
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_inline_data=16)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))
    qp.verbs.connect(NoStream(), initiator=True, crc=True, ord=3, ird=2, emss=1460)
    return SimpleNamespace(context=context, device=device, pd=pd, cq=cq, qp=qp)
