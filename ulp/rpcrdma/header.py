"""The RPC-over-RDMA header, version 1 (RFC 5666, 4; RFC 8166, 4)."""

from dataclasses import dataclass, field
from enum import IntEnum

from stagecoach.ulp.rpcrdma.chunks import ChunkLists, ListError
from stagecoach.ulp.rpcrdma.errors import ErrorCode, HeaderError
from stagecoach.ulp.rpcrdma.xdr_words import WORD, Truncated, Words, pack

VERSION = 1
FIXED_OCTETS = 4 * WORD
MINIMUM_CALL_OCTETS = 28
"""Of a header with chunk lists. Of less not even the XID is trusted (RFC 8166, 4.5)."""


class Procedure(IntEnum):
    """rdma_proc."""

    RDMA_MSG = 0
    RDMA_NOMSG = 1
    RDMA_MSGP = 2
    RDMA_DONE = 3
    RDMA_ERROR = 4


_UNANSWERED = (Procedure.RDMA_DONE, Procedure.RDMA_ERROR)
"""Discarded in silence, even if they cannot be decoded (RFC 8166, 4.2.4, 4.5 and 4.6.2)."""


@dataclass(frozen=True, slots=True)
class Padding:
    """rdma_align and rdma_thresh of RDMA_MSGP, in octets (RFC 5666, 3.9)."""

    align: int
    threshold: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What RDMA_ERROR says: the code, and with ERR_VERS the versions that the sender knows."""

    code: ErrorCode
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """A header.

    Attributes
    ----------
    credits: requested in a call, granted in a reply.
    lists: of RDMA_MSG, RDMA_NOMSG and RDMA_MSGP. padding: of RDMA_MSGP. fault: of RDMA_ERROR.
    version: in an RDMA_ERROR that of the message in error, else 1.
    """

    xid: int
    credits: int
    procedure: Procedure = Procedure.RDMA_MSG
    lists: ChunkLists = field(default_factory=ChunkLists)
    padding: Padding | None = None
    fault: Fault | None = None
    version: int = VERSION

    def encode(self) -> bytes:
        """The bytes before the RPC message. `ValueError` for fields that the procedure has not."""
        if (self.padding is None) == (self.procedure is Procedure.RDMA_MSGP):
            raise ValueError(f"{self.procedure.name} with {self.padding}; RDMA_MSGP alone has it")
        if (self.fault is None) == (self.procedure is Procedure.RDMA_ERROR):
            raise ValueError(f"{self.procedure.name} with {self.fault}; RDMA_ERROR alone has it")
        octets = pack(self.xid, self.version, self.credits, self.procedure)
        if self.procedure is Procedure.RDMA_DONE:
            return octets
        if self.fault is not None:
            versions = (self.fault.low, self.fault.high)
            return octets + pack(
                self.fault.code, *(versions if self.fault.code is ErrorCode.ERR_VERS else ())
            )
        if self.padding is not None:
            octets += pack(self.padding.align, self.padding.threshold)
        return octets + self.lists.encode()


def decode_header(octets: bytes | bytearray | memoryview) -> tuple[Header, int]:
    """The header at the start of a message, and where the RPC message after it begins.

    The second number is the length of the bytes unless the procedure has an RPC message. Raises
    `HeaderError`, and nothing else, for all bytes that are no message of version 1; an RDMA_ERROR
    with ERR_VERS is one whatever its version, it is the same in all (RFC 8166, 7).
    """
    words = Words(octets)
    try:
        xid, version, credits, procedure = (words.word() for _ in range(4))
    except Truncated as error:
        raise HeaderError(str(error)) from error
    answered = len(octets) >= MINIMUM_CALL_OCTETS
    if version != VERSION and procedure != Procedure.RDMA_ERROR:
        answer = (xid, version, ErrorCode.ERR_VERS) if answered else ()
        raise HeaderError(f"version {version}; allowed: 1", *answer)
    try:
        header = _decode_body(words, xid, version, credits, procedure)
    except (Truncated, ListError) as error:
        answered = answered and procedure not in _UNANSWERED
        answer = (xid, version, ErrorCode.ERR_CHUNK) if answered else ()
        raise HeaderError(str(error), *answer) from error
    return header, words.at


def _decode_body(words: Words, xid: int, version: int, credits: int, number: int) -> Header:
    if number not in set(Procedure):
        raise ListError(f"rdma_proc {number}; allowed: 0 to {max(Procedure)}")
    procedure = Procedure(number)
    lists, padding, fault = ChunkLists(), None, None
    match procedure:
        case Procedure.RDMA_MSG | Procedure.RDMA_NOMSG:
            lists = ChunkLists.decode(words)
        case Procedure.RDMA_MSGP:
            padding = Padding(words.word(), words.word())
            lists = ChunkLists.decode(words)
        case Procedure.RDMA_ERROR:
            fault = _decode_fault(words)
            if version != VERSION and fault.code is not ErrorCode.ERR_VERS:
                raise ListError(f"RDMA_ERROR of version {version}; allowed: 1, any with ERR_VERS")
    if procedure is Procedure.RDMA_NOMSG and lists == ChunkLists():
        raise ListError("RDMA_NOMSG without any chunk; allowed: with one for the message")
    followed = procedure in (Procedure.RDMA_MSG, Procedure.RDMA_MSGP)
    if followed and (words.left < WORD or words.left % WORD):
        raise ListError(f"RPC message of {words.left} bytes; allowed: multiples of 4 from 4 on")
    if not followed and words.left:
        raise ListError(f"{words.left} bytes after {procedure.name}; allowed: 0")
    return Header(xid, credits, procedure, lists, padding, fault, version)


def _decode_fault(words: Words) -> Fault:
    code = words.word()
    if code not in set(ErrorCode):
        raise ListError(f"rdma_err {code}; allowed: 1, 2")
    if code == ErrorCode.ERR_CHUNK:
        return Fault(ErrorCode.ERR_CHUNK)
    return Fault(ErrorCode.ERR_VERS, words.word(), words.word())
