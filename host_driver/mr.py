"""Memory regions."""

from contextlib import ExitStack
from typing import Any, Protocol, Self, runtime_checkable
from weakref import WeakKeyDictionary, ref

from stagecoach.host_driver import registers
from stagecoach.host_driver.context import Context
from stagecoach.host_driver.device import CommandOpcode
from stagecoach.host_driver.device_memory import DeviceMemory, RegisteredMemory
from stagecoach.host_driver.dropped import Droppable, Open
from stagecoach.host_driver.enums import AccessFlags
from stagecoach.host_driver.errors import require_type
from stagecoach.host_driver.pd import PD
from stagecoach.host_driver.region_buffer import HostBuffer, view_of
from stagecoach.hw.interface.queue_entries import Rights

KEY_BITS = 8
"""Low bits of an STag: the key, which a registration by work request may change."""


def inc_rkey(rkey: int) -> int:
    """The STag of the same region with the next key.

    >>> hex(inc_rkey(0x123456FF))
    '0x12345600'
    """
    mask = (1 << KEY_BITS) - 1
    return rkey & ~mask | (rkey + 1) & mask


_ALL_RIGHTS = int(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ)


def check_access(access: AccessFlags) -> None:
    """Raises `TypeError` or `ValueError` for invalid access flags."""
    require_type("access", access, int)
    if not 0 <= access <= _ALL_RIGHTS:
        raise ValueError(f"access is {access}; allowed: AccessFlags, 0 to {_ALL_RIGHTS}")


def rights_of(access: AccessFlags) -> Rights:
    """Rights in the STag table for access flags."""
    rights = Rights.LOCAL_READ
    if access & AccessFlags.LOCAL_WRITE:
        rights |= Rights.LOCAL_WRITE
    if access & AccessFlags.REMOTE_WRITE:
        rights |= Rights.REMOTE_WRITE
    if access & AccessFlags.REMOTE_READ:
        rights |= Rights.REMOTE_READ
    return rights


class _Completions(Protocol):
    def _take_entries(self) -> None: ...


@runtime_checkable
class RegionQP(Protocol):
    """The QP that alone may use a region: what a region needs of a `QP`."""

    context: Context
    pd: PD
    qp_num: int
    children: WeakKeyDictionary[Open, None]

    @property
    def rcq(self) -> _Completions:
        """Where invalidations by the peer are told."""

    def _require_open(self) -> None:
        """Raises `QPStateError` if the QP is closed."""


class MR(Droppable):
    """A registered memory region: the device reads and writes the buffer itself, without a copy.

    It lasts until it is closed or dropped: a program keeps it for as long as work requests or peers
    name its STag.

    Parameters
    ----------
    pd: the Protection Domain.
    buffer: any writable, contiguous buffer of at least one byte (bytearray, numpy array, mmap).
        It cannot be resized while it is registered. Or a number of bytes: the region has memory of
        its own then, zero, at the beginning of a page, which a child that is forked later shares.
        Or a `DeviceMemory` of the device, which closes its regions when it is closed.
    access: what else than local reading is allowed.
    qp: only this QP, one of the PD, may use the region, which is closed with it. The peer of this
        QP, and no other one, may invalidate its STag by a Send with Invalidate (RFC 5040, 8.1.1).
    addr: Tagged Offset of the first byte; its address for the device if not given.
    stag: the STag; drawn at random if not given.

    Attributes
    ----------
    buf: the buffer. addr: Tagged Offset of its first byte. length: in bytes.
    lkey, rkey: the STag.
    invalidated: whether the peer has invalidated the STag, as far as completions were polled, or a
        LOCAL_INV was posted: the region is of no more use then (but a `FastMR`), and nobody else
        gets its place until it is closed.

    Raises `TypeError` for a read-only or scattered buffer, `ValueError` for a number of bytes
    below 1 or if the PD is closed,
    `QPStateError` if the QP is closed, `ResourceError` if the STag table is full, `QuotaExceeded`.

    With an open `pd`:

    >>> region = MR(pd, 4096, AccessFlags.REMOTE_WRITE)
    >>> region.write(b"hello", offset=8)
    >>> region.read(5, offset=8)
    b'hello'
    >>> MR(pd, b"constant")
    Traceback (most recent call last):
        ...
    TypeError: cannot register bytes: read-only True, C-contiguous True, 8 bytes; allowed: a
    writable, C-contiguous buffer of at least one byte
    """

    _fast = False

    def __init__(
        self,
        pd: PD,
        buffer: Any,
        access: AccessFlags = AccessFlags.LOCAL_WRITE,
        *,
        qp: RegionQP | None = None,
        addr: int | None = None,
        stag: int | None = None,
    ):
        require_type("pd", pd, PD)
        check_access(access)
        if qp is not None and not isinstance(qp, RegionQP):
            raise TypeError(f"qp is a {type(qp).__name__}; allowed: QP")
        is_own = isinstance(buffer, DeviceMemory)
        self._memory = RegisteredMemory(buffer) if is_own else HostBuffer(buffer)
        self.buf: Any = self._memory.buf
        self.length = self._memory.length
        self._check_length()
        # A Tagged Offset after the last octet must not wrap (RFC 5041, 7.1).
        if addr is not None and not 0 <= addr < (1 << 64) - self.length:
            raise ValueError(f"addr is {addr}; allowed: 0 to 2^64 - 1 - length ({self.length})")
        self.pd = pd
        self.access = access
        self.invalidated = False
        self._qp: RegionQP | None = qp  # kept open by its region
        self._qp_reference = None if qp is None else ref(qp)
        self._context = context = pd.context
        # Whose end is also that of the region.
        self._parents = [pd.children] if qp is None else [pd.children, qp.children]
        if is_own:
            self._parents.append(buffer.children)
        with context.lock:
            pd._require_open()
            if qp is not None:
                if qp.pd is not pd:
                    there = "another device" if qp.context is not context else f"PD {qp.pd.number}"
                    raise ValueError(
                        f"QP {qp.qp_num} belongs to {there}, the region to PD {pd.number}; "
                        "allowed: a QP of the region's PD"
                    )
                qp._require_open()
                # An invalidation that has come is that of a region which had this STag before.
                qp.rcq._take_entries()
            resources = context.resources
            with resources.reserve(mrs=1, octets=self.length), ExitStack() as undo:
                self.stag = resources.take_stag() if stag is None else resources.claim_stag(stag)
                undo.callback(resources.give_stag, self.stag)
                self._address = self._memory.map(context.transport)
                undo.callback(self._memory.unmap, context.transport, self._address)
                self.addr = self._address if addr is None else addr
                self._write(qp)
                undo.pop_all()
            context.mrs[self.stag] = self
            context._adopt(self)
            for children in self._parents:
                children[self] = None
            self._opened(context)

    def _check_length(self) -> None:
        """Raises `ValueError` if no region of the class is so long."""

    def _write(self, qp: RegionQP | None) -> None:
        """Writes the table entry."""
        context = self._context
        context.write(registers.STAG_VALUE, stag=self.stag)
        context.write(
            registers.STAG_ACCESS,
            pd=self.pd.number,
            rights=int(rights_of(self.access)),
            scoped=int(qp is not None),
            fast=int(self._fast),
        )
        context.write(registers.STAG_QP, qp=0 if qp is None else qp.qp_num)
        context.write_wide(registers.STAG_BASE_LOW, registers.STAG_BASE_HIGH, self.addr)
        context.write_wide(registers.STAG_LENGTH_LOW, registers.STAG_LENGTH_HIGH, self.length)
        context.write_wide(registers.STAG_ADDRESS_LOW, registers.STAG_ADDRESS_HIGH, self._address)
        context.command(CommandOpcode.STAG_WRITE)

    @property
    def host_address(self) -> int:
        """Where the device finds the first byte: the host's, or its own `DeviceMemory`."""
        return self._address

    @property
    def lkey(self) -> int:
        """The STag, for elements of local work requests."""
        return self.stag

    @property
    def rkey(self) -> int:
        """The STag, for the peer."""
        return self.stag

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ", invalid" if self.invalidated else ""
        rights = " | ".join(str(flag.name) for flag in AccessFlags(self.access)) or "local reading"
        return (
            f"<{type(self).__name__} STag 0x{self.stag:08x} of PD {self.pd.number}: "
            f"{self.length} bytes at 0x{self.addr:x}, {rights}{state}>"
        )

    def _require_open(self) -> None:
        """Raises `ValueError` if the region is closed: its STag may be that of another one."""
        if self._closed:
            raise ValueError(
                f"{type(self).__name__} of STag 0x{self.stag:08x} is closed; allowed: an open one"
            )

    def read(self, length: int | None = None, offset: int = 0) -> bytes:
        """A copy of `length` bytes from `offset` on; all that follow if it is not given.

        Raises `ValueError` if they are not all in the region, or it is closed. A child that was
        forked may read, too.
        """
        self._require_open()
        return self._memory.read(offset, self.length - offset if length is None else length)

    def write(self, data: Any, length: int | None = None, offset: int = 0) -> None:
        """Copies the first `length` bytes of `data`, all if it is not given, to `offset`.

        `data` is any C-contiguous buffer. Raises `TypeError` for anything else; `ValueError` if
        they are not all in the region, it is closed, or `data` has fewer; and `DeviceClosed` in a
        child that was forked, which may share the memory.
        """
        self._context.lock.check()
        self._require_open()
        with view_of(data) as source:
            length = source.nbytes if length is None else length
            if length > source.nbytes:
                raise ValueError(
                    f"length is {length}; allowed: 0 to {source.nbytes}, the length of data"
                )
            with source[:length] as part:
                self._memory.write(offset, part)

    def _invalidated_by(self, qp: object) -> None:
        """The peer of `qp` has invalidated the STag."""
        if self._qp_reference is not None and qp is self._qp_reference():
            self.invalidated = True

    def _let_go_of_qp(self) -> None:
        """The QP has the region, not the region the QP: it ends when its QP is dropped."""
        self._qp = None

    def close(self) -> None:
        """Revokes the STag: when this returns, the device no longer touches the buffer."""
        with self._context.lock:
            if self._closed:
                return
            self._closed = True
            self._context._forget(self)
            self._context.mrs.pop(self.stag, None)
            for children in self._parents:
                children.pop(self, None)
            self._context.write(registers.STAG_VALUE, stag=self.stag)
            self._context.command(CommandOpcode.STAG_INVALIDATE)
            self._context.resources.give_stag(self.stag)
            self._context.resources.used.give(mrs=1, octets=self.length)
            self._memory.unmap(self._context.transport, self._address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FastMR(MR):
    """A memory region that work requests make valid and invalid, with a new key each time.

    It begins invalid: a REG_MR of any QP of the PD makes it valid for the access that it names, a
    LOCAL_INV, or the peer's Send with Invalidate if it is a region of one QP, makes it invalid
    again. It can be registered under any STag that differs from the last in the key (`inc_rkey`).

    Parameters
    ----------
    pd, buffer, qp, addr, stag: as those of `MR`. The buffer has less than 2^32 bytes.

    Attributes
    ----------
    lkey, rkey: the STag of the last REG_MR that was posted; at first one that is not valid.
    """

    _fast = True

    def __init__(
        self,
        pd: PD,
        buffer: Any,
        *,
        qp: RegionQP | None = None,
        addr: int | None = None,
        stag: int | None = None,
    ):
        super().__init__(pd, buffer, AccessFlags(0), qp=qp, addr=addr, stag=stag)
        self.invalidated = True

    def _check_length(self) -> None:
        if self.length >= 1 << 32:
            raise ValueError(
                f"a FastMR of {self.length} bytes; allowed: 1 to 2^32 - 1 (send entry)"
            )

    def _check_stag(self, stag: int) -> None:
        """Raises `ValueError` if the region is closed, or cannot be registered under the STag."""
        self._require_open()
        if stag >> KEY_BITS != self.stag >> KEY_BITS:
            raise ValueError(
                f"REG_MR as STag 0x{stag:08x}; allowed: 0x{self.stag >> KEY_BITS:06x}00 to "
                f"0x{self.stag >> KEY_BITS:06x}ff (another key of the same region)"
            )

    def _registered(self, stag: int, access: AccessFlags) -> None:
        """A REG_MR is posted."""
        self._context.mrs.pop(self.stag, None)
        self.stag, self.access, self.invalidated = stag, access, False
        self._context.mrs[stag] = self
