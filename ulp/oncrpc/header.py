"""Headers of RPC messages (RFC 5531, 9): what stands before arguments and results."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

from stagecoach.ulp.oncrpc.auth import NONE, OPAQUE_AUTH, OpaqueAuth
from stagecoach.ulp.oncrpc.errors import (
    AuthenticationFailed,
    AuthStatus,
    CallRefused,
    GarbageArguments,
    MisplacedItem,
    ProcedureUnavailable,
    ProgramMismatch,
    ProgramUnavailable,
    RpcVersionMismatch,
    SystemFailure,
    XdrError,
)
from stagecoach.ulp.oncrpc.xdr import Decoder, Encoder

RPC_VERSION = 2


class MessageType(IntEnum):
    """msg_type."""

    CALL = 0
    REPLY = 1


class ReplyStatus(IntEnum):
    """reply_stat."""

    MSG_ACCEPTED = 0
    MSG_DENIED = 1


class AcceptStatus(IntEnum):
    """accept_stat."""

    SUCCESS = 0
    PROG_UNAVAIL = 1
    PROG_MISMATCH = 2
    PROC_UNAVAIL = 3
    GARBAGE_ARGS = 4
    SYSTEM_ERR = 5


class RejectStatus(IntEnum):
    """reject_stat."""

    RPC_MISMATCH = 0
    AUTH_ERROR = 1


@dataclass(frozen=True)
class CallHeader:
    """A call without its arguments."""

    xid: int
    program: int
    version: int
    procedure: int
    credential: OpaqueAuth = NONE
    verifier: OpaqueAuth = NONE

    def pack(self, encoder: Encoder) -> None:
        """Everything up to the arguments."""
        for word in (self.xid, MessageType.CALL, RPC_VERSION):
            encoder.uint(word)
        for word in (self.program, self.version, self.procedure):
            encoder.uint(word)
        OPAQUE_AUTH.pack(encoder, self.credential)
        OPAQUE_AUTH.pack(encoder, self.verifier)


REPLY_OCTETS = 24 + OPAQUE_AUTH.octets
"""The most that stands before a result: six words, verifier, and its body."""


def unpack_call_type(decoder: Decoder) -> int:
    """The XID of a call. `XdrError` if this is none: then no answer is possible."""
    xid = decoder.uint()
    if (kind := decoder.uint()) != MessageType.CALL:
        raise XdrError(f"message type {kind}; allowed: {MessageType.CALL:d}, a call")
    return xid


def unpack_call(xid: int, decoder: Decoder) -> CallHeader:
    """What follows `unpack_call_type`, up to the arguments.

    Raises `RpcVersionMismatch`; `AuthenticationFailed` for a credential or verifier that does not
    end or is too long; `XdrError` if the call ends before.
    """
    if decoder.uint() != RPC_VERSION:
        raise RpcVersionMismatch(RPC_VERSION, RPC_VERSION)
    program, version, procedure = (decoder.uint() for _ in range(3))
    credential = _unpack_auth(decoder, AuthStatus.BADCRED)
    verifier = _unpack_auth(decoder, AuthStatus.BADVERF)
    return CallHeader(xid, program, version, procedure, credential, verifier)


def _unpack_auth(decoder: Decoder, failure: AuthStatus) -> OpaqueAuth:
    try:
        return OPAQUE_AUTH.unpack(decoder)
    except MisplacedItem:
        raise
    except XdrError as error:
        raise AuthenticationFailed(failure) from error


def pack_success(encoder: Encoder, xid: int) -> None:
    """Everything up to the result."""
    _pack_reply(encoder, xid, ReplyStatus.MSG_ACCEPTED, AcceptStatus.SUCCESS)


def _pack_reply(encoder: Encoder, xid: int, reply: ReplyStatus, *rest: int) -> None:
    for word in (xid, MessageType.REPLY, reply):
        encoder.uint(word)
    if reply == ReplyStatus.MSG_ACCEPTED:
        OPAQUE_AUTH.pack(encoder, NONE)
    for word in rest:
        encoder.uint(word)


_ACCEPTED: dict[type[CallRefused], AcceptStatus] = {
    ProgramUnavailable: AcceptStatus.PROG_UNAVAIL,
    ProgramMismatch: AcceptStatus.PROG_MISMATCH,
    ProcedureUnavailable: AcceptStatus.PROC_UNAVAIL,
    GarbageArguments: AcceptStatus.GARBAGE_ARGS,
    SystemFailure: AcceptStatus.SYSTEM_ERR,
}


def pack_refusal(encoder: Encoder, xid: int, why: CallRefused) -> None:
    """The whole reply to a call that was not executed; SYSTEM_ERR for a handler's own reason."""
    if isinstance(why, RpcVersionMismatch):
        rest = (RejectStatus.RPC_MISMATCH, why.low, why.high)
        _pack_reply(encoder, xid, ReplyStatus.MSG_DENIED, *rest)
    elif isinstance(why, AuthenticationFailed):
        _pack_reply(encoder, xid, ReplyStatus.MSG_DENIED, RejectStatus.AUTH_ERROR, why.status)
    else:
        status = next((_ACCEPTED[each] for each in _ACCEPTED if isinstance(why, each)), None)
        mismatch = (why.low, why.high) if isinstance(why, ProgramMismatch) else ()
        rest = (AcceptStatus.SYSTEM_ERR if status is None else status, *mismatch)
        _pack_reply(encoder, xid, ReplyStatus.MSG_ACCEPTED, *rest)


def unpack_reply(decoder: Decoder, call: CallHeader) -> None:
    """Everything up to the result of the call.

    Raises the subclass of `CallRefused` that the server answered, or `XdrError`.
    """
    if (xid := decoder.uint()) != call.xid:
        raise XdrError(f"XID {xid}; allowed: {call.xid}, that of the call")
    if (kind := decoder.uint()) != MessageType.REPLY:
        raise XdrError(f"message type {kind}; allowed: {MessageType.REPLY:d}, a reply")
    reply = decoder.uint()
    if reply == ReplyStatus.MSG_DENIED:
        _raise_rejection(decoder)
    if reply != ReplyStatus.MSG_ACCEPTED:
        raise XdrError(f"reply status {reply}; allowed: 0, 1")
    OPAQUE_AUTH.unpack(decoder)
    status = decoder.uint()
    if status != AcceptStatus.SUCCESS:
        _raise_refusal(status, decoder, call)


def _raise_rejection(decoder: Decoder) -> NoReturn:
    status = decoder.uint()
    if status == RejectStatus.RPC_MISMATCH:
        raise RpcVersionMismatch(decoder.uint(), decoder.uint())
    if status == RejectStatus.AUTH_ERROR:
        raise AuthenticationFailed(decoder.uint())
    raise XdrError(f"reject status {status}; allowed: 0, 1")


def _raise_refusal(status: int, decoder: Decoder, call: CallHeader) -> NoReturn:
    if status == AcceptStatus.PROG_UNAVAIL:
        raise ProgramUnavailable(call.program)
    if status == AcceptStatus.PROG_MISMATCH:
        raise ProgramMismatch(decoder.uint(), decoder.uint())
    if status == AcceptStatus.PROC_UNAVAIL:
        raise ProcedureUnavailable(call.procedure)
    if status == AcceptStatus.GARBAGE_ARGS:
        raise GarbageArguments
    if status == AcceptStatus.SYSTEM_ERR:
        raise SystemFailure
    raise XdrError(f"accept status {status}; allowed: 0 to 5")
