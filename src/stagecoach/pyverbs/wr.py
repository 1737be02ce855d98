"""Work requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from stagecoach import host_driver as driver
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.base import PyverbsCM, shown, unsupported
from stagecoach.pyverbs.pyverbs_error import PyverbsUserError

CONNECTED_ONLY = "the device has connected QPs only: no datagrams, no address handles, no multicast"

_OPCODES = {
    e.IBV_WR_RDMA_WRITE: driver.WROpcode.RDMA_WRITE,
    e.IBV_WR_RDMA_WRITE_WITH_IMM: driver.WROpcode.RDMA_WRITE_WITH_IMM,
    e.IBV_WR_SEND: driver.WROpcode.SEND,
    e.IBV_WR_RDMA_READ: driver.WROpcode.RDMA_READ,
    e.IBV_WR_ATOMIC_CMP_AND_SWP: driver.WROpcode.ATOMIC_CMP_AND_SWP,
    e.IBV_WR_ATOMIC_FETCH_AND_ADD: driver.WROpcode.ATOMIC_FETCH_AND_ADD,
    e.IBV_WR_LOCAL_INV: driver.WROpcode.LOCAL_INV,
    e.IBV_WR_SEND_WITH_INV: driver.WROpcode.SEND_WITH_INV,
}

_INVALIDATES = (e.IBV_WR_LOCAL_INV, e.IBV_WR_SEND_WITH_INV)
"""Operations whose `imm_data` is the STag, as in the union of libibverbs, and that need no SGE."""

_FLAGS = {
    e.IBV_SEND_FENCE: driver.SendFlags.FENCE,
    e.IBV_SEND_SIGNALED: driver.SendFlags.SIGNALED,
    e.IBV_SEND_SOLICITED: driver.SendFlags.SOLICITED,
    e.IBV_SEND_INLINE: driver.SendFlags.INLINE,
}

_IMMEDIATE_OCTETS = 8


@dataclass
class SGE(PyverbsCM):
    """`length` bytes at `addr` of the region with STag `lkey`."""

    addr: int
    length: int
    lkey: int

    def read(self, length: int, offset: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("SGE.read", "an address of a board is none of this process; use MR.read")


def _elements(sg: Sequence[SGE] | None, num_sge: int) -> list[driver.SGE]:
    return [driver.SGE(each.addr, each.length, each.lkey) for each in (sg or ())[:num_sge]]


def _require_elements(sg: Sequence[SGE] | None, num_sge: int) -> None:
    if sg is None or not 1 <= num_sge <= len(sg):
        have = "none" if sg is None else len(sg)
        raise PyverbsUserError(f"num_sge is {num_sge}, sg has {have}; allowed: 1 to those of sg")


class RecvWR(PyverbsCM):
    """A work request for the receive queue, with others after it in `next_wr`."""

    def __init__(
        self,
        wr_id: int = 0,
        num_sge: int = 0,
        sg: Sequence[SGE] | None = None,
        next_wr: "RecvWR | None" = None,
    ):
        _require_elements(sg, num_sge)
        self.wr_id, self.num_sge, self.next_wr = wr_id, num_sge, next_wr
        self._sg = sg

    def __repr__(self) -> str:
        return shown(self, "wr_id", "num_sge", "_sg")

    @property
    def verbs(self) -> driver.RecvWR:
        """The request of `stagecoach`."""
        return driver.RecvWR(self.wr_id, _elements(self._sg, self.num_sge))


class SendWR(PyverbsCM):
    """A work request for the send queue, with others after it in `next_wr`.

    imm_data: Immediate Data as a number of 64 bits; of LOCAL_INV and SEND_WITH_INV the STag.
    """

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = e.IBV_WR_SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        sg: Sequence[SGE] | None = None,
        send_flags: int = e.IBV_SEND_SIGNALED,
        next_wr: "SendWR | None" = None,
    ):
        if opcode not in _INVALIDATES:
            _require_elements(sg, num_sge)
        self.wr_id, self.opcode, self.num_sge, self.imm_data = wr_id, opcode, num_sge, imm_data
        self.send_flags, self.next_wr = send_flags, next_wr
        self._sg = sg
        self._remote_addr = self._rkey = self._compare_add = self._swap = 0

    def __repr__(self) -> str:
        named = "wr_id", "opcode", "num_sge", "imm_data", "_sg", "send_flags"
        return shown(self, *named, "_rkey", "_remote_addr", "_compare_add", "_swap")

    @property
    def rkey(self) -> int:
        """The STag of the peer's region."""
        return self._rkey

    @property
    def sg_list(self) -> Sequence[SGE]:
        """The elements; set to one of them it is the only one."""
        return self._sg or ()

    @sg_list.setter
    def sg_list(self, val: SGE) -> None:
        self._sg = [val]

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Names the peer's memory of an RDMA Write or Read: its STag, and the address in it."""
        self._rkey, self._remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Names the peer's memory, and the operands of an atomic."""
        self._rkey, self._remote_addr = rkey, addr
        self._compare_add, self._swap = compare_add, swap

    def set_wr_ud(self, ah: object, rqpn: int, rqkey: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("set_wr_ud", CONNECTED_ONLY)

    def set_qp_type_xrc(self, remote_srqn: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("set_qp_type_xrc", "the device has no XRC")

    def set_bind_wr(self, mw: object, bind_info: object) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("set_bind_wr", "the device has no memory windows")

    @property
    def verbs(self) -> driver.SendWR:
        """The request of `stagecoach`; raises `PyverbsRDMAError` for what the device lacks."""
        opcode = _OPCODES.get(self.opcode)
        if opcode is None:
            names = ", ".join(each.name for each in _OPCODES.values())
            raise unsupported(f"opcode {self.opcode}", f"the device has {names}")
        if left := self.send_flags & ~sum(_FLAGS):
            raise unsupported(f"send_flags {left:#x}", "TCP has its own checksums")
        flags = driver.SendFlags(0)
        for flag, each in _FLAGS.items():
            if self.send_flags & flag:
                flags |= each
        immediate = None
        if self.opcode == e.IBV_WR_RDMA_WRITE_WITH_IMM:
            immediate = self.imm_data.to_bytes(_IMMEDIATE_OCTETS, "big")
        return driver.SendWR(
            self.wr_id,
            opcode,
            _elements(self._sg, self.num_sge),
            flags,
            remote_addr=self._remote_addr,
            rkey=self.imm_data if self.opcode in _INVALIDATES else self._rkey,
            imm_data=immediate,
            compare_add=self._compare_add,
            swap=self._swap,
        )


_WR = TypeVar("_WR", SendWR, RecvWR)


def chain(wr: _WR | None) -> Iterator[_WR]:
    """The request and those after it."""
    while wr is not None:
        yield wr
        wr = wr.next_wr
