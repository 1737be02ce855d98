"""ONC RPC (RFC 5531) over RDMA (RFC 8166) or TCP: `from stagecoach import rpc`.

* programs: `Program`, `Procedure`, `null_procedure`, and the XDR types of their arguments and
  results, `UINT` to `Record`;
* clients: `connect` over RDMA, `TcpClientTransport.connect` over TCP, then `RpcClient`, or
  `BlockingRpcClient` without an event loop;
* servers: `Service`, `RpcServer`, and a listener, `RdmaListener` or `TcpListener`;
* what a call raises: `RpcError` and its subclasses (docs/errors.md).

docs/rpcrdma.md shows them at work.
"""

from stagecoach.ulp.oncrpc.auth import AuthSys, this_user
from stagecoach.ulp.oncrpc.blocking import BlockingRpcClient
from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.errors import (
    AuthenticationFailed,
    AuthStatus,
    CallRefused,
    GarbageArguments,
    MessageTooLong,
    MisplacedItem,
    ProcedureUnavailable,
    ProgramMismatch,
    ProgramUnavailable,
    ReplyTimeout,
    ReplyTooLong,
    RpcConnectionError,
    RpcError,
    RpcTransportError,
    RpcVersionMismatch,
    SystemFailure,
    TooManyConnections,
    XdrError,
)
from stagecoach.ulp.oncrpc.limits import Admission, Limits
from stagecoach.ulp.oncrpc.message import Bulk, Message
from stagecoach.ulp.oncrpc.program import Procedure, Program, null_procedure
from stagecoach.ulp.oncrpc.records import Record
from stagecoach.ulp.oncrpc.server import Request, RpcServer, Service
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from stagecoach.ulp.oncrpc.tcp_server import TcpListener
from stagecoach.ulp.oncrpc.transport import ReplyRoom
from stagecoach.ulp.oncrpc.xdr_types import (
    BOOL,
    UHYPER,
    UINT,
    VOID,
    Array,
    BulkOpaque,
    Enumeration,
    FixedOpaque,
    LinkedList,
    Maybe,
    Opaque,
    Union,
)
from stagecoach.ulp.rpcrdma.client import connect
from stagecoach.ulp.rpcrdma.errors import HeaderError, RdmaErrorReceived, UnexpectedCompletion
from stagecoach.ulp.rpcrdma.listener import RdmaListener
from stagecoach.ulp.rpcrdma.settings import ClientSettings, Profile, ServerSettings

__all__ = [
    "BOOL",
    "UHYPER",
    "UINT",
    "VOID",
    "Admission",
    "Array",
    "AuthStatus",
    "AuthSys",
    "AuthenticationFailed",
    "BlockingRpcClient",
    "Bulk",
    "BulkOpaque",
    "CallRefused",
    "ClientSettings",
    "Enumeration",
    "FixedOpaque",
    "GarbageArguments",
    "HeaderError",
    "Limits",
    "LinkedList",
    "Maybe",
    "Message",
    "MessageTooLong",
    "MisplacedItem",
    "Opaque",
    "Procedure",
    "ProcedureUnavailable",
    "Profile",
    "Program",
    "ProgramMismatch",
    "ProgramUnavailable",
    "RdmaErrorReceived",
    "RdmaListener",
    "Record",
    "ReplyRoom",
    "ReplyTimeout",
    "ReplyTooLong",
    "Request",
    "RpcClient",
    "RpcConnectionError",
    "RpcError",
    "RpcServer",
    "RpcTransportError",
    "RpcVersionMismatch",
    "ServerSettings",
    "Service",
    "SystemFailure",
    "TcpClientTransport",
    "TcpListener",
    "TooManyConnections",
    "UnexpectedCompletion",
    "Union",
    "XdrError",
    "connect",
    "null_procedure",
    "this_user",
]
