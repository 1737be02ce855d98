"""What is wrong with a message of RPC-over-RDMA."""

from enum import IntEnum

from stagecoach.host_driver import WC, StagecoachError
from stagecoach.ulp.oncrpc.errors import RpcConnectionError, RpcTransportError


class ErrorCode(IntEnum):
    """rdma_err."""

    ERR_VERS = 1
    ERR_CHUNK = 2


class HeaderError(StagecoachError):
    """The bytes are no header, or its lists lie.

    Attributes
    ----------
    xid, version: of the message in error. answer: the code of the RDMA_ERROR that a responder
        answers with. All are `None` if the message is discarded in silence: too short to trust
        its XID (RFC 8166, 4.5), RDMA_DONE, or RDMA_ERROR.
    """

    def __init__(
        self,
        detail: str,
        xid: int | None = None,
        version: int | None = None,
        answer: ErrorCode | None = None,
    ):
        self.xid, self.version, self.answer = xid, version, answer
        super().__init__(detail)


class RdmaErrorReceived(RpcTransportError):
    """The peer answered a call with RDMA_ERROR: it is over, and would fail again.

    Attributes
    ----------
    code: why. low, high: with ERR_VERS the versions that the peer knows.
    """

    def __init__(self, code: ErrorCode, low: int = 0, high: int = 0):
        self.code, self.low, self.high = code, low, high
        versions = f", the peer knows versions {low} to {high}" if low or high else ""
        super().__init__(f"the peer answers {code.name}{versions}")


class UnexpectedCompletion(RpcConnectionError):
    """This end ended the connection at a completion that belongs to nothing that is outstanding.

    Such as of Immediate Data, which no peer of RPC-over-RDMA sends. Nothing of it was used.

    Attributes
    ----------
    completion: the completion.
    """

    def __init__(self, completion: WC):
        self.completion = completion
        super().__init__(
            f"the connection was ended at {completion.describe()}; allowed: Sends of the peer, and "
            "the completion of the oldest request that is outstanding"
        )
