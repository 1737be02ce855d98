"""Synthesis and timing for an ECP5, out of context, of the whole device or of one block.

The device (`make timing`): Fmax for each seed and the median, area, and the critical path in
words, in `build/timing.json`; that of another `--config` under its name. `--area`: only what the
device takes, without placing it. `--block` and `--blocks`: each block alone between registers, with
the parameters that it has in the device, in `build/timing_blocks.json`.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amaranth.lib import wiring
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gateware.config import RnicConfig
from gateware.rnic import Rnic
from hw import blocks
from hw.boards.configs import SMALL
from hw.floorplan import floorplan
from hw.flow import (
    BUILD,
    DEFAULT_PART,
    PARTS,
    SPEED_GRADE,
    SYNTHESIS_OPTIONS,
    Part,
    ToolError,
    cell_counts,
    critical_path,
    flip_flops,
    packed,
    place,
    synthesize,
)
from hw.harness import Harness
from hw.rtlil import export

RESULT = BUILD / "timing.json"
BLOCKS_RESULT = BUILD / "timing_blocks.json"

CONFIGS = {"default": RnicConfig(), "small": SMALL}


def progress() -> Progress:
    """Shows what is being done, and for how long."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))


def measure(
    config: RnicConfig,
    part: Part,
    seeds: list[int],
    jobs: int,
    options: str,
    tell: Callable[[str], object],
) -> dict:
    """Synthesizes, places all seeds, and returns what `build/timing.json` holds of a device.

    Without seeds nothing is placed, and there is only the area. `tell` is told what is being done.
    """
    tell("exporting RTLIL")
    harness = Harness(Rnic(config))
    text = export(harness, "rnic")
    tell("synthesizing with yosys")
    folder = synthesize(text, options)
    tell("packing with nextpnr")
    used = packed(folder, part)
    placed = []
    if seeds:
        tell("finding sites for the block RAMs")
        netlist = floorplan(folder, part)
        tell(f"placing and routing seeds {seeds}")
        with ThreadPoolExecutor(jobs) as pool:
            placed = list(pool.map(lambda seed: place(netlist, seed, part), seeds))
    result: dict[str, object] = {
        "device": part.name,
        "speed_grade": SPEED_GRADE,
        "synthesis_options": options,
        "lut4": used["TRELLIS_COMB"],
        "lut4_cells_before_packing": cell_counts(folder).get("LUT4", 0),
        "ff": used["TRELLIS_FF"],
        "ff_of_the_harness": harness.flip_flops,
        "dp16kd": used["DP16KD"],
    }
    if placed:
        ranked = sorted(placed, key=lambda one: one.fmax_mhz)
        result |= {
            "fmax_mhz": {str(one.seed): round(one.fmax_mhz, 2) for one in placed},
            "fmax_median_mhz": round(statistics.median(one.fmax_mhz for one in placed), 2),
            "critical_path": critical_path(ranked[len(ranked) // 2]),
        }
    return result


def record(path: Path, config: str, result: dict) -> None:
    """Writes what was measured of a configuration beside what is known of the others.

    That of the default one stands on the first level, those of others under their names.
    """
    known = json.loads(path.read_text()) if path.exists() else {}
    if config == "default":
        known = result | {name: known[name] for name in CONFIGS if name in known}
    else:
        known[config] = result
    path.write_text(json.dumps(known, indent=2) + "\n")


def measure_block(block: wiring.Component, seeds: list[int], options: str) -> dict:
    """One row of `build/timing_blocks.json`, without the harness's flip-flops."""
    folder = synthesize(export(Harness(block), "rnic"), options)
    netlist = floorplan(folder)
    placed = sorted((place(netlist, seed) for seed in seeds), key=lambda one: one.fmax_mhz)
    median = placed[len(placed) // 2]
    return {
        "class": f"{type(block).__module__}:{type(block).__name__}",
        "fmax_mhz": round(median.fmax_mhz, 2),
        "lut4": median.used("TRELLIS_COMB"),
        "ff": flip_flops(folder, "device."),
        "dp16kd": median.used("DP16KD"),
        "critical_path": critical_path(median),
        "netlist": str(folder),
    }


def measure_blocks(
    config: RnicConfig, names: list[str], seeds: list[int], jobs: int, options: str
) -> dict[str, dict]:
    """Measures the named blocks, or all, and returns their rows, slowest first."""
    found = blocks.blocks(config) if not names else {n: blocks.find(config, n) for n in names}
    with progress() as shown:
        task = shown.add_task("blocks", total=len(found))

        def one(item: tuple[str, wiring.Component]) -> tuple[str, dict]:
            row = measure_block(item[1], seeds, options)
            shown.update(task, advance=1, description=f"{item[0]} placed")
            return item[0], row

        with ThreadPoolExecutor(jobs) as pool:
            rows = dict(pool.map(one, found.items()))
    return dict(sorted(rows.items(), key=lambda row: row[1]["fmax_mhz"]))


def _print_blocks(rows: dict[str, dict], console: Console) -> None:
    table = Table(title=f"{DEFAULT_PART.name}, speed {SPEED_GRADE}, every block alone")
    table.add_column("block")
    for name in ("MHz", "LUT4", "FF", "DP16KD"):
        table.add_column(name, justify="right")
    for name, row in rows.items():
        table.add_row(
            name, f"{row['fmax_mhz']:.1f}", *(str(row[key]) for key in ("lut4", "ff", "dp16kd"))
        )
    console.print(table)


def _print_device(result: dict, console: Console) -> None:
    table = Table(title=f"{result['device']}, speed {SPEED_GRADE}, out of context")
    table.add_column("what")
    table.add_column("value", justify="right")
    if "fmax_mhz" in result:
        for seed, fmax in result["fmax_mhz"].items():
            table.add_row(f"Fmax, seed {seed}", f"{fmax:.2f} MHz")
        table.add_row("Fmax, median", f"{result['fmax_median_mhz']:.2f} MHz")
    for key in ("lut4", "ff", "dp16kd"):
        table.add_row(key.upper(), str(result[key]))
    console.print(table)
    if "critical_path" in result:
        console.print(f"Critical path: {result['critical_path']}")


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.timing", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, help="place-and-route seeds (default 5 for the device, 1 for a block)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--abc9", action="store_true", help="map with abc9")
    parser.add_argument(
        "--block",
        action="append",
        metavar="NAME",
        help="place this block alone: its name in the device (framer, mpa_receiver.deframer) or "
        "its class (gateware.mpa.framer:Framer); may be repeated",
    )
    parser.add_argument("--config", choices=CONFIGS, default="default", help="sizes of the device")
    parser.add_argument("--device", choices=PARTS, default="85F", help="the ECP5 to place it in")
    parser.add_argument("--area", action="store_true", help="do not place the device")
    parser.add_argument("--blocks", action="store_true", help="place every block alone")
    arguments = parser.parse_args()
    alone = bool(arguments.blocks or arguments.block)
    count = arguments.seeds if arguments.seeds is not None else 1 if alone else 5
    if count < 1:
        parser.error(f"--seeds {count}; allowed: 1 or more")
    options = "" if arguments.abc9 else SYNTHESIS_OPTIONS
    seeds = list(range(1, count + 1))
    console = Console()
    BUILD.mkdir(exist_ok=True)
    try:
        if alone:
            names = [] if arguments.blocks else arguments.block
            rows = measure_blocks(RnicConfig(), names, seeds, arguments.jobs, options)
            known = json.loads(BLOCKS_RESULT.read_text()) if BLOCKS_RESULT.exists() else {}
            BLOCKS_RESULT.write_text(json.dumps(known | rows, indent=2) + "\n")
            _print_blocks(rows, console)
            for name, row in rows.items():
                console.print(f"{name}: {row['critical_path']}", soft_wrap=True)
            return 0
        part = PARTS[arguments.device]
        if arguments.area:
            seeds = []
        config = CONFIGS[arguments.config]
        with progress() as shown:
            task = shown.add_task("", total=None)
            result = measure(
                config,
                part,
                seeds,
                arguments.jobs,
                options,
                lambda text: shown.update(task, description=text),
            )
    except (ToolError, blocks.NoSuchBlock) as error:
        print(f"timing: {error}", file=sys.stderr)
        return 1
    if not arguments.area:
        record(RESULT, arguments.config, result)
    _print_device(result, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
