"""Quotas of a Context, and room in a CQ that several QPs share."""

import re

import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    Context,
    DeviceError,
    QPCap,
    QPInitAttr,
    Quota,
    QuotaExceeded,
    ResourceError,
)
from stagecoach.host_driver.device import CommandOpcode
from tests.host_driver.fake_device import FakeDevice

FAIR_SHARE = pytest.mark.requirement(
    "RDMAP-8.1.2-02", "RDMAP-8.1.2-06", "DDP-8.3.2-02", "DDP-8.3.2-05", "SEC-3-02", "SEC-7.2-02"
)


class Opened:
    """A context with quotas, and something of each kind to make."""

    def __init__(self, **quotas: int):
        self.device = FakeDevice()
        self.context = Context(self.device, Quota(**quotas))
        self.pd = PD(self.context)
        self.kept: list = []

    def make(self, what: str) -> None:
        match what:
            case "mrs":
                self.kept.append(MR(self.pd, bytearray(8)))
            case "octets":
                self.kept.append(MR(self.pd, bytearray(100)))
            case "cqs":
                self.kept.append(CQ(self.context, 2))
            case "cq_entries":
                self.kept.append(CQ(self.context, 100))
            case "qps":
                cq = self.kept[0] if self.kept else CQ(self.context)
                self.kept = self.kept or [cq]
                self.kept.append(QP(self.pd, QPInitAttr(cq, cq)))


@FAIR_SHARE
@pytest.mark.requirement("RDMAP-8.1.2-05", "SEC-6.4.1-01", "SEC-6.4.3.2-01")
@pytest.mark.parametrize(
    ("name", "limit", "demand"),
    [("qps", 2, 1), ("cqs", 3, 1), ("mrs", 2, 1), ("cq_entries", 300, 128), ("octets", 250, 100)],
)
def test_a_quota_is_kept_and_what_is_closed_counts_no_more(name, limit, demand):
    opened = Opened(**{name: limit})
    used = opened.context.resources.used
    fitting = limit // demand
    for _ in range(fitting):
        opened.make(name)
    mapped = set(opened.device.mapped)
    for _ in range(2):
        with pytest.raises(QuotaExceeded) as caught:
            opened.make(name)
        assert (caught.value.quota, caught.value.limit) == (name, limit)
        assert (caught.value.used, caught.value.demand) == (fitting * demand, demand)
        assert str(caught.value) == (
            f"quota {name} of the Context is {limit}: {fitting * demand} in use, {demand} more "
            f"asked for; allowed: up to {limit - fitting * demand} more"
        )
        assert isinstance(caught.value, ResourceError)
    assert set(opened.device.mapped) == mapped
    opened.kept.pop().close()
    assert used[name] == (fitting - 1) * demand
    opened.make(name)
    opened.context.close()
    assert used[name] == 0


@FAIR_SHARE
def test_a_context_at_its_quota_leaves_another_one_its_share():
    first, second = Opened(mrs=1, qps=1), Opened(mrs=1, qps=1)
    for opened in (first, second):
        opened.make("qps")
        with pytest.raises(QuotaExceeded):
            opened.make("qps")
    second.kept.append(MR(second.pd, bytearray(8)))


@pytest.mark.parametrize(
    ("what", "command", "names"),
    [
        ("qps", CommandOpcode.QP_CREATE, ["qps"]),
        ("cqs", CommandOpcode.CQ_ENABLE, ["cqs", "cq_entries"]),
        ("mrs", CommandOpcode.STAG_WRITE, ["mrs", "octets"]),
    ],
)
def test_what_the_device_refuses_does_not_count(what, command, names):
    opened = Opened()
    if what == "qps":
        opened.kept.append(CQ(opened.context))
    before = {name: opened.context.resources.used[name] for name in names}
    opened.device.refuse.add(command)
    with pytest.raises(DeviceError):
        opened.make(what)
    assert {name: opened.context.resources.used[name] for name in names} == before


def test_without_quotas_the_device_is_the_limit():
    opened = Opened()
    opened.kept.append(MR(opened.pd, bytearray(1 << 20)))
    assert opened.context.resources.used["octets"] == 1 << 20


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1, ValueError, "quota mrs is -1; allowed: 0 or more, or None"),
        (1.5, TypeError, "quota mrs is 1.5; allowed: an integer or None"),
        ("many", TypeError, "quota mrs is 'many'; allowed: an integer or None"),
    ],
)
def test_a_quota_that_is_none_is_named(value, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Quota(mrs=value)
    with pytest.raises(TypeError, match="quota is a int; allowed: Quota"):
        Context(FakeDevice(), 5)  # type: ignore[arg-type]


# Room in a CQ


@pytest.mark.requirement("SEC-6.4.3.2-02")
@pytest.mark.requirement("RDMAP-8.1.2-03", "DDP-8.3.2-03", "SEC-3-03")
def test_qps_that_share_a_cq_cannot_make_it_overflow(context):
    pd, cq, other = PD(context), CQ(context, 64), CQ(context, 64)
    first = QP(pd, QPInitAttr(cq, cq, QPCap(20, 20)))
    second = QP(pd, QPInitAttr(cq, other, QPCap(20, 60)))
    message = (
        "CQ 0 holds 64 completions, the QPs that share it may have 60 work requests outstanding, "
        "one more QP 5; allowed: up to 4 more, or a CQ with overcommit"
    )
    for cap in (QPCap(4, 1), QPCap(1, 4)):
        with pytest.raises(ResourceError, match=re.escape(message)):
            QP(pd, QPInitAttr(cq, cq, cap))
    # One that is refused because of its second CQ takes nothing of its first.
    with pytest.raises(ResourceError, match="CQ 1 holds 64"):
        QP(pd, QPInitAttr(cq, other, QPCap(4, 5)))
    with QP(pd, QPInitAttr(cq, other, QPCap(4, 4))):
        first.close()
        with QP(pd, QPInitAttr(cq, cq, QPCap(20, 20))):
            second.close()
            with pytest.raises(ResourceError, match="up to 20 more"):
                QP(pd, QPInitAttr(cq, cq, QPCap(20, 1)))


def test_a_cq_of_one_qp_is_that_qps_own_matter(context):
    pd, cq = PD(context), CQ(context, 4)
    with QP(pd, QPInitAttr(cq, cq)) as alone:
        with pytest.raises(ResourceError, match="share it may have 128 work requests"):
            QP(pd, QPInitAttr(cq, cq, QPCap(1, 1)))
        assert context.qps == {alone.qp_num: alone}
    QP(pd, QPInitAttr(cq, cq))


def test_a_cq_with_overcommit_takes_any_qp(context):
    pd, cq = PD(context), CQ(context, 4, overcommit=True)
    qps = [QP(pd, QPInitAttr(cq, cq)) for _ in range(3)]
    assert len(context.qps) == len(qps)


def test_a_default_cq_has_room_for_all_qps_of_default_size(context):
    from stagecoach.gateware.config import RnicConfig

    cap = QPCap()
    assert CQ(context).cqe >= RnicConfig().qps * (cap.max_send_wr + cap.max_recv_wr)
