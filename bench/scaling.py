"""What a device takes and how fast it is over its number of QPs (`make scaling`).

Writes `build/scaling.json`, and a plot and its data for docs/performance.md. All other sizes are
those of the default configuration. A number of QPs takes about as long as a seed of `make timing`.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.plots import AREA_UNITS, FIGURES, AreaRows, write_area_plot
from gateware.config import RnicConfig
from hw.flow import BUILD, DEFAULT_PART, SYNTHESIS_OPTIONS, ToolError
from hw.timing import measure, progress

QPS = (2, 8, 16, 32, 64, 128)
SEED = 1
RESULT = BUILD / "scaling.json"


def scale(counts: list[int], jobs: int, place: bool = True) -> AreaRows:
    """Measures a device for each number of QPs. Raises ValueError if one cannot be built."""
    configs = [replace(RnicConfig(), qps=count) for count in counts]
    with progress() as shown:

        def one(config: RnicConfig) -> dict[str, Any]:
            task = shown.add_task("", total=None)
            found = measure(
                config,
                DEFAULT_PART,
                [SEED] if place else [],
                1,
                SYNTHESIS_OPTIONS,
                lambda text: shown.update(task, description=f"{config.qps} QPs: {text}"),
            )
            row = {key: found[key] for key in ("lut4", "ff", "dp16kd")}
            if place:
                row["fmax_mhz"] = found["fmax_mhz"][str(SEED)]
            return row

        with ThreadPoolExecutor(jobs) as pool:
            return dict(zip(map(str, counts), pool.map(one, configs), strict=True))


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--qps", type=int, nargs="+", default=QPS, help="numbers of QPs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--area", action="store_true", help="do not place the devices")
    arguments = parser.parse_args()
    counts = sorted(set(arguments.qps))
    if len(counts) < 2:
        parser.error(f"--qps {counts[0]}; allowed: two or more numbers, for a curve")
    BUILD.mkdir(exist_ok=True)
    try:
        rows = scale(counts, arguments.jobs, not arguments.area)
    except (ToolError, ValueError) as error:
        print(f"scaling: {error}", file=sys.stderr)
        return 1
    RESULT.write_text(json.dumps(rows, indent=2) + "\n")
    write_area_plot(rows, FIGURES)
    table = Table(title=f"{DEFAULT_PART.name}, out of context, seed {SEED}")
    for name in ("QPs", *AREA_UNITS.values()):
        table.add_column(name, justify="right")
    for count, row in rows.items():
        table.add_row(count, *(str(row.get(key, "")) for key in AREA_UNITS))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
