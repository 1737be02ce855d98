"""Finds RPC-over-RDMA in the Sends of a connection."""

from dataclasses import dataclass, replace

from sim.model import rpc, rpcrdma
from sim.model.ddp import UntaggedHeader
from sim.model.direction import Direction
from sim.model.observation import Observation, Problem
from sim.model.rdmap import SEND_OPCODES
from sim.model.rpc import RpcCall, RpcMessage
from sim.model.rpcrdma import Procedure, RpcRdmaError, RpcRdmaHeader

NFS_RDMA_PORT = 20049
PRIVATE_DATA = bytes.fromhex("f6ab0e18")
"""The format identifier of RFC 8797."""


@dataclass(frozen=True)
class SeenRpc:
    """A Send of RPC-over-RDMA; `rpc` is the RPC message, of a long reply what its XID tells."""

    header: RpcRdmaHeader | None
    rpc: RpcMessage | None = None
    problems: tuple[Problem, ...] = ()


class RpcSends:
    """The Sends of a connection.

    Parameters
    ----------
    expected: whether they are RPC-over-RDMA, by port or private data; else the first one that is
        says so, and none before that is in error.
    """

    def __init__(self, expected: bool):
        self._expected = expected
        self._parts: dict[Direction, bytes] = {}
        self._calls: dict[int, RpcCall] = {}

    def observe(self, seen: Observation) -> SeenRpc | None:
        """What the Send is that ends with this FPDU, `None` if that is something else."""
        header = seen.header
        if seen.dropped or seen.ready_to_receive or seen.opcode not in SEND_OPCODES:
            return None
        if not isinstance(header, UntaggedHeader):
            return None
        octets = self._parts.pop(seen.direction, b"") + seen.payload
        if not header.last:
            self._parts[seen.direction] = octets
            return None
        try:
            found = rpcrdma.parse(octets)
        except RpcRdmaError as error:
            return self._wrong(str(error))
        return self._message(found)

    def _wrong(self, detail: str) -> SeenRpc | None:
        if not self._expected:
            return None
        return SeenRpc(None, problems=(Problem(f"no header of RPC: {detail}", "RFC 8166, 4.5"),))

    def _message(self, header: RpcRdmaHeader) -> SeenRpc | None:
        if header.procedure not in (Procedure.RDMA_MSG, Procedure.RDMA_MSGP):
            if not self._expected:
                return None
            call = self._calls.get(header.xid)
            long_reply = call is not None and header.procedure is Procedure.RDMA_NOMSG
            message = RpcMessage(header.xid, rpc.REPLY, call) if long_reply else None
            problems: tuple[Problem, ...] = ()
            if header.message:
                detail = f"{len(header.message)} octets behind {header.procedure.name}"
                problems = (Problem(detail, "RFC 5666, 4.1"),)
            return SeenRpc(header, message, problems)
        message = rpc.parse(header.message)
        if message is None or message.xid != header.xid:
            if not self._expected:
                return None
            problem = Problem("no RPC message with the XID of the header", "RFC 8166, 4.2.1")
            return SeenRpc(header, message, (problem,))
        self._expected = True
        if message.call is not None:
            self._calls[message.xid] = message.call
        else:
            message = replace(message, call=self._calls.get(message.xid))
        return SeenRpc(header, message)
