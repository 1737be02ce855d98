"""What a soak of the TCP engine came to."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Self

from rich.console import Group
from rich.table import Table


@dataclass
class Report:
    """Counts of one chunk, or of several.

    Attributes
    ----------
    chunks: pairs of NICs. cycles: of simulated time. octets: that were compared. connections: that
    were opened. segments: as `SegmentLog` counts them. wire: as `Line` does. fates: of the frames
    that came to the NICs, as `FrameFate` names them. driver: what the drivers' networks counted.
    failures: texts of what was not as it has to be.
    """

    chunks: int = 0
    cycles: int = 0
    octets: int = 0
    connections: int = 0
    segments: Counter[str] = field(default_factory=Counter)
    wire: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    driver: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Takes the counts of another run in."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def total(self) -> int:
        """Segments that the NICs sent."""
        return self.segments["segments"]

    def results(self, seed: int, seconds: float) -> dict[str, Any]:
        """As build/soak_tcp.json has it."""
        return {
            "seed": seed,
            "run_seconds": round(seconds, 1),
            "simulated_cycles": self.cycles,
            "chunks_total": self.chunks,
            "connections_total": self.connections,
            "compared_octets": self.octets,
            "segments_total": self.total,
            "sent_segments": _plain(self.segments),
            "wire_frames": _plain(self.wire),
            "received_frames_by_fate": _plain(self.fates),
            "driver_counts": _plain(self.driver),
            "failures_total": len(self.failures),
            "failures": self.failures,
        }

    def tables(self) -> Group:
        """The counts, to be printed."""
        made = []
        for title, counts in (
            ("Segments that the NICs sent", self.segments),
            ("Frames on the wires", self.wire),
            ("Frames that came to the NICs", self.fates),
            ("Drivers", self.driver),
        ):
            table = Table("what", "count", title=title)
            for name, count in _plain(counts).items():
                table.add_row(name, f"{count:,}")
            made.append(table)
        total = (
            f"{self.total:,} segments on {self.connections:,} connections, {self.octets:,} octets "
            f"compared, {self.cycles:,} cycles, {len(self.failures)} failures"
        )
        return Group(*made, total)


def _plain(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts)}
