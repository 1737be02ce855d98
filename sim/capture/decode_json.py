"""What was decoded as JSON: one object per startup frame, FPDU or remark."""

from typing import Any

from stagecoach.sim.capture import rpc_words
from stagecoach.sim.capture.decode import Item, SeenFpdu, Startup
from stagecoach.sim.model import rdmap, words
from stagecoach.sim.model.atomics import AtomicRequest
from stagecoach.sim.model.ddp import Header, TaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.observation import Observation, Problem
from stagecoach.sim.model.rdmap import ReadRequest, Terminate
from stagecoach.sim.model.startup import StartupFrame


def as_json(item: Item) -> dict[str, Any]:
    """The item as an object of numbers, strings, lists and objects; bytes are in hex."""
    place = item.place
    common: dict[str, Any] = {
        "kind": "remark",
        "connection": place.connection,
        "direction": place.direction.value,
        "source": "{}:{}".format(*place.source),
        "destination": "{}:{}".format(*place.destination),
        "packet": place.packet,
        "time_ns": place.time_ns,
    }
    if isinstance(item, Startup):
        is_reply = item.frame is not None and item.frame.reply
        common["kind"] = "reply" if is_reply else "request"
        common["octets"] = len(item.octets)
        if item.frame is not None:
            common |= _startup(item.frame)
    elif isinstance(item, SeenFpdu):
        common["kind"] = "fpdu"
        common |= _fpdu(item.observation)
        common["rpcrdma"] = None if item.rpc is None else rpc_words.as_json(item.rpc)
    return common | {"problems": [_problem(problem) for problem in item.problems]}


def _code(error: ErrorCode) -> str:
    return f"{error.layer}/{error.etype}/{error.code:02X}"


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "detail": problem.detail,
        "source": problem.source,
        "error": None if problem.error is None else _code(problem.error),
        "error_name": None if problem.error is None else problem.error.name,
    }


def _startup(frame: StartupFrame) -> dict[str, Any]:
    enhanced = frame.enhanced
    return {
        "revision": frame.revision,
        "markers": frame.markers,
        "crc": frame.crc,
        "reject": frame.reject,
        "private_data": frame.private_data.hex(),
        "enhanced": None
        if enhanced is None
        else {
            "ird": enhanced.ird,
            "ord": enhanced.ord,
            "peer_to_peer": enhanced.peer_to_peer,
            "rtr_send": enhanced.rtr_send,
            "rtr_write": enhanced.rtr_write,
            "rtr_read": enhanced.rtr_read,
        },
    }


def _fpdu(seen: Observation) -> dict[str, Any]:
    fpdu = seen.fpdu
    return {
        "number": seen.number,
        "position": fpdu.position,
        "octets": len(fpdu.octets),
        "ulpdu_length": len(fpdu.ulpdu),
        "markers": [
            {"offset": m.offset, "fpduptr": m.fpduptr, "expected": m.distance} for m in fpdu.markers
        ],
        "pad": fpdu.pad.hex(),
        "crc": fpdu.crc.hex(),
        "crc_in_use": seen.crc_in_use,
        "crc_good": fpdu.crc == fpdu.computed_crc,
        "message": seen.message,
        "ddp": None if seen.header is None else _ddp(seen.header),
        "rdmap": None if seen.header is None else _rdmap(seen, seen.header),
        "payload_octets": len(seen.payload),
        "read_request": None if seen.read_request is None else _read(seen.read_request),
        "terminate": None if seen.terminate is None else _terminate(seen.terminate, seen.about),
        "atomic_request": None if seen.atomic_request is None else _atomic(seen.atomic_request),
        "atomic_response": None
        if seen.atomic_response is None
        else {
            "identifier": seen.atomic_response.identifier,
            "original": seen.atomic_response.original,
        },
        "immediate_data": None if seen.immediate is None else seen.immediate.hex(),
        "ready_to_receive": seen.ready_to_receive,
        "dropped": seen.dropped,
    }


def _ddp(header: Header) -> dict[str, Any]:
    place = (
        {"stag": header.stag, "tagged_offset": header.tagged_offset}
        if isinstance(header, TaggedHeader)
        else {"qn": header.qn, "msn": header.msn, "mo": header.mo}
    )
    common = {
        "tagged": isinstance(header, TaggedHeader),
        "last": header.last,
        "version": header.version,
        "reserved": header.reserved,
    }
    return common | place


def _rdmap(seen: Observation, header: Header) -> dict[str, Any]:
    control = rdmap.decode_control(header.rsvd_ulp)
    return {
        "version": control.version,
        "opcode": control.opcode,
        "reserved": control.reserved,
        "invalidate_stag": seen.invalidate_stag,
    }


def _read(request: ReadRequest) -> dict[str, Any]:
    return {
        "sink_stag": request.sink_stag,
        "sink_tagged_offset": request.sink_tagged_offset,
        "size": request.size,
        "source_stag": request.source_stag,
        "source_tagged_offset": request.source_tagged_offset,
    }


def _atomic(request: AtomicRequest) -> dict[str, Any]:
    return {
        "operation": request.operation,
        "identifier": request.identifier,
        "stag": request.stag,
        "tagged_offset": request.tagged_offset,
        "add_or_swap_data": request.data,
        "add_or_swap_mask": request.mask,
        "compare_data": request.compare,
        "compare_mask": request.compare_mask,
        "reserved": request.reserved,
        "words": words.operation_words(request),
    }


def _terminate(terminate: Terminate, about: int | None) -> dict[str, Any]:
    return {
        "error": _code(terminate.error),
        "error_name": terminate.error.name,
        "form": terminate.form.value,
        "segment_length": terminate.segment_length,
        "ddp_header": terminate.ddp_header.hex(),
        "rdmap_header": terminate.rdmap_header.hex(),
        "complaint": words.complaint(terminate),
        "about": about,
    }
