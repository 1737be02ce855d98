"""Headers of RPC-over-RDMA version 1 in what was captured (RFC 5666, 4.3; RFC 8166, 4.1.2)."""

import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1


class Procedure(IntEnum):
    """rdma_proc."""

    RDMA_MSG = 0
    RDMA_NOMSG = 1
    RDMA_MSGP = 2
    RDMA_DONE = 3
    RDMA_ERROR = 4


ERR_VERS, ERR_CHUNK = 1, 2
ERROR_NAMES = {ERR_VERS: "ERR_VERS", ERR_CHUNK: "ERR_CHUNK"}


class RpcRdmaError(ValueError):
    """The octets are no header."""


@dataclass(frozen=True)
class Segment:
    """xdr_rdma_segment; `position` is that of xdr_read_chunk, else `None`."""

    handle: int
    length: int
    offset: int
    position: int | None = None


@dataclass(frozen=True)
class RpcRdmaHeader:
    """A header and, in `message`, what stands after it.

    `align` and `threshold` are those of RDMA_MSGP; `error` that of RDMA_ERROR, with `versions` for
    ERR_VERS.
    """

    xid: int
    version: int
    credits: int
    procedure: Procedure
    reads: tuple[Segment, ...] = ()
    writes: tuple[tuple[Segment, ...], ...] = ()
    reply: tuple[Segment, ...] | None = None
    align: int | None = None
    threshold: int | None = None
    error: int | None = None
    versions: tuple[int, int] | None = None
    message: bytes = b""


class _Xdr:
    """Takes items off the front of octets."""

    def __init__(self, octets: bytes):
        self.octets = octets

    def take(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if len(self.octets) < size:
            raise RpcRdmaError(f"the header ends {size - len(self.octets)} bytes too early")
        found = struct.unpack_from(layout, self.octets)
        self.octets = self.octets[size:]
        return found

    def present(self, what: str) -> bool:
        """Whether optional data follows (RFC 4506, 4.19)."""
        (word,) = self.take("!I")
        if word not in (0, 1):
            raise RpcRdmaError(f"{word} where the {what} begins, not 0 or 1")
        return word == 1

    def segment(self) -> Segment:
        return Segment(*self.take("!IIQ"))

    def chunk(self) -> tuple[Segment, ...]:
        (count,) = self.take("!I")
        if 16 * count > len(self.octets):
            raise RpcRdmaError(f"a chunk of {count} segments in {len(self.octets)} bytes")
        return tuple(self.segment() for _ in range(count))


def parse(octets: bytes) -> RpcRdmaHeader:
    """The header at the start of a Send; raises `RpcRdmaError` if there is none."""
    xdr = _Xdr(octets)
    xid, version, credits, number = xdr.take("!4I")
    if version != VERSION and number != Procedure.RDMA_ERROR:
        raise RpcRdmaError(f"version {version}, not 1")
    if number not in list(Procedure):
        raise RpcRdmaError(f"rdma_proc {number}, not 0 to 4")
    procedure = Procedure(number)
    fixed = (xid, version, credits, procedure)
    if procedure is Procedure.RDMA_DONE:
        return RpcRdmaHeader(*fixed, message=xdr.octets)
    if procedure is Procedure.RDMA_ERROR:
        (error,) = xdr.take("!I")
        versions: tuple[int, int] | None = None
        if error == ERR_VERS:
            low, high = xdr.take("!2I")
            versions = (low, high)
        return RpcRdmaHeader(*fixed, error=error, versions=versions, message=xdr.octets)
    align = threshold = None
    if procedure is Procedure.RDMA_MSGP:
        align, threshold = xdr.take("!2I")
    reads = []
    while xdr.present("read list"):
        (position,) = xdr.take("!I")
        handle, length, offset = xdr.take("!IIQ")
        reads.append(Segment(handle, length, offset, position))
    writes = []
    while xdr.present("write list"):
        writes.append(xdr.chunk())
    reply = xdr.chunk() if xdr.present("reply chunk") else None
    return RpcRdmaHeader(
        *fixed, tuple(reads), tuple(writes), reply, align, threshold, message=xdr.octets
    )
