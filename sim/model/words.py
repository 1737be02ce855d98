"""Headers and Terminates in words, for people who read captures and error messages."""

from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.atomics import (
    CMP_SWAP,
    FETCH_ADD,
    SWAP,
    WORD,
    AtomicRequest,
    AtomicResponse,
)
from stagecoach.sim.model.ddp import Header, TaggedHeader
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, Terminate

MESSAGE_NAMES: dict[int, str] = {
    Opcode.RDMA_WRITE: "RDMA Write",
    Opcode.RDMA_READ_REQUEST: "RDMA Read Request",
    Opcode.RDMA_READ_RESPONSE: "RDMA Read Response",
    Opcode.SEND: "Send",
    Opcode.SEND_WITH_INVALIDATE: "Send with Invalidate",
    Opcode.SEND_WITH_SE: "Send with SE",
    Opcode.SEND_WITH_SE_AND_INVALIDATE: "Send with SE and Invalidate",
    Opcode.TERMINATE: "Terminate",
    Opcode.IMMEDIATE_DATA: "Immediate Data",
    Opcode.IMMEDIATE_DATA_WITH_SE: "Immediate Data with SE",
    Opcode.ATOMIC_REQUEST: "Atomic Request",
    Opcode.ATOMIC_RESPONSE: "Atomic Response",
}
_LAYERS = {0: "RDMAP", 1: "DDP", 2: "MPA"}
_ERROR_TYPES = {
    (0, 0): "local catastrophic error",
    (0, 1): "remote protection error",
    (0, 2): "remote operation error",
    (1, 0): "local catastrophic error",
    (1, 1): "tagged buffer error",
    (1, 2): "untagged buffer error",
}
_LAST_CODE_OF_RFC_5044 = 0x04


def message_name(opcode: int) -> str:
    """Name of the message with an opcode."""
    return MESSAGE_NAMES.get(opcode, f"opcode {opcode:#x}")


def error_source(error: ErrorCode) -> str:
    """The text that defines a code."""
    if error.layer == 0:
        return "RFC 5040, 4.8"
    if error.layer == 1:
        return "RFC 5041, 7.2"
    return "RFC 5044, 8" if error.code <= _LAST_CODE_OF_RFC_5044 else "RFC 6581, 8"


def error_words(error: ErrorCode) -> str:
    """A code with its layer, its type and its source: who found what."""
    layer = _LAYERS.get(error.layer, f"layer {error.layer}")
    etype = _ERROR_TYPES.get(error[:2])
    where = f"{layer} ({etype})" if etype else layer
    # MPA's codes mean the same whatever error type the sender gives them.
    name = ErrorCode(2, 0, error.code).name if error.layer == 2 else error.name
    numbers = f"{error.layer}/{error.etype}/{error.code:02X}"
    return f"{where}: {name}, {numbers} of {error_source(error)}"


def header_words(header: Header) -> str:
    """Where a DDP Segment wants to go."""
    last = "" if header.last else ", more to come"
    if isinstance(header, TaggedHeader):
        return f"STag {header.stag:#010x}, TO {header.tagged_offset:#x}{last}"
    return f"QN {header.qn}, MSN {header.msn}, MO {header.mo}{last}"


def read_words(request: ReadRequest) -> str:
    """What a Read Request asks for."""
    return (
        f"{request.size} bytes from STag {request.source_stag:#010x}, "
        f"TO {request.source_tagged_offset:#x} into STag {request.sink_stag:#010x}, "
        f"TO {request.sink_tagged_offset:#x}"
    )


def operation_words(request: AtomicRequest) -> str:
    """What an Atomic Request wants to do; masks only where they leave something out."""
    new = f"{request.data:#x}"
    if request.operation == FETCH_ADD:
        fields = f" in fields that end at the bits {request.mask:#x}" if request.mask else ""
        return f"FetchAdd of {new}{fields}"
    if request.operation == SWAP:
        return f"Swap with {new}"
    if request.operation == CMP_SWAP:
        compare_mask = f" in the bits {request.compare_mask:#x}" * (request.compare_mask != WORD)
        swap_mask = f" in the bits {request.mask:#x}" * (request.mask != WORD)
        return f"CmpSwap of {request.compare:#x}{compare_mask} with {new}{swap_mask}"
    return f"AOpCode {request.operation}"


def atomic_words(request: AtomicRequest) -> str:
    """What an Atomic Request asks for."""
    return (
        f"{operation_words(request)} at STag {request.stag:#010x}, "
        f"TO {request.tagged_offset:#x}, identifier {request.identifier:#x}"
    )


def atomic_response_words(response: AtomicResponse) -> str:
    """What an Atomic Response tells."""
    return f"original value {response.original:#x}, identifier {response.identifier:#x}"


def complaint(terminate: Terminate) -> str:
    """What the sender of a Terminate complains about.

    The headers that it sends back are those of the receiver of the Terminate.
    """
    text = error_words(terminate.error)
    if terminate.ddp_header:
        header, _ = ddp.decode(terminate.ddp_header)
        opcode = rdmap.decode_control(header.rsvd_ulp).opcode
        text += f"; about a segment of {terminate.segment_length} bytes: "
        text += f"{message_name(opcode)}, {header_words(header)}"
    elif terminate.segment_length is not None:
        text += f"; about a segment of {terminate.segment_length} bytes"
    if terminate.rdmap_header:
        text += f", {read_words(ReadRequest.decode(terminate.rdmap_header))}"
    return text
