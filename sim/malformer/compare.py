"""Compares what a device did with a malformed stream with what the reference model predicts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stagecoach.host_driver import WC, Cause, WCFlags, WCOpcode, WCStatus
from stagecoach.host_driver.events import AsyncEvent
from stagecoach.host_driver.terminate import OctetOrder
from stagecoach.sim.malformer.case import Case
from stagecoach.sim.model import checks, ddp, mpa, rdmap
from stagecoach.sim.model.atomics import ATOMIC_OCTETS
from stagecoach.sim.model.checks import Check
from stagecoach.sim.model.ddp import UntaggedHeader
from stagecoach.sim.model.effects import AtomicAccepted, Failure, TaggedPlacement
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.predict import Prediction, predict
from stagecoach.sim.model.rdmap import Form, Opcode, Terminate
from stagecoach.sim.model.terminate import terminate_for, terminate_for_cut_read
from stagecoach.sim.model.work import Completion, Operation, Status

TERMINATE_HEADER = UntaggedHeader(
    rdmap.QN_TERMINATE, ddp.FIRST_MSN, rsvd_ulp=rdmap.control_octet(Opcode.TERMINATE)
).encode()

CAUSES: dict[Check, set[Cause]] = {
    checks.ULPDU_LENGTH: {Cause.CRC_ERROR},
    checks.CRC: {Cause.CRC_ERROR},
    checks.MARKER: {Cause.MARKER_MISMATCH},
    checks.ULPDU_HAS_HEADER: {Cause.ULPDU_TOO_SHORT},
    checks.TAGGED_VERSION: {Cause.TAGGED_DDP_VERSION},
    checks.UNTAGGED_VERSION: {Cause.UNTAGGED_DDP_VERSION},
    checks.RDMAP_VERSION: {Cause.RDMAP_VERSION},
    checks.OPCODE: {Cause.UNEXPECTED_OPCODE},
    checks.BUFFER_MODEL: {Cause.UNEXPECTED_OPCODE},
    checks.QUEUE: {Cause.UNTAGGED_QN},
    checks.QUEUE_OF_OPCODE: {Cause.UNEXPECTED_OPCODE},
    checks.MSN: {Cause.UNTAGGED_MSN},
    checks.RECEIVE_BUFFER: {Cause.UNTAGGED_NO_BUFFER},
    checks.READ_REQUEST_BUFFER: {Cause.TOO_MANY_READ_REQUESTS},
    checks.MO: {Cause.UNTAGGED_MO},
    checks.MO_NEXT: {Cause.UNTAGGED_MO},
    checks.ONE_SEGMENT: {
        Cause.READ_REQUEST_TOO_SHORT,
        Cause.IMMEDIATE_TOO_SHORT,
        Cause.ATOMIC_REQUEST_TOO_SHORT,
        Cause.ATOMIC_RESPONSE_TOO_SHORT,
        Cause.TERMINATE_MALFORMED,
    },
    checks.MESSAGE_LENGTH: {
        Cause.UNTAGGED_TOO_LONG,
        Cause.READ_REQUEST_TOO_LONG,
        Cause.ATOMIC_REQUEST_TOO_LONG,
        Cause.ATOMIC_RESPONSE_TOO_LONG,
    },
    checks.SEND_OPCODE: {Cause.UNEXPECTED_OPCODE},
    checks.INVALIDATE_VALID: {Cause.INVALIDATE_REFUSED},
    checks.INVALIDATE_ASSOCIATED: {Cause.INVALIDATE_NOT_ASSOCIATED},
    checks.INVALIDATE_UNSHARED: {Cause.INVALIDATE_REFUSED},
    checks.IMMEDIATE_WHOLE: {Cause.IMMEDIATE_TOO_SHORT},
    checks.READ_REQUEST_WHOLE: {Cause.READ_REQUEST_TOO_SHORT},
    checks.SOURCE.valid: {Cause.READ_STAG_INVALID},
    checks.SOURCE.associated: {Cause.READ_STAG_NOT_ASSOCIATED},
    checks.SOURCE.rights: {Cause.READ_NOT_PERMITTED},
    checks.SOURCE.wrap: {Cause.READ_TO_WRAP},
    checks.SOURCE.bounds: {Cause.READ_BOUNDS},
    checks.TERMINATE_WHOLE: {Cause.TERMINATE_MALFORMED},
    checks.ATOMIC_REQUEST_WHOLE: {Cause.ATOMIC_REQUEST_TOO_SHORT},
    checks.ATOMIC_OPERATION: {Cause.ATOMIC_OPERATION_UNSUPPORTED},
    checks.ATOMIC_TARGET.valid: {Cause.ATOMIC_STAG_INVALID},
    checks.ATOMIC_TARGET.associated: {Cause.ATOMIC_STAG_NOT_ASSOCIATED},
    checks.ATOMIC_TARGET.rights: {Cause.ATOMIC_NOT_PERMITTED},
    checks.ATOMIC_TARGET.wrap: {Cause.ATOMIC_TO_WRAP},
    checks.ATOMIC_TARGET.bounds: {Cause.ATOMIC_BOUNDS},
    checks.ATOMIC_ALIGNMENT: {Cause.ATOMIC_MISALIGNED},
    checks.ATOMIC_OUTSTANDING: {Cause.UNSOLICITED_ATOMIC_RESPONSE},
    checks.ATOMIC_RESPONSE_WHOLE: {Cause.ATOMIC_RESPONSE_TOO_SHORT},
    checks.ATOMIC_IDENTIFIER: {Cause.ATOMIC_RESPONSE_IDENTIFIER},
    checks.TARGET.valid: {Cause.TAGGED_STAG_INVALID},
    checks.TARGET.associated: {Cause.TAGGED_STAG_NOT_ASSOCIATED},
    checks.TARGET.rights: {Cause.WRITE_NOT_PERMITTED},
    checks.TARGET.wrap: {Cause.TAGGED_TO_WRAP},
    checks.TARGET.bounds: {Cause.TAGGED_BOUNDS},
    checks.READ_OUTSTANDING: {Cause.UNSOLICITED_READ_RESPONSE},
    checks.RESPONSE_STAG: {Cause.READ_RESPONSE_STAG},
    checks.RESPONSE_OFFSET: {Cause.READ_RESPONSE_RANGE},
    checks.RESPONSE_NEXT: {Cause.READ_RESPONSE_RANGE},
    checks.RESPONSE_LENGTH: {Cause.READ_RESPONSE_RANGE},
}
"""How the driver tells that a check failed."""


def causes_of(failure: Failure) -> set[Cause]:
    """What the driver may name for a failure."""
    return set[Cause]().union(
        *(c for k, c in CAUSES.items() if (k.error, k.source) == (failure.error, failure.source))
    )


@dataclass(frozen=True)
class Observed:
    """What a device did.

    Attributes
    ----------
    event: why the QP stopped. requests: the Read Requests that it sent at the start. ulpdus: what
    it sent then. ended: it has closed its half. memory: of
    every region. receives: the content of each receive. beside: what is around these is as it was.
    completions: of both queues, each in its order. late: it was not done in time.
    """

    event: AsyncEvent | None
    ulpdus: list[bytes]
    ended: bool
    memory: dict[str, bytes]
    receives: list[bytes]
    beside: bool
    completions: list[WC]
    late: bool = False
    requests: tuple[bytes, ...] = ()


def differences(case: Case, observed: Observed) -> list[str]:
    """What is not as predicted, in words; empty if all is."""
    if observed.late:
        return [f"it does not end; event {observed.event}, {len(observed.ulpdus)} ULPDUs came"]
    prompt = case.prediction
    found = list(_differences(case, prompt, observed))
    if found and _ends_before_an_fpdu(case):
        # It may wait for the rest of the smallest FPDU before it looks at ULPDU_Length.
        without = case.octets[: prompt.accepted]
        prompt = predict(case.setting.state(case.layout), without)
        found = list(_differences(case, prompt, observed))
    if found and prompt.late is not None and not list(_differences(case, prompt.late, observed)):
        return []
    if found and (prompt.late is not None or _may_leave_out_atomics(case, prompt)):
        return list(_differences_of_race(case, prompt, observed))
    return found


def _stops(case: Case, prediction: Prediction) -> bool:
    """Whether answers that are not sent when the stream ends may be left out."""
    stopped = prediction.error is not None or prediction.terminate_received is not None
    return stopped or case.setting.half_close


def _may_leave_out_atomics(case: Case, prediction: Prediction) -> bool:
    """Whether Atomic Operations may be left out with their answers."""
    accepted = any(isinstance(effect, AtomicAccepted) for effect in prediction.effects)
    return accepted and _stops(case, prediction)


def _ends_before_an_fpdu(case: Case) -> bool:
    """Whether the error is a ULPDU_Length, and the stream ends before the smallest FPDU does."""
    failure, rest = case.prediction.failure, len(case.octets) - case.prediction.accepted
    check = checks.ULPDU_LENGTH
    return (
        failure is not None
        and (failure.error, failure.source) == (check.error, check.source)
        and rest
        < mpa.fpdu_length(0, markers=case.setting.markers_in, position=case.prediction.accepted)
    )


def _differences(case: Case, prediction: Prediction, observed: Observed) -> Iterator[str]:
    yield from _event_differences(case, prediction, observed)
    yield from _sent_differences(case, prediction, observed)
    for name in case.setting.names(case.layout):
        expected = prediction.memory[case.layout[name].stag]
        yield from _octet_difference(f"region {name!r}", expected, observed.memory[name])
    for number, expected in enumerate(prediction.receives):
        yield from _octet_difference(f"receive {number}", expected, observed.receives[number])
    if not observed.beside:
        yield "octets beside the receives have changed"
    yield from _completion_differences(case, prediction, observed)


def _octet_difference(what: str, expected: bytes, found: bytes) -> Iterator[str]:
    if expected != found:
        at = next(
            n for n, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]
        )
        yield (
            f"{what} differs from octet {at} on: {found[at : at + 8].hex()}; "
            f"predicted {expected[at : at + 8].hex()}"
        )


def _event_differences(case: Case, prediction: Prediction, observed: Observed) -> Iterator[str]:
    event = observed.event
    if event is None:
        yield "no event"
        return
    failure = prediction.failure
    if failure is not None:
        causes = causes_of(failure)
    elif prediction.terminate_received is not None:
        causes = {Cause.TERMINATE_RECEIVED}
    elif len(case.octets) > prediction.accepted:
        causes = {Cause.LLP_CLOSED_INSIDE_FPDU}
    else:
        causes = {Cause.LLP_CLOSED}
    if event.cause not in causes:
        names = " or ".join(cause.name for cause in causes)
        yield f"cause {event.cause.name}; predicted {names} ({failure})"
        return
    sent = prediction.terminate
    if sent is not None and sent.ddp_header:
        # The event has room for the longer header.
        header = event.header[: len(sent.ddp_header)]
        if (event.ulpdu_length, header) != (sent.segment_length, sent.ddp_header):
            yield f"event about {event.ulpdu_length} octets, {header.hex()}; predicted {sent}"
    if prediction.terminate_received is not None:
        yield from _reading_differences(prediction.terminate_received, event)


def _reading_differences(received: Terminate, event: AsyncEvent) -> Iterator[str]:
    """Of a Terminate that came."""
    told = event.terminate
    if told is None:
        yield f"the event does not tell of {received}"
        return
    form = Form.RFC if told.order is OctetOrder.RFC else Form.SIW
    error = ErrorCode(*told.code)
    if (form, error) != (received.form, received.error):
        yield f"the event tells of {form} {error}; predicted {received.form} {received.error}"


def _sent_differences(case: Case, prediction: Prediction, observed: Observed) -> Iterator[str]:
    if not observed.ended:
        yield "the device does not close its half"
    answers, terminate = list(prediction.ulpdus), b""
    if prediction.terminate is not None:
        terminate = TERMINATE_HEADER + prediction.terminate.encode()
        answers = answers[:-1]
    found = list(observed.ulpdus)
    if terminate:
        if not found or found[-1] != terminate:
            last = found[-1].hex() if found else "nothing"
            yield f"the last ULPDU is {last}; predicted {terminate.hex()}"
        found = found[:-1]
    if found != (answers[: len(found)] if _stops(case, prediction) else answers):
        pairs = zip(found, answers, strict=False)
        at = next((n for n, (one, other) in enumerate(pairs) if one != other), len(answers))
        yield (
            f"{len(found)} answers; predicted {len(answers)}; ULPDU {at} is "
            f"{b''.join(found[at : at + 1]).hex()}; "
            f"predicted {b''.join(answers[at : at + 1]).hex()}"
        )


_RECEIVES = (WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM)


def _expected_completion(completion: Completion) -> tuple[object, ...]:
    if completion.operation is not Operation.RECEIVE:
        if completion.status is Status.FLUSHED:
            return WCOpcode.RDMA_READ, completion.work_id, WCStatus.WR_FLUSH_ERR
        return WCOpcode.RDMA_READ, completion.work_id, WCStatus.SUCCESS
    if completion.status is Status.FLUSHED:
        return WCOpcode.RECV, completion.work_id, WCStatus.WR_FLUSH_ERR
    flags = WCFlags.SOLICITED if completion.solicited else WCFlags(0)
    stag = completion.invalidated_stag
    if stag is not None:
        flags |= WCFlags.WITH_INV
    opcode, length, immediate = WCOpcode.RECV, completion.length, completion.immediate
    if immediate is not None:
        opcode, length = WCOpcode.RECV_RDMA_WITH_IMM, len(immediate)
        flags |= WCFlags.WITH_IMM
    return opcode, completion.work_id, WCStatus.SUCCESS, length, flags, stag, immediate


_AT_FAULT = (
    WCStatus.LOC_LEN_ERR,
    WCStatus.REM_ACCESS_ERR,
    WCStatus.REM_INV_REQ_ERR,
    WCStatus.REM_OP_ERR,
)
"""Of the request that an error is of: the model flushes it as all others."""


def _found_completion(wc: WC) -> tuple[object, ...]:
    status = WCStatus.WR_FLUSH_ERR if wc.status in _AT_FAULT else wc.status
    known = (wc.opcode, wc.wr_id, status)
    if wc.opcode not in _RECEIVES or wc.status != WCStatus.SUCCESS:
        return known
    stag = wc.invalidated_rkey if wc.wc_flags & WCFlags.WITH_INV else None
    immediate = wc.imm_data if wc.wc_flags & WCFlags.WITH_IMM else None
    return (*known, wc.byte_len, wc.wc_flags, stag, immediate)


def _completion_differences(
    case: Case, prediction: Prediction, observed: Observed
) -> Iterator[str]:
    posted = {False: len(case.setting.reads), True: len(case.setting.receives)}
    for receive in (False, True):
        expected = [
            _expected_completion(completion)
            for completion in prediction.completions
            if (completion.operation is Operation.RECEIVE) == receive
        ]
        found = [
            _found_completion(wc)
            for wc in observed.completions
            if (wc.opcode in _RECEIVES) == receive
        ]
        # At the end of the connection everything that is left is flushed.
        opcode = WCOpcode.RECV if receive else WCOpcode.RDMA_READ
        for number in range(len(expected), posted[receive]):
            expected.append((opcode, number, WCStatus.WR_FLUSH_ERR))
        if found != expected:
            yield f"completions {found}; predicted {expected}"


_LONGEST_READ = 1 << 14
"""Bytes; more than any region has."""

# Where the RFCs leave open when Read Requests are answered


def _differences_of_race(case: Case, prediction: Prediction, observed: Observed) -> Iterator[str]:
    """What no order of answering can explain: a wrong Terminate, bytes that nobody sent.

    What Atomic Operations leave in their targets is not looked at.
    """
    event = observed.event
    if event is None:
        yield "no event"
        return
    allowed = {b""} | {
        TERMINATE_HEADER + terminate.encode() for terminate in possible_terminates(case)
    }
    last = observed.ulpdus[-1] if observed.ulpdus else b""
    terminate = last if last.startswith(TERMINATE_HEADER) else b""
    if terminate not in allowed:
        yield f"Terminate {terminate.hex()} of {event.cause.name}; no order of answers gives it"
    for name in case.setting.names(case.layout):
        place = case.layout[name]
        before, found = case.layout.contents[name], observed.memory[name]
        written = [
            effect
            for effect in prediction.effects
            if isinstance(effect, TaggedPlacement) and effect.stag == place.stag
        ]
        changed = {
            effect.request.tagged_offset - place.base + n
            for effect in prediction.effects
            if isinstance(effect, AtomicAccepted) and effect.request.stag == place.stag
            for n in range(ATOMIC_OCTETS)
        }
        for at, (old, new) in enumerate(zip(before, found, strict=True)):
            if old == new or at in changed:
                continue
            offsets = [
                (at + place.base - effect.tagged_offset, effect.octets) for effect in written
            ]
            if new not in [octets[n] for n, octets in offsets if 0 <= n < len(octets)]:
                yield f"region {name!r} has {new:#04x} in octet {at}, which nobody wrote"
                return
    if not observed.beside:
        yield "octets beside the receives have changed"


def possible_terminates(case: Case) -> Iterator[Terminate]:
    """Those that some order of answers gives."""
    for prediction in (case.prediction, case.prediction.late):
        if prediction is not None and prediction.terminate is not None:
            yield prediction.terminate
    deframer = mpa.Deframer(case.setting.markers_in, case.setting.crc)
    mulpdu = case.setting.state(case.layout).mulpdu
    for ulpdu in deframer.feed(case.octets[: case.prediction.accepted]):
        if len(ulpdu) < ddp.UNTAGGED_HEADER_OCTETS:
            continue
        opcode = rdmap.decode_control(ulpdu[1]).opcode
        if opcode not in (Opcode.RDMA_READ_REQUEST, Opcode.ATOMIC_REQUEST):
            continue
        # What an answer cannot be made of is told without what the RFCs have receivers ignore.
        for sent_back in (ulpdu, _without_ignored_fields(ulpdu)):
            yield from _terminates_of_request(opcode, sent_back, mulpdu)


def _terminates_of_request(opcode: int, ulpdu: bytes, mulpdu: int) -> Iterator[Terminate]:
    # It may find no buffer, and an invalid STag may cut its answer anywhere.
    yield terminate_for(checks.READ_REQUEST_BUFFER.error, ulpdu)
    if opcode == Opcode.ATOMIC_REQUEST:
        for check in checks.ATOMIC_TARGET.order:
            yield terminate_for(check.error, ulpdu)
        return
    if len(ulpdu) != ddp.UNTAGGED_HEADER_OCTETS + rdmap.READ_REQUEST_OCTETS:
        return
    size = rdmap.ReadRequest.decode(ulpdu[ddp.UNTAGGED_HEADER_OCTETS :]).size
    for sent in range(0, min(size, _LONGEST_READ) + 1, mulpdu - ddp.TAGGED_HEADER_OCTETS):
        for check in checks.SOURCE.order:
            yield terminate_for_cut_read(check.error, ulpdu, sent)


def _without_ignored_fields(ulpdu: bytes) -> bytes:
    """A request without reserved bits and Invalidate STag (RFC 5041, 4.3; RFC 5040, 4.1)."""
    header, payload = ddp.decode(ulpdu)
    if not isinstance(header, UntaggedHeader):
        return ulpdu
    control = rdmap.decode_control(header.rsvd_ulp)
    plain = replace(
        header,
        reserved=0,
        rsvd_ulp=rdmap.control_octet(control.opcode, version=control.version),
        rsvd_ulp_word=0,
    )
    return plain.encode() + payload
