"""Work requests and work completions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import index

from stagecoach.host_driver.enums import (
    AccessFlags,
    SendFlags,
    WCFlags,
    WCOpcode,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.errors import describe
from stagecoach.host_driver.mr import FastMR
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.host_driver.terminate import Terminate
from stagecoach.hw.interface.causes import Cause
from stagecoach.hw.interface.wire import IMMEDIATE_DATA_OCTETS

ALL_ONES = 2**64 - 1

_HEX = {"remote_addr": "#x", "rkey": "#010x"} | dict.fromkeys(
    ("add_mask", "compare_mask", "swap_mask"), "#018x"
)
"""Fields of a `SendWR` that `repr` shows as hexadecimal numbers."""


def _check_range(name: str, value: int, bits: int) -> None:
    if not hasattr(value, "__index__"):  # also the integers of numpy
        raise TypeError(f"{name} is {value!r}; allowed: an integer")
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} is {value}; allowed: 0 to 2^{bits} - 1")


def _check_elements(name: str, elements: Sequence["SGE"]) -> None:
    if not isinstance(elements, Sequence) or not all(isinstance(each, SGE) for each in elements):
        raise TypeError(f"{name} is {elements!r}; allowed: a sequence of SGE")


def _check_immediate(name: str, value: bytes | None) -> None:
    if value is None:
        return
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"{name} is {value!r}; allowed: {IMMEDIATE_DATA_OCTETS} bytes")
    if len(value) != IMMEDIATE_DATA_OCTETS:
        raise ValueError(f"{name} has {len(value)} bytes; allowed: {IMMEDIATE_DATA_OCTETS}")


@dataclass(frozen=True)
class SGE:
    """A scatter/gather element: `length` bytes at `addr` of the region with STag `lkey`.

    >>> SGE(addr=0, length=1 << 32, lkey=0)
    Traceback (most recent call last):
        ...
    ValueError: SGE.length is 4294967296; allowed: 0 to 2^32 - 1
    """

    addr: int
    length: int
    lkey: int

    def __post_init__(self) -> None:
        _check_range("SGE.addr", self.addr, 64)
        _check_range("SGE.length", self.length, 32)
        _check_range("SGE.lkey", self.lkey, 32)

    def __repr__(self) -> str:
        return (
            f"SGE(addr={index(self.addr):#x}, length={self.length}, lkey={index(self.lkey):#010x})"
        )


@dataclass(frozen=True)
class SendWR:
    """A work request for the send queue.

    `remote_addr` (Tagged Offset) and `rkey` (STag) name the peer's memory for RDMA Write, RDMA
    Read and atomics; `rkey` of SEND_WITH_INV is the peer's STag that is invalidated. A request
    without `SendFlags.SIGNALED` completes silently.

    LOCAL_INV invalidates the local STag `rkey`: once it has completed, no access uses it.
    An RDMA Read before it that is not complete then fails, unless it has `SendFlags.FENCE`.
    REG_MR makes `mr`, an invalid `FastMR`, valid under the STag `rkey` for `access`, before the
    requests after it begin; `rkey` differs from that of `mr` in its key only (`inc_rkey`). A
    request that the device refuses stops the QP.

    An atomic works on the 8 bytes at `remote_addr` of the peer's STag `rkey`, which must have
    remote read and write right and an address that is a multiple of 8, as a number in the byte
    order of the peer's memory; the number that was there before comes into the only element of
    `sg`, in that of this host. ATOMIC_FETCH_AND_ADD adds `compare_add`; each bit of `add_mask` ends
    a field, out of which nothing is carried, so 0 is a plain addition. ATOMIC_CMP_AND_SWP puts the
    bits of `swap` that `swap_mask` has into memory if the bits of `compare_mask` are those of
    `compare_add` there, else it changes nothing. ATOMIC_SWAP puts `swap` there, all of it. To give
    an operand that the operation does not use is an error. They count as RDMA Reads among those
    that may be outstanding.

    IMM_DATA sends the 8 bytes `imm_data`, and nothing else, into a completion of the peer (RFC
    7306, 6); RDMA_WRITE_WITH_IMM is an RDMA Write and such a message after it. It counts as two
    requests in the send queue and has one completion, when both are done.

    With a `region` of an open device, and a peer that has told where to write:

    >>> everything = SGE(region.addr, region.length, region.lkey)
    >>> write = SendWR(1, WROpcode.RDMA_WRITE, [everything], remote_addr=0x1000, rkey=0x12345678)
    >>> add = SendWR(
    ...     2,
    ...     WROpcode.ATOMIC_FETCH_AND_ADD,
    ...     [SGE(region.addr, 8, region.lkey)],
    ...     remote_addr=0x1000,
    ...     rkey=0x12345678,
    ...     compare_add=1,
    ... )
    >>> SendWR(3, WROpcode.IMM_DATA, imm_data=b"short")
    Traceback (most recent call last):
        ...
    ValueError: SendWR.imm_data has 5 bytes; allowed: 8
    """

    wr_id: int = 0
    opcode: WROpcode = WROpcode.SEND
    sg: Sequence[SGE] = field(default_factory=tuple)
    send_flags: SendFlags = SendFlags.SIGNALED
    remote_addr: int = 0
    rkey: int = 0
    mr: FastMR | None = None
    access: AccessFlags = field(default=AccessFlags(0))
    imm_data: bytes | None = None
    compare_add: int = 0
    swap: int = 0
    add_mask: int = 0
    compare_mask: int = ALL_ONES
    swap_mask: int = ALL_ONES

    def __post_init__(self) -> None:
        for name in ("compare_add", "swap", "add_mask", "compare_mask", "swap_mask"):
            _check_range(f"SendWR.{name}", getattr(self, name), 64)
        _check_immediate("SendWR.imm_data", self.imm_data)
        _check_range("SendWR.remote_addr", self.remote_addr, 64)
        _check_range("SendWR.rkey", self.rkey, 32)
        _check_elements("SendWR.sg", self.sg)

    def __repr__(self) -> str:
        """Without what is as it is when nothing is given."""
        usual, shown = SendWR(), []
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("wr_id", "opcode") or value != getattr(usual, each.name):
                form = _HEX.get(each.name)
                shown.append(f"{each.name}={format(index(value), form) if form else repr(value)}")
        return f"SendWR({', '.join(shown)})"


@dataclass(frozen=True)
class RecvWR:
    """A work request for the receive queue: where the next untagged message goes."""

    wr_id: int = 0
    sg: Sequence[SGE] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        _check_elements("RecvWR.sg", self.sg)


def require_requests(requests: Sequence[object], allowed: type[SendWR | RecvWR]) -> None:
    """Raises `TypeError` unless all are requests of that kind."""
    for request in requests:
        if not isinstance(request, allowed):
            text = f"request is a {type(request).__name__}; allowed: {allowed.__name__}"
            if isinstance(request, Sequence):
                text += ", those of a sequence with * before it"
            raise TypeError(text)


@dataclass(frozen=True)
class WC:
    """A work completion.

    Attributes
    ----------
    byte_len: bytes of the message; of Immediate Data 8, without those of an RDMA Write before it.
    cause: why the request failed. terminate: what the peer complained about, if that is why.
    stream_end: how the TCP connection ended, as `AsyncEvent` has it.
    wc_flags: of a receive, `WCFlags`. invalidated_rkey: the STag that the peer invalidated, with
        WITH_INV.
    imm_data: with WITH_IMM the 8 bytes that the peer sent, as it sent them: what they mean is up
        to the two programs (`int.from_bytes`). Nothing tells a receiver whether the peer posted
        IMM_DATA or RDMA_WRITE_WITH_IMM, nor how much that wrote: on the wire they are the same.
        What the peer wrote before is in memory when this completion is there.
    """

    wr_id: int
    status: WCStatus
    opcode: WCOpcode
    byte_len: int
    qp_num: int
    cause: Cause = Cause.NONE
    wc_flags: WCFlags = field(default=WCFlags(0))
    invalidated_rkey: int = 0
    terminate: Terminate | None = None
    imm_data: bytes = b""
    stream_end: StreamEnd | None = None

    def describe(self) -> str:
        """What became of the request, in one line.

        >>> WC(7, WCStatus.SUCCESS, WCOpcode.RECV, 25, qp_num=3).describe()
        'RECV 7 of QP 3: SUCCESS, 25 bytes'
        """
        text = f"{self.opcode.name} {self.wr_id} of QP {self.qp_num}: {self.status.name}"
        if self.status != WCStatus.SUCCESS:
            return f"{text}, {describe(self.cause, self.terminate, self.stream_end)}"
        text += f", {self.byte_len} bytes"
        if self.wc_flags & WCFlags.SOLICITED:
            text += ", solicited"
        if self.wc_flags & WCFlags.WITH_IMM:
            text += f", Immediate Data {self.imm_data.hex()}"
        if self.wc_flags & WCFlags.WITH_INV:
            text += f", STag 0x{self.invalidated_rkey:08x} invalidated"
        return text
