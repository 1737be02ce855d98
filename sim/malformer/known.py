"""Differences between device and reference model that are known, and wait for the device.

Each has a test in tests/malformer/test_fixed_streams.py that fails as soon as it is gone.
"""

from collections.abc import Callable, Sequence

from sim.malformer.case import Case
from sim.model import checks, ddp
from sim.model.ddp import TaggedHeader
from sim.model.memory import TAGGED_OFFSET_SPAN
from sim.model.rdmap import ReadRequest


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


KNOWN: dict[str, Callable[[Case, Sequence[str]], bool]] = {
    "a range may end at 2^64": _range_to_the_end,
}


def known_difference(case: Case, found: Sequence[str]) -> str | None:
    """The name of the known difference that explains what was found with a case."""
    return next((name for name, applies in KNOWN.items() if applies(case, found)), None)
