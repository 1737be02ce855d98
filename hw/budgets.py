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
class Budgets:
    """lut4, dp16kd, fmax_median_mhz: of the default device. ci_minutes: by step of `.ci/run`.

    lut4_tolerance, fmax_tolerance: the part by which a block may get larger or slower unseen.
    """

    lut4: int
    dp16kd: int
    fmax_median_mhz: float
    lut4_tolerance: float
    fmax_tolerance: float
    blocks: Mapping[str, Block]
    ci_minutes: Mapping[str, float]

    def device_excess(self, result: Mapping) -> list[str]:
        """One line for each goal that a result of `hw.timing` misses."""
        found = [
            f"{key.upper()} {result[key]}; at most {most}"
            for key, most in (("lut4", self.lut4), ("dp16kd", self.dp16kd))
            if result[key] > most
        ]
        median = result.get("fmax_median_mhz", self.fmax_median_mhz)
        if median < self.fmax_median_mhz:
            found.append(f"median {median:.2f} MHz; at least {self.fmax_median_mhz:.2f}")
        return found

    def area_excess(self, rows: Mapping[str, Mapping]) -> list[str]:
        """One line for each block of the device that takes more than is kept of it.

        A block that nothing is kept of is named when it is as large as those that are kept.
        """
        smallest = min(block.lut4 for block in self.blocks.values())
        found = []
        for name, row in rows.items():
            kept = self.blocks.get(name)
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
        found = []
        for name, row in rows.items():
            kept = self.blocks[name].fmax_mhz if name in self.blocks else None
            if kept is None:
                continue
            least = max(kept * (1 - self.fmax_tolerance), self.fmax_median_mhz)
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
        **found.pop("device"),
        lut4_tolerance=tolerance.pop("lut4"),
        fmax_tolerance=tolerance.pop("fmax_mhz"),
        blocks={name: Block(**row) for name, row in found.pop("blocks").items()},
        ci_minutes=found.pop("ci_minutes"),
        **tolerance,
        **found,
    )
