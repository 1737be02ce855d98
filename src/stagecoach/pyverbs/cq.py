"""Completion Queues, their channels, and what they hold."""

from dataclasses import dataclass, field
from math import inf
from typing import NoReturn

from stagecoach import host_driver as driver
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.base import PyverbsCM, PyverbsObject, absent, translated, unsupported
from stagecoach.pyverbs.device import Context
from stagecoach.pyverbs.pyverbs_error import PyverbsRDMAError

_EXTENDED = "completions have one form; poll a CQ"

CQEX = absent("CQEX", _EXTENDED)
CqInitAttrEx = absent("CqInitAttrEx", _EXTENDED)
PollCqAttr = absent("PollCqAttr", _EXTENDED)
WcTmInfo = absent("WcTmInfo", "the device does not match tags")

_OPCODES = {
    driver.WCOpcode.SEND: e.IBV_WC_SEND,
    driver.WCOpcode.RDMA_WRITE: e.IBV_WC_RDMA_WRITE,
    driver.WCOpcode.RDMA_READ: e.IBV_WC_RDMA_READ,
    driver.WCOpcode.COMP_SWAP: e.IBV_WC_COMP_SWAP,
    driver.WCOpcode.FETCH_ADD: e.IBV_WC_FETCH_ADD,
    driver.WCOpcode.LOCAL_INV: e.IBV_WC_LOCAL_INV,
    driver.WCOpcode.RECV: e.IBV_WC_RECV,
    driver.WCOpcode.RECV_RDMA_WITH_IMM: e.IBV_WC_RECV_RDMA_WITH_IMM,
}
"""What `SendWR` and `RecvWR` of this package can complete as."""

_FLAGS = {
    driver.WCFlags.WITH_IMM: e.IBV_WC_WITH_IMM,
    driver.WCFlags.WITH_INV: e.IBV_WC_WITH_INV,
}


@dataclass
class WC(PyverbsObject):
    """A work completion.

    Attributes
    ----------
    status, opcode, wc_flags: IBV_WC_*. byte_len: bytes of a message.
    vendor_err: `stagecoach.Cause` of the QP's end.
    imm_data: Immediate Data as a number, or with IBV_WC_WITH_INV the STag that the peer
        invalidated.
    verbs: the completion of `stagecoach`, for `describe`; `None` if a program made the object.
    """

    wr_id: int = 0
    status: int = 0
    opcode: int = 0
    vendor_err: int = 0
    byte_len: int = 0
    qp_num: int = 0
    src_qp: int = 0
    imm_data: int = 0
    wc_flags: int = 0
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0
    verbs: driver.WC | None = field(default=None, init=False)


def completion_of(found: driver.WC) -> WC:
    """A completion of `stagecoach` as one of pyverbs."""
    wc = WC(
        wr_id=found.wr_id,
        status=int(found.status),
        opcode=_OPCODES[found.opcode],
        vendor_err=int(found.cause),
        byte_len=found.byte_len,
        qp_num=found.qp_num,
        imm_data=found.invalidated_rkey or int.from_bytes(found.imm_data, "big"),
        wc_flags=sum(flag for each, flag in _FLAGS.items() if found.wc_flags & each),
    )
    wc.verbs = found
    return wc


class CompChannel(PyverbsCM):
    """Gets the notifications of the CQs that are made with it."""

    def __init__(self, context: Context):
        self.context = context
        with translated("CompChannel"):
            self.verbs = driver.CompChannel(context.verbs)

    def __repr__(self) -> str:
        return repr(self.verbs)

    def get_cq_event(self, expected_cq: "CQ") -> None:
        """Waits for the next notification.

        Raises `PyverbsRDMAError` if it is one of another CQ.
        """
        with translated("get_cq_event"):
            cq = self.verbs.get_cq_event(timeout=inf)
        if cq is not expected_cq.verbs:
            raise PyverbsRDMAError(f"get_cq_event: an event of {cq}, not of {expected_cq}")

    def close(self) -> None:
        """Frees the channel; its CQs stay open."""
        with translated("close"):
            self.verbs.close()


class CQ(PyverbsCM):
    """A Completion Queue.

    Parameters
    ----------
    context: the open device. cqe: completions that it holds at least.
    cq_context: nothing is made of it. channel: gets notifications. comp_vector: 0.

    QPs can share it whatever its size, as in libibverbs: the program limits what is outstanding.
    """

    def __init__(
        self,
        context: Context,
        cqe: int,
        cq_context: object = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
    ):
        if comp_vector:
            raise unsupported(f"comp_vector {comp_vector}", "the device has one interrupt, 0")
        self.context = context
        self.comp_channel = channel
        with translated("CQ"):
            self.verbs = driver.CQ(
                context.verbs,
                cqe,
                overcommit=True,
                channel=None if channel is None else channel.verbs,
            )

    def __repr__(self) -> str:
        return repr(self.verbs)

    @property
    def cqe(self) -> int:
        """Completions that it holds."""
        return self.verbs.cqe

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """How many completions there are, up to `num_entries`, and these; it does not wait."""
        with translated("poll"):
            found = [completion_of(each) for each in self.verbs.poll(num_entries)]
        return len(found), found

    def req_notify(self, solicited_only: bool = False) -> None:
        """Asks for one notification in the channel."""
        with translated("req_notify"):
            self.verbs.req_notify(bool(solicited_only))

    def ack_events(self, num_events: int) -> None:
        """Acknowledges notifications; nothing waits for it."""
        with translated("ack_events"):
            self.verbs.ack_events(num_events)

    def resize(self, cqe: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("resize", "a CQ keeps its size")

    def close(self) -> None:
        """Frees the CQ; its QPs must be closed before."""
        with translated("close"):
            self.verbs.close()
