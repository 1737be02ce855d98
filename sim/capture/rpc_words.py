"""RPC-over-RDMA in words and as JSON."""

from collections.abc import Iterator
from typing import Any

from stagecoach.sim.capture.rpc_sends import SeenRpc
from stagecoach.sim.model import rpc
from stagecoach.sim.model.rpc import RpcMessage
from stagecoach.sim.model.rpcrdma import ERROR_NAMES, RpcRdmaHeader, Segment


def _chunk(segments: tuple[Segment, ...]) -> str:
    octets = sum(segment.length for segment in segments)
    many = f" in {len(segments)} segments" if len(segments) != 1 else ""
    return f"{octets} bytes{many}"


def words(seen: SeenRpc) -> Iterator[str]:
    """What is said of a Send."""
    header = seen.header
    if header is None:
        return
    yield f"{header.procedure.name} XID {header.xid:#010x} credits {header.credits}"
    if header.align is not None:
        yield f"align {header.align} threshold {header.threshold}"
    positions = dict.fromkeys(each.position for each in header.reads)
    for position in positions:
        chunk = tuple(each for each in header.reads if each.position == position)
        yield f"read chunk at {position} of {_chunk(chunk)}"
    for chunk in header.writes:
        yield f"write chunk of {_chunk(chunk)}"
    if header.reply is not None:
        yield f"reply chunk of {_chunk(header.reply)}"
    if header.error is not None:
        versions = "" if header.versions is None else " {} to {}".format(*header.versions)
        yield f"{ERROR_NAMES.get(header.error, f'error {header.error}')}{versions}"
    if seen.rpc is not None:
        yield _message(seen.rpc)


def _message(message: RpcMessage) -> str:
    name = "" if message.call is None else f"{message.call.name} "
    if message.kind == rpc.CALL:
        return f"{name}call"
    status = "" if message.status in (None, "SUCCESS") else f" {message.status}"
    return f"{name}reply{status}"


def as_json(seen: SeenRpc) -> dict[str, Any]:
    """The Send as numbers, strings, lists and objects."""
    header, message = seen.header, seen.rpc
    return {
        "header": None if header is None else _header(header),
        "rpc": None
        if message is None
        else {
            "kind": "call" if message.kind == rpc.CALL else "reply",
            "program": None if message.call is None else message.call.program,
            "version": None if message.call is None else message.call.version,
            "procedure": None if message.call is None else message.call.procedure,
            "name": None if message.call is None else message.call.name,
            "operations": None
            if message.call is None or message.call.compound is None
            else list(message.call.compound.names),
            "status": message.status,
        },
    }


def _header(header: RpcRdmaHeader) -> dict[str, Any]:
    return {
        "xid": header.xid,
        "version": header.version,
        "credits": header.credits,
        "procedure": header.procedure.name,
        "reads": [_segment(each) for each in header.reads],
        "writes": [[_segment(each) for each in chunk] for chunk in header.writes],
        "reply": None if header.reply is None else [_segment(each) for each in header.reply],
        "align": header.align,
        "threshold": header.threshold,
        "error": header.error,
        "versions": header.versions,
    }


def _segment(segment: Segment) -> dict[str, int]:
    place = {} if segment.position is None else {"position": segment.position}
    return place | {
        "handle": segment.handle,
        "length": segment.length,
        "offset": segment.offset,
    }
