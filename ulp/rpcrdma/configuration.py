"""The Connection Configuration Protocol, program 100417 (RFC 5666, 6.2)."""

from dataclasses import astuple, dataclass
from typing import Self

from stagecoach.ulp.oncrpc.errors import RpcTransportError
from stagecoach.ulp.rpcrdma.xdr_words import WORD, Truncated, Words, pack

PROGRAM, VERSION, CONF_RDMA = 100417, 1, 1
_NULL = 0
_CALL, _REPLY = 0, 1
_RPC_VERSION = 2
_AUTH_NONE = (0, 0)
_MSG_ACCEPTED = 0
_SUCCESS, _PROG_MISMATCH, _PROC_UNAVAIL, _GARBAGE_ARGS = 0, 2, 3, 4
_CALL_WORDS = 6  # to the procedure; credential and verifier follow


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """config_rdma_req: what the client may send, what it takes, RDMA Reads active at it."""

    maxcall_sendsize: int
    maxreply_sendsize: int
    maxrdmaread: int


@dataclass(frozen=True, slots=True)
class ConfigReply:
    """config_rdma_reply: what the server takes, how it aligns, RDMA Reads active at it."""

    maxcall_sendsize: int
    align: int
    maxrdmaread: int


@dataclass(frozen=True, slots=True)
class ConfigCall:
    """An RPC call of the program; `request` is `None` if it is not CONF_RDMA with its arguments."""

    xid: int
    version: int
    procedure: int
    request: ConfigRequest | None

    @classmethod
    def decode(cls, stream: bytes) -> Self | None:
        """The call if the stream is one of this program, else `None`."""
        words = Words(stream)
        try:
            xid, kind, rpc_version, program, version, procedure = (
                words.word() for _ in range(_CALL_WORDS)
            )
            if (kind, rpc_version, program) != (_CALL, _RPC_VERSION, PROGRAM):
                return None
            for _ in range(2):  # credential and verifier: flavor, and an opaque
                words.word()
                octets = words.word()
                for _ in range(min(-(-octets // WORD), words.left // WORD + 1)):
                    words.word()
        except Truncated:
            return None
        arguments = ConfigRequest(*(words.word() for _ in range(3))) if words.left == 12 else None
        return cls(xid, version, procedure, arguments)

    def answer(self, reply: ConfigReply) -> bytes:
        """The RPC reply (RFC 5531, 9): `reply`, or why not."""
        accepted = pack(self.xid, _REPLY, _MSG_ACCEPTED, *_AUTH_NONE)
        if self.version != VERSION:
            return accepted + pack(_PROG_MISMATCH, VERSION, VERSION)
        if self.procedure == _NULL:
            return accepted + pack(_SUCCESS)
        if self.procedure != CONF_RDMA:
            return accepted + pack(_PROC_UNAVAIL)
        if self.request is None:
            return accepted + pack(_GARBAGE_ARGS)
        return accepted + pack(_SUCCESS, *astuple(reply))


def encode_call(xid: int, request: ConfigRequest) -> bytes:
    """The RPC call of CONF_RDMA."""
    header = (xid, _CALL, _RPC_VERSION, PROGRAM, VERSION, CONF_RDMA, *_AUTH_NONE, *_AUTH_NONE)
    return pack(*header, *astuple(request))


def decode_reply(stream: bytes) -> ConfigReply | None:
    """What the server said, `None` if it does not have the program.

    Raises `RpcTransportError` for anything other than a reply to CONF_RDMA.
    """
    words = Words(stream)
    try:
        _, kind, status, _, verifier = (words.word() for _ in range(5))
        if (kind, status, verifier) != (_REPLY, _MSG_ACCEPTED, 0):
            raise RpcTransportError(f"reply to CONF_RDMA: {stream.hex()}; allowed: an accepted one")
        if words.word() != _SUCCESS:
            return None
        reply = ConfigReply(*(words.word() for _ in range(3)))
    except Truncated as error:
        raise RpcTransportError(f"reply to CONF_RDMA: {error}") from error
    return reply
