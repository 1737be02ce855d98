"""What the RDMAP receiver must do with a segment in error, whichever it is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cocotb

from stagecoach.gateware.layouts import SegmentKind
from stagecoach.hw.interface.causes import Cause
from tests.rdmap.receive.bench import Bench
from tests.rdmap.receive.segments import write

Wrong = Callable[[Bench, Any], bytes | SegmentKind]
"""Brings QP 1 to where its next segment is in error, and gives that."""


@dataclass(frozen=True)
class WrongSegments:
    """Segments that are in error in one way, each with its cause.

    `rows`: those of the requirement list that forbid them, with spaces between.
    """

    name: str
    rows: str
    segments: Sequence[tuple[Cause, Wrong]]

    @property
    def shows(self) -> list[str]:
        """What `tests.support.verdicts` asks for."""
        return self.rows.split()


def each_kind(kinds: Iterable[WrongSegments]) -> Any:
    """A cocotb test for each kind, as `wrong`."""
    return cocotb.parametrize(wrong=[cocotb.Param(kind, kind.name) for kind in kinds])


async def each_stops_its_qp_only(
    bench: Bench, wrong: Iterable[tuple[Cause, Wrong]], rfc7306: bool = True
) -> None:
    """Send each on a new connection of QP 1, with good segments of it and QP 2 after it.

    `rfc7306`: whether QP 1 takes the messages of that.
    """
    rng = bench.rng
    await bench.connect(2)
    for cause, make in wrong:
        await bench.connect(1, rfc7306=rfc7306)
        bench.model.causes.clear()
        result = make(bench, rng)
        if isinstance(result, SegmentKind):
            bench.send(1, rng.randbytes(20), result)
        else:
            bench.send(1, result)
        assert bench.model.causes == {cause}, cause.name
        # All of this is good, and only the other QP's is placed.
        for number in (1, 2):
            bench.send(number, write(rng, 100))
            bench.send(number, write(rng, 0))
        bench.send(1, b"", SegmentKind.CLOSED)
        bench.send(2, write(rng, 100))
        await bench.settle()
        bench.take_back(1)
