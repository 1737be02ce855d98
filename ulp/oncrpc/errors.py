"""Why a remote procedure call fails."""

from enum import IntEnum

from stagecoach.host_driver import ResourceError, StagecoachError


class RpcError(StagecoachError):
    """Base of what a call raises."""


class RpcConnectionError(RpcError, ConnectionError):
    """The connection is gone: closed, reset, or stopped by an error.

    Whether the server executed a call that was outstanding is not known.
    """


class TooManyConnections(RpcError, ResourceError):
    """A server turned a client away: there are as many connections as it allows."""


class RpcTransportError(RpcError):
    """The transports do not agree: the peer refused the message before RPC saw it.

    Such as RDMA_ERROR of RPC-over-RDMA, or a chunk list that lies. Fails this call only.
    """


class ReplyTimeout(RpcTransportError, TimeoutError):
    """The peer did not answer in time. Its answer, if one comes, cannot reach any memory."""


class ReplyTooLong(RpcTransportError):
    """The reply, or one of its bulk items, does not fit into the `ReplyRoom` of the call."""


class MessageTooLong(RpcTransportError):
    """The message does not fit through the transport. Raised before anything is sent."""


class XdrError(RpcError):
    """Octets are not what their declaration in XDR says, or a value is none of it (RFC 4506)."""


class MisplacedItem(XdrError):
    """A chunk where the binding has no bulk item, or one beside its chunk (RFC 8166, 6.1)."""


class CallRefused(RpcError):
    """The server answered, and did not execute the call (RFC 5531, 9).

    A handler that raises one of the subclasses has the server answer so.
    """


class ProgramUnavailable(CallRefused):
    """PROG_UNAVAIL: the server does not have the program."""

    def __init__(self, program: int):
        super().__init__(f"program {program} is not there")


class _Mismatch(CallRefused):
    def __init__(self, what: str, low: int, high: int):
        self.low, self.high = low, high
        super().__init__(f"{what}; allowed: {low} to {high}")


class ProgramMismatch(_Mismatch):
    """PROG_MISMATCH: the server does not have this version; it has `low` to `high`."""

    def __init__(self, low: int, high: int):
        super().__init__("the server does not have this version of the program", low, high)


class ProcedureUnavailable(CallRefused):
    """PROC_UNAVAIL: the program does not have the procedure."""

    def __init__(self, procedure: int):
        super().__init__(f"the program has no procedure {procedure}")


class GarbageArguments(CallRefused):
    """GARBAGE_ARGS: the server cannot decode the arguments."""

    def __init__(self) -> None:
        super().__init__("the server cannot decode the arguments")


class SystemFailure(CallRefused):
    """SYSTEM_ERR: the server failed for a reason of its own."""

    def __init__(self) -> None:
        super().__init__("the server failed")


class RpcVersionMismatch(_Mismatch):
    """RPC_MISMATCH: the server does not have this version of RPC; it has `low` to `high`."""

    def __init__(self, low: int, high: int):
        super().__init__("the server does not have this version of RPC", low, high)


class AuthStatus(IntEnum):
    """auth_stat (RFC 5531, 9), without what is left of Kerberos and RPCSEC_GSS."""

    OK = 0
    BADCRED = 1
    REJECTEDCRED = 2
    BADVERF = 3
    REJECTEDVERF = 4
    TOOWEAK = 5
    INVALIDRESP = 6
    FAILED = 7


class AuthenticationFailed(CallRefused):
    """AUTH_ERROR: the server does not take the credential or the verifier.

    Attributes
    ----------
    status: an `AuthStatus`, or the number that the server sent if it is none.
    """

    def __init__(self, status: int):
        self.status = status
        known = status in AuthStatus.__members__.values()
        name = f"AUTH_{AuthStatus(status).name}" if known else f"status {status}"
        super().__init__(f"the server refused the credential or verifier: {name}")
