"""Memory regions."""

import ctypes
from typing import Any, NoReturn, Protocol

from stagecoach import host_driver as driver
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.base import PyverbsCM, absent, translated, unsupported
from stagecoach.pyverbs.pd import PD, PROCESS
from stagecoach.pyverbs.pyverbs_error import PyverbsUserError

_WINDOWS = "the device has no memory windows"

MW = absent("MW", _WINDOWS)
MWBind = absent("MWBind", _WINDOWS)
MWBindInfo = absent("MWBindInfo", _WINDOWS)
DMMR = absent("DMMR", "a region of the device's own memory is MR(pd, DeviceMemory) of stagecoach")
DmaBufMR = absent("DmaBufMR", "regions are memory of this process")

_RIGHTS = {
    e.IBV_ACCESS_LOCAL_WRITE: driver.AccessFlags.LOCAL_WRITE,
    e.IBV_ACCESS_REMOTE_WRITE: driver.AccessFlags.REMOTE_WRITE,
    e.IBV_ACCESS_REMOTE_READ: driver.AccessFlags.REMOTE_READ,
    e.IBV_ACCESS_REMOTE_ATOMIC: driver.AccessFlags.REMOTE_ATOMIC,
    # A hint, which libibverbs too drops where a device has no use for it.
    e.IBV_ACCESS_RELAXED_ORDERING: driver.AccessFlags(0),
}


def rights_of(access: int) -> driver.AccessFlags:
    """The rights of access flags. Raises `PyverbsRDMAError` for those that the device lacks."""
    rights = driver.AccessFlags(0)
    for flag, right in _RIGHTS.items():
        if access & flag:
            rights |= right
    if left := access & ~sum(_RIGHTS):
        raise unsupported(
            f"access {left:#x}", "the device has local and remote write, remote read and atomics"
        )
    return rights


class HasPD(Protocol):
    """What has a Protection Domain: a `CMID`."""

    @property
    def pd(self) -> PD:
        """The Protection Domain."""


class MR(PyverbsCM):
    """A registered memory region.

    Parameters
    ----------
    creator: its `PD`, or a `CMID`, whose regions may always be written locally, as those of
        librdmacm.
    length: bytes. access: IBV_ACCESS_*.
    address: of the memory in this process; memory of its own, zero, if not given.
    """

    def __init__(
        self,
        creator: PD | HasPD,
        length: int = 0,
        access: int = 0,
        address: int | None = None,
        implicit: bool = False,
        **kwargs: Any,
    ):
        if kwargs:
            raise unsupported(f"MR({', '.join(kwargs)}=...)", PROCESS)
        if implicit:
            raise unsupported("MR(implicit=True)", "a region is memory that stays registered")
        rights = rights_of(access)
        if isinstance(creator, PD):
            self.pd = creator
        else:
            self.pd = creator.pd
            rights |= driver.AccessFlags.LOCAL_WRITE
        memory = (ctypes.c_char * length).from_address(address) if address else length
        with translated("MR"):
            self.verbs = driver.MR(self.pd.verbs, memory, rights)

    def __repr__(self) -> str:
        return repr(self.verbs)

    @property
    def buf(self) -> int:
        """The address of the first byte, for elements and for the peer."""
        return self.verbs.addr

    @property
    def length(self) -> int:
        """Bytes."""
        return self.verbs.length

    @property
    def lkey(self) -> int:
        """The STag, for elements."""
        return self.verbs.lkey

    @property
    def rkey(self) -> int:
        """The STag, for the peer."""
        return self.verbs.rkey

    def write(self, data: Any, length: int, offset: int = 0) -> None:
        """Copies the first `length` bytes of `data`, which may be a `str`, to `offset`."""
        octets = data.encode() if isinstance(data, str) else data
        with translated("write"):
            self.verbs.write(octets, length, offset)

    def read(self, length: int, offset: int) -> bytes:
        """A copy of `length` bytes from `offset` on. Raises `PyverbsUserError` below 0."""
        if length < 0 or offset < 0:
            raise PyverbsUserError(f"length {length}, offset {offset}; allowed: 0 or more")
        with translated("read"):
            return self.verbs.read(length, offset)

    def rereg(
        self,
        flags: int,
        pd: PD | None = None,
        addr: int = 0,
        length: int = 0,
        access: int = 0,
    ) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("rereg", "a region keeps its memory and rights; register another one")

    def unimport(self) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("unimport", PROCESS)

    def close(self) -> None:
        """Revokes the STag; the device does not touch the memory any more."""
        with translated("close"):
            self.verbs.close()
