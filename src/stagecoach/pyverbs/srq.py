"""Shared Receive Queues."""

from dataclasses import dataclass, replace
from typing import NoReturn
from weakref import WeakSet

from stagecoach import host_driver as driver
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.base import (
    PyverbsCM,
    PyverbsObject,
    absent,
    shown,
    translated,
    unsupported,
)
from stagecoach.pyverbs.pd import PD
from stagecoach.pyverbs.wr import RecvWR, chain

NO_TAGS = "the device does not match tags"

OpsWr = absent("OpsWr", NO_TAGS)
SrqInitAttrEx = absent("SrqInitAttrEx", "an SRQ has one form, without XRC and tags; use a PD")


@dataclass
class SrqAttr(PyverbsObject):
    """Sizes of an SRQ, and its limit: `SRQ.query` gives one, `SRQ.modify` takes one."""

    max_wr: int = 100
    max_sge: int = 1
    srq_limit: int = 0


class SrqInitAttr(PyverbsObject):
    """What an SRQ is made of: the sizes of `attr`. Its limit is armed by `SRQ.modify` alone."""

    def __init__(self, attr: SrqAttr | None = None):
        self._attr = SrqAttr(0, 0, 0) if attr is None else replace(attr)

    def __repr__(self) -> str:
        return shown(self, "max_wr", "max_sge", "srq_limit")

    @property
    def max_wr(self) -> int:
        """Work requests that may be outstanding."""
        return self._attr.max_wr

    @property
    def max_sge(self) -> int:
        """Elements of a work request."""
        return self._attr.max_sge

    @property
    def srq_limit(self) -> int:
        """Nothing is made of it."""
        return self._attr.srq_limit


class SRQ(PyverbsCM):
    """A Shared Receive Queue, from which QPs take that are made with `QPInitAttr(srq=...)`.

    Parameters
    ----------
    creator: its `PD`, also that of the QPs. attr: sizes, an `SrqInitAttr`.
    """

    def __init__(self, creator: PD, attr: SrqInitAttr):
        if not isinstance(creator, PD):
            raise unsupported(f"SRQ of a {type(creator).__name__}", "an SRQ is made of a PD")
        with translated("SRQ"):
            self.verbs = driver.SRQ(creator.verbs, driver.SRQInitAttr(attr.max_wr, attr.max_sge))
        self.qps: WeakSet[driver.QP] = WeakSet()

    def __repr__(self) -> str:
        return repr(self.verbs)

    def get_srq_num(self) -> int:
        """Its number on the device, which asynchronous events have: `event.verbs.srq_num`."""
        return self.verbs.number

    def modify(self, attr: SrqAttr, comp_mask: int) -> None:
        """With IBV_SRQ_LIMIT: has one IBV_EVENT_SRQ_LIMIT_REACHED come below `attr.srq_limit`.

        Raises `PyverbsRDMAError` with another mask: an SRQ keeps its size.
        """
        if left := comp_mask & ~e.IBV_SRQ_LIMIT:
            raise unsupported(f"modify with mask {left:#x}", "an SRQ keeps its size")
        if comp_mask:
            with translated("modify"):
                self.verbs.modify(srq_limit=attr.srq_limit)

    def query(self) -> SrqAttr:
        """Its sizes, and the limit that is armed, 0 if none is."""
        with translated("query"):
            found = self.verbs.query()
        return SrqAttr(found.max_wr, found.max_sge, found.srq_limit)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Posts a request and those after it, all or none of them: `bad_wr` is left as it is."""
        with translated("post_recv"):
            self.verbs.post_recv(*(each.verbs for each in chain(wr)))

    def post_srq_ops(self, wr: object, bad_wr: object = None) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("post_srq_ops", NO_TAGS)

    def close(self) -> None:
        """Closes the QPs that take from it, and frees it."""
        with translated("close"):
            for qp in list(self.qps):
                qp.close()
            self.verbs.close()
