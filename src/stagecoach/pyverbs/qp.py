"""Queue Pairs."""

from dataclasses import dataclass, field, replace
from typing import NoReturn

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
from stagecoach.pyverbs.cq import CQ
from stagecoach.pyverbs.pd import PD
from stagecoach.pyverbs.pyverbs_error import PyverbsUserError
from stagecoach.pyverbs.srq import SRQ
from stagecoach.pyverbs.wr import CONNECTED_ONLY, RecvWR, SendWR, chain

_EXTENDED = "work requests are posted as SendWR"
CONNECTION_MANAGER = "the connection manager connects a QP: use CMID"
NO_ECE = "a connection is agreed on by MPA, not by enhanced connection establishment"

DataBuffer = absent("DataBuffer", _EXTENDED)
ECE = absent("ECE", NO_ECE)
QPEx = absent("QPEx", _EXTENDED)
QPInitAttrEx = absent("QPInitAttrEx", _EXTENDED)

_STATES = {
    driver.QPState.RESET: e.IBV_QPS_RESET,
    driver.QPState.INIT: e.IBV_QPS_INIT,
    driver.QPState.RTS: e.IBV_QPS_RTS,
    driver.QPState.ERR: e.IBV_QPS_ERR,
}


@dataclass
class QPCap(PyverbsObject):
    """Sizes of the queues of a QP. The QP has at least one work request and element of each."""

    max_send_wr: int = 1
    max_recv_wr: int = 10
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0

    @property
    def verbs(self) -> driver.QPCap:
        """The sizes as `stagecoach` has them."""
        return driver.QPCap(
            max_send_wr=max(1, self.max_send_wr),
            max_recv_wr=max(1, self.max_recv_wr),
            max_send_sge=max(1, self.max_send_sge),
            max_recv_sge=max(1, self.max_recv_sge),
            max_inline_data=self.max_inline_data,
        )


def _of_cap(name: str) -> property:
    """An attribute of `cap` that is one of its owner, too."""
    return property(
        lambda owner: getattr(owner.cap, name),
        lambda owner, value: setattr(owner.cap, name, value),
        doc="As that of `cap`.",
    )


class QPInitAttr(PyverbsObject):
    """What a QP is made of. Its `cap` is a copy; without one each queue has one work request.

    With an SRQ the QP has no receive queue, and nothing is made of the sizes of one.
    """

    def __init__(
        self,
        qp_type: int = e.IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | None = None,
        rcq: CQ | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 1,
    ):
        self.qp_type, self.sq_sig_all, self.srq = qp_type, sq_sig_all, srq
        self.send_cq, self.recv_cq = scq, rcq
        self.cap = QPCap(max_recv_wr=1) if cap is None else replace(cap)

    def __repr__(self) -> str:
        return shown(self, "qp_type", "send_cq", "recv_cq", "srq", "cap", "sq_sig_all")

    max_send_wr = _of_cap("max_send_wr")
    max_recv_wr = _of_cap("max_recv_wr")
    max_send_sge = _of_cap("max_send_sge")
    max_recv_sge = _of_cap("max_recv_sge")
    max_inline_data = _of_cap("max_inline_data")

    def verbs(self, pd: PD) -> driver.QPInitAttr:
        """The attributes as `stagecoach` has them, with what the device of `pd` has of RFC 7306.

        Raises `PyverbsRDMAError` for what the device lacks, `PyverbsUserError` without CQs.
        """
        if self.qp_type != e.IBV_QPT_RC:
            raise unsupported(f"qp_type {self.qp_type}", f"{CONNECTED_ONLY}; allowed: IBV_QPT_RC")
        if self.send_cq is None or self.recv_cq is None:
            raise PyverbsUserError("QPInitAttr without CQs; allowed: scq and rcq")
        attr = pd.context.verbs.attr
        return driver.QPInitAttr(
            self.send_cq.verbs,
            self.recv_cq.verbs,
            self.cap.verbs,
            rfc7306=bool(attr.atomics) or attr.imm_data,
            sq_sig_all=bool(self.sq_sig_all),
            srq=None if self.srq is None else self.srq.verbs,
        )


@dataclass
class QPAttr(PyverbsObject):
    """What a QP is, or what `QP.modify` is asked to make of it.

    `QP.query` gives `qp_state`, `cur_qp_state`, `cap`, `max_rd_atomic` (ORD) and
    `max_dest_rd_atomic` (IRD). The others belong to InfiniBand; nothing is made of them.
    """

    qp_state: int = e.IBV_QPS_INIT
    cur_qp_state: int = e.IBV_QPS_RESET
    port_num: int = 1
    path_mtu: int = e.IBV_MTU_1024
    cap: QPCap = field(default_factory=QPCap, init=False)
    max_rd_atomic: int = field(default=0, init=False)
    max_dest_rd_atomic: int = field(default=0, init=False)
    ah_attr: object = field(default=None, init=False)
    alt_ah_attr: object = field(default=None, init=False)
    alt_pkey_index: int = field(default=0, init=False)
    alt_port_num: int = field(default=0, init=False)
    alt_timeout: int = field(default=0, init=False)
    dest_qp_num: int = field(default=0, init=False)
    en_sqd_async_notify: int = field(default=0, init=False)
    min_rnr_timer: int = field(default=0, init=False)
    path_mig_state: int = field(default=0, init=False)
    pkey_index: int = field(default=0, init=False)
    qkey: int = field(default=0, init=False)
    qp_access_flags: int = field(default=0, init=False)
    rate_limit: int = field(default=0, init=False)
    retry_cnt: int = field(default=0, init=False)
    rnr_retry: int = field(default=0, init=False)
    rq_psn: int = field(default=0, init=False)
    sq_draining: int = field(default=0, init=False)
    sq_psn: int = field(default=0, init=False)
    timeout: int = field(default=0, init=False)


class QP(PyverbsCM):
    """A Queue Pair, which a `CMID` connects.

    Parameters
    ----------
    creator: its `PD`. init_attr: CQs and sizes; IBV_QPT_RC. qp_attr: nothing is made of it.
    """

    def __init__(self, creator: PD, init_attr: QPInitAttr, qp_attr: QPAttr | None = None):
        if not isinstance(creator, PD):
            raise unsupported(f"QP of a {type(creator).__name__}", "a QP is made of a PD")
        self.pd, self.init_attr = creator, init_attr
        with translated("QP"):
            self.verbs = driver.QP(creator.verbs, init_attr.verbs(creator))
        if init_attr.srq is not None:
            init_attr.srq.qps.add(self.verbs)

    def __repr__(self) -> str:
        return repr(self.verbs)

    @property
    def qp_num(self) -> int:
        """Its number on the device."""
        return self.verbs.qp_num

    @property
    def qp_type(self) -> int:
        """IBV_QPT_RC."""
        return e.IBV_QPT_RC

    @property
    def qp_state(self) -> int:
        """Its state now: IBV_QPS_INIT, RTS, ERR, or RESET when it is closed."""
        with translated("qp_state"):
            return _STATES[self.verbs.state]

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Posts a request and those after it, all or none of them: `bad_wr` is left as it is."""
        with translated("post_send"):
            self.verbs.post_send(*(each.verbs for each in chain(wr)))

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Posts a request and those after it, all or none of them: `bad_wr` is left as it is."""
        with translated("post_recv"):
            self.verbs.post_recv(*(each.verbs for each in chain(wr)))

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """What the QP is now, whatever `attr_mask` asks for, and what it was made of."""
        with translated("query"):
            found, _ = self.verbs.query()
        state = _STATES[found.qp_state]
        attr = QPAttr(state, state)
        attr.cap = self.init_attr.cap
        attr.max_rd_atomic = found.max_rd_atomic or 0
        attr.max_dest_rd_atomic = found.max_dest_rd_atomic or 0
        return attr, self.init_attr

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Moves the QP to IBV_QPS_ERR, which ends the stream.

        IBV_QPS_INIT and RTR, and a mask without IBV_QP_STATE, change nothing, as in the kernel's
        iWARP: the connection manager connects the QP. Raises `PyverbsRDMAError` for other states.
        """
        if not comp_mask & e.IBV_QP_STATE or qp_attr.qp_state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR):
            return
        if qp_attr.qp_state != e.IBV_QPS_ERR:
            raise unsupported(f"modify to state {qp_attr.qp_state}", CONNECTION_MANAGER)
        with translated("modify"):
            self.verbs.disconnect()

    def to_init(self, qp_attr: QPAttr) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("to_init", CONNECTION_MANAGER)

    def to_rtr(self, qp_attr: QPAttr) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("to_rtr", CONNECTION_MANAGER)

    def to_rts(self, qp_attr: QPAttr) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("to_rts", CONNECTION_MANAGER)

    def query_ece(self) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_ece", NO_ECE)

    def set_ece(self, ece: object) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("set_ece", NO_ECE)

    def bind_mw(self, mw: object, mw_bind: object) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("bind_mw", "the device has no memory windows")

    def query_data_in_order(self, op: int, flags: int = 0) -> int:
        """0: the RFCs promise no order of the bytes of a message."""
        return 0

    def close(self) -> None:
        """Ends the stream and frees the QP."""
        with translated("close"):
            self.verbs.close()
