"""The rows of the list of errors (tables.md 6.3) that traffic can reach, and which one a case is.

Left out is what needs Atomic Requests of the device, and what no peer can cause.
"""

from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.malformer.case import Case
from stagecoach.sim.malformer.compare import Observed
from stagecoach.sim.model import checks, rdmap
from stagecoach.sim.model.checks import Check
from stagecoach.sim.model.effects import Failure
from stagecoach.sim.model.predict import Prediction
from stagecoach.sim.model.rdmap import Opcode

NO_ERROR = "no error"
TERMINATE_RECEIVED = "Terminate"
MALFORMED_TERMINATE = "malformed Terminate"
TOO_MANY_READS = "more Read Requests than the IRD"
_READ_TOO_LONG = "Read Request longer than 28 octets"
_IMMEDIATE_TOO_LONG = "Immediate Data longer than 8 octets"
_ATOMIC_TOO_LONG = "Atomic Request longer than 52 octets"

ROWS: dict[str, tuple[Check, ...]] = {
    "CRC mismatch": (checks.CRC, checks.ULPDU_LENGTH),
    "Marker mismatch": (checks.MARKER,),
    "DV wrong, tagged": (checks.TAGGED_VERSION,),
    "DV wrong, untagged": (checks.UNTAGGED_VERSION,),
    "RV wrong": (checks.RDMAP_VERSION,),
    "opcode reserved or not supported": (checks.OPCODE,),
    "T or QN does not fit the opcode": (checks.BUFFER_MODEL, checks.QUEUE_OF_OPCODE),
    "opcode changes inside of a Send": (checks.SEND_OPCODE,),
    "QN unknown": (checks.QUEUE,),
    "no receive buffer": (checks.RECEIVE_BUFFER,),
    "MSN not expected": (checks.MSN,),
    "MO not expected": (checks.MO, checks.MO_NEXT),
    "Send too long for its buffer": (checks.MESSAGE_LENGTH,),
    "Write: STag invalid": (checks.TARGET.valid,),
    "Write: STag of another PD or stream": (checks.TARGET.associated,),
    "Write: no right": (checks.TARGET.rights,),
    "Write: out of range": (checks.TARGET.bounds,),
    "Write: TO wraps": (checks.TARGET.wrap,),
    "Read Request: STag invalid": (checks.SOURCE.valid,),
    "Read Request: STag of another PD or stream": (checks.SOURCE.associated,),
    "Read Request: no right": (checks.SOURCE.rights,),
    "Read Request: out of range": (checks.SOURCE.bounds,),
    "Read Request: TO wraps": (checks.SOURCE.wrap,),
    TOO_MANY_READS: (checks.READ_REQUEST_BUFFER,),
    "Read Response: none outstanding": (checks.READ_OUTSTANDING,),
    "Read Response: another STag": (checks.RESPONSE_STAG,),
    "Read Response: another TO or length": (
        *(checks.RESPONSE_OFFSET, checks.RESPONSE_NEXT, checks.RESPONSE_LENGTH),
    ),
    "Send with Invalidate: STag of another PD or stream": (checks.INVALIDATE_ASSOCIATED,),
    "Send with Invalidate: STag shared": (checks.INVALIDATE_UNSHARED,),
    "Send with Invalidate: STag unknown": (checks.INVALIDATE_VALID,),
    _READ_TOO_LONG: (),
    "Read Request shorter than 28 octets": (checks.READ_REQUEST_WHOLE,),
    _IMMEDIATE_TOO_LONG: (),
    "Immediate Data shorter than 8 octets": (checks.IMMEDIATE_WHOLE,),
    "Atomic Request: STag invalid": (checks.ATOMIC_TARGET.valid,),
    "Atomic Request: STag of another PD or stream": (checks.ATOMIC_TARGET.associated,),
    "Atomic Request: no right": (checks.ATOMIC_TARGET.rights,),
    "Atomic Request: out of range": (checks.ATOMIC_TARGET.bounds,),
    "Atomic Request: TO wraps": (checks.ATOMIC_TARGET.wrap,),
    "Atomic Request: misaligned": (checks.ATOMIC_ALIGNMENT,),
    "Atomic Request: AOpCode not supported": (checks.ATOMIC_OPERATION,),
    _ATOMIC_TOO_LONG: (),
    "Atomic Request shorter than 52 octets": (checks.ATOMIC_REQUEST_WHOLE,),
    "Atomic Response: none outstanding": (checks.ATOMIC_OUTSTANDING,),
    "message of fixed length in several segments": (checks.ONE_SEGMENT,),
    "ULPDU shorter than its DDP header": (checks.ULPDU_HAS_HEADER,),
    MALFORMED_TERMINATE: (checks.TERMINATE_WHOLE,),
    TERMINATE_RECEIVED: (),
    NO_ERROR: (),
}
_TOO_LONG = {
    Opcode.RDMA_READ_REQUEST: _READ_TOO_LONG,
    Opcode.ATOMIC_REQUEST: _ATOMIC_TOO_LONG,
    **dict.fromkeys(rdmap.IMMEDIATE_OPCODES, _IMMEDIATE_TOO_LONG),
}
_SILENT_AT_START = {(c.error, c.source) for c in (checks.CRC, checks.ULPDU_LENGTH, checks.MARKER)}


def _row_of_failure(failure: Failure) -> str:
    key = (failure.error, failure.source)
    if failure.terminate is None:
        if key not in _SILENT_AT_START:
            return MALFORMED_TERMINATE
    elif failure.terminate.ddp_header:
        opcode = rdmap.decode_control(failure.terminate.ddp_header[1]).opcode
        long = (checks.MESSAGE_LENGTH.error, checks.MESSAGE_LENGTH.source)
        if key == long and opcode in _TOO_LONG:
            return _TOO_LONG[Opcode(opcode)]
    return next(row for row, found in ROWS.items() if key in [(c.error, c.source) for c in found])


def row_of(prediction: Prediction) -> str:
    """The row of a prediction."""
    if prediction.failure is not None:
        return _row_of_failure(prediction.failure)
    return TERMINATE_RECEIVED if prediction.terminate_received is not None else NO_ERROR


def observed_row(case: Case, observed: Observed) -> str:
    """The row of what a device did with a case: it may be too slow to answer all Read Requests."""
    event = observed.event
    if event is not None and event.cause == Cause.TOO_MANY_READ_REQUESTS:
        return TOO_MANY_READS
    return row_of(case.prediction)
