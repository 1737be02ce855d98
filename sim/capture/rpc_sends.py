"""Finds RPC-over-RDMA in the Sends of a connection."""

from dataclasses import dataclass, replace

from stagecoach.sim.capture.rpc_chunks import ChunkMessages, Start
from stagecoach.sim.model import rpc, rpcrdma
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.observation import Observation, Problem
from stagecoach.sim.model.rdmap import SEND_OPCODES
from stagecoach.sim.model.rpc import RpcCall, RpcMessage
from stagecoach.sim.model.rpcrdma import Procedure, RpcRdmaError, RpcRdmaHeader

NFS_RDMA_PORT = 20049
PRIVATE_DATA = bytes.fromhex("f6ab0e18")
"""The format identifier of RFC 8797."""


@dataclass
class SeenRpc:
    """A Send of RPC-over-RDMA.

    `rpc` is the RPC message. That of a chunk at position zero is put in when it has been read; if
    a long reply was not captured, it is what the XID tells.
    """

    header: RpcRdmaHeader | None
    rpc: RpcMessage | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Offer:
    """A reply chunk, and the direction of the call that offers it."""

    direction: Direction
    start: Start


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
        self._chunks = ChunkMessages()
        self._offers: dict[int, _Offer] = {}

    def observe(self, seen: Observation) -> SeenRpc | None:
        """What the Send is that ends with this FPDU, `None` if that is something else."""
        header = seen.header
        if seen.dropped:
            return None
        self._chunks.observe(seen)
        if seen.ready_to_receive or seen.opcode not in SEND_OPCODES:
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
        if found.procedure in (Procedure.RDMA_MSG, Procedure.RDMA_MSGP):
            return self._inline(found, seen.direction)
        return self._without_message(found, seen.direction) if self._expected else None

    def _wrong(self, detail: str) -> SeenRpc | None:
        if not self._expected:
            return None
        return SeenRpc(None, problems=(Problem(f"no header of RPC: {detail}", "RFC 8166, 4.5"),))

    def _inline(self, header: RpcRdmaHeader, direction: Direction) -> SeenRpc | None:
        message = rpc.parse(header.message)
        if not self._expected and (message is None or message.xid != header.xid):
            return None
        self._expected = True
        sent = SeenRpc(header)
        self._tell(sent, header.message)
        if message is not None and message.kind == rpc.CALL:
            self._offer(header, direction)
        else:
            self._taken(header.xid)
        return sent

    def _without_message(self, header: RpcRdmaHeader, direction: Direction) -> SeenRpc:
        sent = SeenRpc(header)
        if header.message:
            detail = f"{len(header.message)} bytes after {header.procedure.name}"
            sent.problems = (Problem(detail, "RFC 5666, 4.1"),)
        if header.procedure is Procedure.RDMA_ERROR:
            self._taken(header.xid)
        if header.procedure is not Procedure.RDMA_NOMSG:
            return sent
        offer = self._offers.get(header.xid)
        is_reply = offer is not None and offer.direction is not direction
        call = self._calls.get(header.xid)
        if call is not None and (is_reply or not header.reads):
            sent.rpc = RpcMessage(header.xid, rpc.REPLY, call)
        if whole := tuple(each for each in header.reads if not each.position):
            self._chunks.fetch(direction, whole, lambda octets: self._tell(sent, octets))
        elif offer is not None and is_reply:
            octets = offer.start.octets(sum(each.length for each in header.reply or ()))
            if octets:
                self._tell(sent, octets)
        if is_reply:
            self._taken(header.xid)
        else:
            self._offer(header, direction)
        return sent

    def _tell(self, sent: SeenRpc, octets: bytes) -> None:
        """Says what the RPC message of a Send is."""
        assert sent.header is not None
        message, xid = rpc.parse(octets), sent.header.xid
        if message is None or message.xid != xid:
            problem = Problem("no RPC message with the XID of the header", "RFC 8166, 4.2.1")
            sent.problems += (problem,)
        elif message.call is not None:
            self._calls[xid] = message.call
        else:
            message = replace(message, call=self._calls.get(xid))
            message = replace(message, status=rpc.reply_status(message, octets))
        sent.rpc = message

    def _offer(self, header: RpcRdmaHeader, direction: Direction) -> None:
        if header.reply:
            start = self._chunks.write(direction.opposite, header.reply)
            self._offers[header.xid] = _Offer(direction, start)

    def _taken(self, xid: int) -> None:
        offer = self._offers.pop(xid, None)
        if offer is not None:
            self._chunks.forget(offer.start)
