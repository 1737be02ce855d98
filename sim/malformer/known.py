"""Differences between device and reference model that are known, and wait for the device.

Each has a test in tests/malformer/test_known.py that fails as soon as it is gone.
"""

from collections.abc import Callable, Sequence

from sim.malformer.case import Case
from sim.model import checks, ddp
from sim.model.ddp import TaggedHeader
from sim.model.effects import ReadAccepted, TaggedPlacement
from sim.model.memory import TAGGED_OFFSET_SPAN
from sim.model.rdmap import ReadRequest


def _answered_terminate(case: Case, found: Sequence[str]) -> bool:
    """A Terminate with a header in error is answered with another one."""
    failure = case.prediction.failure
    header = (checks.BUFFER_MODEL, checks.QUEUE, checks.QUEUE_OF_OPCODE)
    return (
        failure is not None
        and failure.terminate is None
        and any((failure.error, failure.source) == (c.error, c.source) for c in header)
    )


def _range_to_the_end(case: Case, found: Sequence[str]) -> bool:
    """A range that ends at 2^64 is allowed."""
    failure = case.prediction.failure
    if failure is None or failure.terminate is None:
        return False
    terminate = failure.terminate
    if failure.error == checks.SOURCE.wrap.error:
        request = ReadRequest.decode(terminate.rdmap_header)
        return request.source_tagged_offset + request.size == TAGGED_OFFSET_SPAN
    if failure.error == checks.TARGET.wrap.error:
        header, _ = ddp.decode(terminate.ddp_header)
        assert isinstance(header, TaggedHeader) and terminate.segment_length is not None
        octets = terminate.segment_length - ddp.TAGGED_HEADER_OCTETS
        return header.tagged_offset + octets == TAGGED_OFFSET_SPAN
    return False


def _read_too_early(case: Case, found: Sequence[str]) -> bool:
    """A Read Request is answered with octets from before a Write that came before it."""
    if not all(" answers; " in difference for difference in found):
        return False
    written: list[TaggedPlacement] = []
    for effect in case.prediction.effects:
        if isinstance(effect, TaggedPlacement):
            written.append(effect)
        elif isinstance(effect, ReadAccepted) and effect.request.size:
            request = effect.request
            start, end = request.source_tagged_offset, request.source_tagged_offset + request.size
            for write in written:
                last = write.tagged_offset + len(write.octets)
                if write.stag == request.source_stag and write.tagged_offset < end and start < last:
                    return True
    return False


KNOWN: dict[str, Callable[[Case, Sequence[str]], bool]] = {
    "a Terminate with a header in error is answered": _answered_terminate,
    "a range may end at 2^64": _range_to_the_end,
    "a Read Request does not wait for earlier placements": _read_too_early,
}


def known_difference(case: Case, found: Sequence[str]) -> str | None:
    """The name of the known difference that explains what was found with a case."""
    return next((name for name, applies in KNOWN.items() if applies(case, found)), None)
