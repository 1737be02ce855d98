"""What a device takes and how fast it is over its QPs and its data width (`make scaling`).

Writes `build/scaling.json`, and plots and the same data for docs/performance.md, whenever a device
is done; what is known of other devices stays. All other sizes are those of the default
configuration. A device takes about as long as a seed of `make timing`; one that is in both series
is measured once.
"""

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.plots import AREA, AREA_SIZES, AREA_UNITS, FIGURES, AreaSeries, write_area_plots
from stagecoach.gateware.config import DATA_WIDTHS, RnicConfig
from stagecoach.hw.cache import CacheError
from stagecoach.hw.files import BadResults, locked, read_results, write_results
from stagecoach.hw.nextpnr import DEFAULT_PART, ToolError
from stagecoach.hw.options import positive
from stagecoach.hw.synthesis import BUILD, SYNTHESIS_OPTIONS
from stagecoach.hw.timing import measure, progress

QPS = (2, 8, 32, 64, 128)
SEED = 1
DEVICE_UNITS = ("lut4", "ff", "dp16kd")
RESULT = BUILD / "scaling.json"


def scale(
    counts: list[int],
    widths: list[int],
    jobs: int,
    place: bool = True,
    done: Callable[[AreaSeries], object] = lambda rows: None,
) -> AreaSeries:
    """Measures a device for each number of QPs and each width; none of a series is no series.

    `done` is given the rows of each device when they are there, by the thread that measured it.
    Raises ValueError if one cannot be built.
    """
    series = {
        "by_qps": {str(count): replace(RnicConfig(), qps=count) for count in counts},
        "by_data_width_bits": {str(w): replace(RnicConfig(), data_width=w) for w in widths},
    }
    configs = list(dict.fromkeys(config for rows in series.values() for config in rows.values()))
    with progress() as shown:

        def one(config: RnicConfig) -> dict[str, Any]:
            task = shown.add_task("", total=None)
            found = measure(
                config,
                DEFAULT_PART,
                [SEED] if place else [],
                1,
                SYNTHESIS_OPTIONS,
                lambda text: shown.update(
                    task, description=f"{config.qps} QPs, {config.data_width} bits: {text}"
                ),
            )
            row = {key: found[key] for key in DEVICE_UNITS}
            if place:
                row["fmax_mhz"] = found["fmax_mhz"][str(SEED)]
            done(
                {
                    key: {value: row for value, each in rows.items() if each == config}
                    for key, rows in series.items()
                }
            )
            return row

        with ThreadPoolExecutor(jobs) as pool:
            found = dict(zip(configs, pool.map(one, configs), strict=True))
    return {
        key: {value: found[config] for value, config in rows.items()}
        for key, rows in series.items()
        if rows
    }


def merged(known: AreaSeries, found: AreaSeries) -> AreaSeries:
    """All rows that are known, by their numbers; what was found replaces row by row.

    Where only the area was found, the clock stays that of the same area.
    """
    result = {}
    for key in AREA_SIZES:
        rows = dict(known.get(key, {}))
        for value, row in found.get(key, {}).items():
            before = rows.get(value, {})
            same = all(before.get(unit) == row[unit] for unit in DEVICE_UNITS)
            rows[value] = before | row if same else row
        if rows:
            result[key] = {value: rows[value] for value in sorted(rows, key=int)}
    return result


def write(found: AreaSeries) -> None:
    """Adds rows to the results and to the page's data and plots. Raises `BadResults`."""
    with locked(RESULT):
        series = merged(read_results(AREA), found)
        write_results(RESULT, series)
        write_area_plots(series, FIGURES)


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--qps", type=int, nargs="*", default=QPS, help="numbers of QPs, or none")
    parser.add_argument(
        "--widths",
        type=int,
        nargs="*",
        default=DATA_WIDTHS,
        choices=DATA_WIDTHS,
        help="data widths in bits, or none",
    )
    parser.add_argument("--jobs", type=positive, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--area", action="store_true", help="do not place the devices")
    arguments = parser.parse_args()
    counts, widths = sorted(set(arguments.qps)), sorted(set(arguments.widths))
    for option, values in (("qps", counts), ("widths", widths)):
        if len(values) == 1:
            parser.error(f"--{option} {values[0]}; allowed: two or more numbers, for a curve")
    if not counts and not widths:
        parser.error("--qps and --widths are both empty; allowed: one of them")
    BUILD.mkdir(exist_ok=True)
    try:
        read_results(AREA)
        series = scale(counts, widths, arguments.jobs, not arguments.area, write)
    except (ToolError, CacheError, BadResults, ValueError) as error:
        print(f"scaling: {error}", file=sys.stderr)
        return 1
    for key, rows in series.items():
        table = Table(title=f"{DEFAULT_PART.name}, out of context, seed {SEED}")
        for name in (AREA_SIZES[key], *AREA_UNITS.values()):
            table.add_column(name, justify="right")
        for value, row in rows.items():
            table.add_row(value, *(str(row.get(unit, "")) for unit in AREA_UNITS))
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
