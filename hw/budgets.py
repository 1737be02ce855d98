"""What the device and its blocks may take, from `budgets.toml`, and what goes beyond it."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("budgets.toml")


@dataclass(frozen=True)
class Block:
    """What a block takes: LUT4 without the ends of carry chains, block RAMs, MHz alone, if kept."""

    lut4: int
    dp16kd: int = 0
    fmax_mhz: float | None = None


@dataclass(frozen=True)
class Goals:
    """What a design may take, and its clock: the median of five seeds, and the slowest of them."""

    lut4: int
    dp16kd: int
    fmax_median_mhz: float | None = None
    fmax_least_mhz: float | None = None

    def excess(self, result: Mapping) -> list[str]:
        """One line for each goal that a result of `hw.timing` misses."""
        found = [
            f"{key.upper()} {result[key]}; at most {most}"
            for key, most in (("lut4", self.lut4), ("dp16kd", self.dp16kd))
            if result[key] > most
        ]
        median = result.get("fmax_median_mhz")
        if median is not None and self.fmax_median_mhz and median < self.fmax_median_mhz:
            found.append(f"median {median:.2f} MHz; at least {self.fmax_median_mhz:.2f}")
        if self.fmax_least_mhz:
            found += [
                f"seed {seed} {fmax:.2f} MHz; at least {self.fmax_least_mhz:.2f}"
                for seed, fmax in result.get("fmax_mhz", {}).items()
                if fmax < self.fmax_least_mhz
            ]
        return found


@dataclass(frozen=True)
class Budgets:
    """designs: goals of the default of each, by its name in `hw.timing`.

    blocks, engine_blocks: what those of the RNIC and of the engine take. ci_minutes: by step of
    `.ci/run`. lut4_tolerance, fmax_tolerance: the part by which a block may get larger or slower
    unseen.
    """

    designs: Mapping[str, Goals]
    lut4_tolerance: float
    fmax_tolerance: float
    blocks: Mapping[str, Block]
    engine_blocks: Mapping[str, Block]
    ci_minutes: Mapping[str, float]

    def excess(self, design: str, result: Mapping) -> list[str]:
        """One line for each goal of a design that a result misses, and for each large block."""
        of_blocks = {"rnic": self.blocks, "engine": self.engine_blocks}.get(design)
        found = self.designs[design].excess(result)
        return found + self.area_excess(result["blocks"], of_blocks) if of_blocks else found

    def area_excess(
        self, rows: Mapping[str, Mapping], blocks: Mapping[str, Block] | None = None
    ) -> list[str]:
        """One line for each block that takes more than is kept of it, in the RNIC if not said.

        A block that nothing is kept of is named when it is as large as those that are kept.
        """
        blocks = blocks or self.blocks
        smallest = min(block.lut4 for block in blocks.values())
        found = []
        for name, row in rows.items():
            kept = blocks.get(name)
            if kept is None:
                if row["lut4"] >= smallest:
                    found.append(f"{name}: {row['lut4']} LUT4; not in {FILE.name}")
                continue
            most = int(kept.lut4 * (1 + self.lut4_tolerance))
            if row["lut4"] > most:
                found.append(f"{name}: {row['lut4']} LUT4; at most {most} ({kept.lut4} before)")
            if row["dp16kd"] > kept.dp16kd:
                found.append(f"{name}: {row['dp16kd']} DP16KD; at most {kept.dp16kd}")
        return found

    def clock_excess(self, rows: Mapping[str, Mapping]) -> list[str]:
        """One line for each block that is slower, alone between registers, than it may be.

        It may be slower than what is kept of it by the tolerance, but not than the device is to be.
        """
        device = self.designs["rnic"].fmax_median_mhz or 0
        found = []
        for name, row in rows.items():
            kept = self.blocks[name].fmax_mhz if name in self.blocks else None
            if kept is None:
                continue
            least = max(kept * (1 - self.fmax_tolerance), device)
            if row["fmax_mhz"] < least:
                found.append(
                    f"{name}: {row['fmax_mhz']:.2f} MHz alone; at least {least:.2f} "
                    f"({kept:.2f} before)"
                )
        return found


def read(file: Path = FILE) -> Budgets:
    """The budgets of a file. Raises `KeyError` or `TypeError` where one is missing or unknown."""
    found = tomllib.loads(file.read_text())
    tolerance = found.pop("tolerance")
    return Budgets(
        designs={name: Goals(**goals) for name, goals in found.pop("designs").items()},
        lut4_tolerance=tolerance.pop("lut4"),
        fmax_tolerance=tolerance.pop("fmax_mhz"),
        **{
            blocks: {name: Block(**row) for name, row in found.pop(blocks).items()}
            for blocks in ("blocks", "engine_blocks")
        },
        ci_minutes=found.pop("ci_minutes"),
        **tolerance,
        **found,
    )
