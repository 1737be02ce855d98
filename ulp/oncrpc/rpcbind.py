"""Where a program of a host listens: the port mapper, version 2 of rpcbind (RFC 1833, 3)."""

from dataclasses import dataclass

from stagecoach.ulp.oncrpc.client import RpcClient
from stagecoach.ulp.oncrpc.program import Procedure, Program, null_procedure
from stagecoach.ulp.oncrpc.records import Record, Uint
from stagecoach.ulp.oncrpc.tcp import TcpClientTransport
from stagecoach.ulp.oncrpc.xdr_types import UINT

RPCBIND_PORT = 111
RPCBIND_PROGRAM = 100000
PORTMAP_VERSION = 2
TCP_PROTOCOL = 6
"""IPPROTO_TCP."""

_LARGEST_PORT = 65535


@dataclass(frozen=True)
class Mapping:
    """mapping: a program, and where it listens. In a GETPORT call the port is ignored."""

    program: Uint
    version: Uint
    protocol: Uint
    port: Uint


NULL = null_procedure()
GETPORT = Procedure(3, "GETPORT", Record(Mapping), UINT)
"""The port of a program; 0 if it is not there."""

PORTMAP = Program("PORTMAP", RPCBIND_PROGRAM, PORTMAP_VERSION, [NULL, GETPORT])


async def tcp_port_of(
    host: str, program: int, version: int, rpcbind_port: int = RPCBIND_PORT
) -> int | None:
    """The TCP port of a program; `None` if rpcbind does not know it.

    Raises `OSError` if nobody answers there, and what `RpcClient.call` raises.
    """
    transport = await TcpClientTransport.connect(host, rpcbind_port)
    async with RpcClient(transport, None) as rpc:
        wanted = Mapping(program, version, TCP_PROTOCOL, 0)
        port = await rpc.call(PORTMAP, GETPORT, wanted)
    return port if 0 < port <= _LARGEST_PORT else None
