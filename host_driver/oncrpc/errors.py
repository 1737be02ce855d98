"""Why a remote procedure call fails."""

from host_driver.errors import StagecoachError


class RpcError(StagecoachError):
    """Base of what a call raises."""


class RpcConnectionError(RpcError, ConnectionError):
    """The connection is gone: closed, reset, or stopped by an error.

    Whether the server executed a call that was outstanding is not known.
    """


class RpcTransportError(RpcError):
    """The transports do not agree: the peer refused the message before RPC saw it.

    Such as RDMA_ERROR of RPC-over-RDMA, or a chunk list that lies. Fails this call only.
    """


class ReplyTooLong(RpcTransportError):
    """The reply, or one of its bulk items, does not fit into the `ReplyRoom` of the call."""


class MessageTooLong(RpcTransportError):
    """The message does not fit through the transport. Raised before anything is sent."""
