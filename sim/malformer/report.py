"""What a run of cases came to: how often each mutation and each error occurred, and failures."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Self

from rich.console import Group
from rich.table import Table

from stagecoach.sim.malformer.rows import ROWS


@dataclass
class Report:
    """Counts of cases; `mutated` are the mutated FPDUs that the device has looked at.

    Attributes
    ----------
    mutations, rows: how often each occurred. failures: texts of what was not as predicted.
    """

    cases: int = 0
    mutated: int = 0
    cycles: int = 0
    mutations: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Self) -> None:
        """Takes the counts of another run in."""
        self.cases += other.cases
        self.mutated += other.mutated
        self.cycles += other.cycles
        self.mutations += other.mutations
        self.rows += other.rows
        self.failures += other.failures

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return plain | {name: dict(plain[name]) for name in ("mutations", "rows")}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """The opposite."""
        counters = {name: Counter(values[name]) for name in ("mutations", "rows")}
        return cls(**(values | counters))

    def tables(self) -> Group:
        """The counts, to be printed."""
        errors = Table("error", "streams", title="Errors (tables of RFC 5040, 5041, 5044)")
        for name in [*ROWS, *sorted(set(self.rows) - set(ROWS))]:
            errors.add_row(name, f"{self.rows[name]:,}")
        mutations = Table("mutation", "FPDUs", title="Mutations")
        for name in sorted(self.mutations):
            mutations.add_row(name, f"{self.mutations[name]:,}")
        total = (
            f"{self.mutated:,} mutated FPDUs in {self.cases:,} streams, {self.cycles:,} cycles, "
            f"{len(self.failures)} failures"
        )
        return Group(mutations, errors, total)
