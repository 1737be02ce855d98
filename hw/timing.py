"""Synthesis and timing for an ECP5, out of context, of the whole device or of one block.

The device (`make timing`): Fmax for each seed and the median, area, and the critical path in
words, in `build/timing.json`; that of another `--config`, another `--device` or `--abc9` under a
name of its own. `--engine-dummy`: with something of the size of a TCP engine at the LLP port, also
under a name of its own. `--design`: the TCP engine alone, or the whole NIC, instead of the RNIC.
`--area`: only what the device and its blocks take, without placing it.
`--block` and `--blocks`: each block alone between registers, with the parameters that it has in
the device, in `build/timing_blocks.json`.

What the default of a design or one of its blocks takes beyond `budgets.toml`, or is slower, is
shown in a line of its own; the exit status is 1 then.
"""

import argparse
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

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.nic import RnicNic
from stagecoach.gateware.rnic import Rnic
from stagecoach.gateware.tcp.engine import TcpEngine
from stagecoach.hw import blocks, budgets
from stagecoach.hw.area import by_block, of_part
from stagecoach.hw.boards.configs import SMALL
from stagecoach.hw.cache import CacheError
from stagecoach.hw.engine_dummy import RnicBesideDummy, excess_of_dummy
from stagecoach.hw.files import BadResults, locked, read_results, write_results
from stagecoach.hw.flow import critical_path, flow_key, place, place_alone
from stagecoach.hw.harness import Harness
from stagecoach.hw.nextpnr import DEFAULT_PART, PARTS, SPEED_GRADE, Part, ToolError, packed
from stagecoach.hw.options import positive
from stagecoach.hw.placer.floorplan import floorplan
from stagecoach.hw.rtlil import export
from stagecoach.hw.synthesis import BUILD, SYNTHESIS_OPTIONS, cell_counts, flip_flops, synthesize

RESULT = BUILD / "timing.json"
BLOCKS_RESULT = BUILD / "timing_blocks.json"

SEEDS = 5
SEEDS_ALONE = 1
"""How many seeds are placed unless it is said. Of several the median counts."""

DEFAULT = "default"
"""The configuration, and the entry that stands on the first level of the results."""

CONFIGS = {DEFAULT: RnicConfig(), "small": SMALL}

RNIC = "rnic"
"""The design that is measured unless another one is asked for."""

DESIGNS: dict[str, Callable[[RnicConfig], wiring.Component]] = {
    RNIC: Rnic,
    "engine": TcpEngine,
    "nic": RnicNic,
}
"""What may be measured: the RNIC, the TCP engine alone, and both with an Ethernet port."""

_ENGINE = (
    *("receive", "receive.front", "receive.path", "receive.path.processor"),
    *("transmit", "transmit.processor", "transmit.processor.segment"),
)
OPENED = {
    RNIC: (),
    "engine": _ENGINE,
    "nic": ("engine", *(f"engine.{name}" for name in _ENGINE)),
}
"""Blocks of which the blocks within are shown, too."""

SAME_DEVICE = ("device", "speed_grade", "synthesis_options", "flow", "lut4", "ff", "dp16kd")
"""What two results have in common if their seeds are those of one netlist and one flow."""


def entry(config: str, part: Part, options: str, dummy: bool = False, design: str = RNIC) -> str:
    """The name under which `build/timing.json` holds a configuration, part and flow.

    `dummy`: beside the dummy of an engine. `design`: of `DESIGNS`.
    """
    names = [name for name, each in PARTS.items() if each == part != DEFAULT_PART]
    beside = ["engine_dummy"] if dummy else []
    other = [design] if design != RNIC else []
    return "_".join([config, *names, *_flow(options), *beside, *other])


def _flow(options: str) -> list[str]:
    return [] if options == SYNTHESIS_OPTIONS else ["abc9"]


ENTRIES = [
    entry(config, part, options, dummy, design)
    for config in CONFIGS
    for part in PARTS.values()
    for options in (SYNTHESIS_OPTIONS, "")
    for dummy, design in ((True, RNIC), *((False, design) for design in DESIGNS))
]


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
    dummy: bool = False,
    design: str = RNIC,
) -> dict:
    """Synthesizes, places all seeds, and returns what `build/timing.json` holds of a device.

    Without seeds nothing is placed, and there is only the area. `tell` is told what is being done.
    `dummy`: a dummy of an engine is at the LLP port. Raises `ToolError`, also if that is not as
    large as it should be. `design`: of `DESIGNS`.
    """
    tell("exporting RTLIL")
    harness = Harness(RnicBesideDummy(config) if dummy else DESIGNS[design](config))
    text = export(harness, "rnic")
    tell("synthesizing with yosys")
    folder = synthesize(text, options)
    if dummy:
        of_dummy = of_part(folder / "rnic.json", "device.dummy")
        if excess := excess_of_dummy(of_dummy):
            raise ToolError(f"{'; '.join(excess)}; see {folder}")
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
        "blocks": by_block(
            folder / "rnic.json", "device.rnic" if dummy else "device", OPENED[design]
        ),
    }
    if dummy:
        result["engine_dummy"] = of_dummy
    if placed:
        result["flow"] = flow_key(netlist, part)
        result |= _of_seeds(
            {str(one.seed): round(one.fmax_mhz, 2) for one in placed},
            {str(one.seed): critical_path(one) for one in placed},
        )
    return result


def _of_seeds(fmax: dict[str, float], paths: dict[str, str]) -> dict[str, object]:
    """Fmax of all seeds and its median, their critical paths and that of the median."""
    ranked = sorted(fmax, key=lambda seed: fmax[seed])
    return {
        "fmax_mhz": {seed: fmax[seed] for seed in sorted(fmax, key=int)},
        "fmax_median_mhz": round(statistics.median(fmax.values()), 2),
        "critical_path": paths[ranked[len(ranked) // 2]],
        "critical_paths": {seed: paths[seed] for seed in sorted(paths, key=int)},
    }


def _merged(known: dict, result: dict) -> dict:
    """A result with the seeds that only an earlier one of the same device has."""
    if "fmax_mhz" not in known or any(known.get(key) != result.get(key) for key in SAME_DEVICE):
        return result
    return result | _of_seeds(
        known["fmax_mhz"] | result["fmax_mhz"], known["critical_paths"] | result["critical_paths"]
    )


def record(path: Path, name: str, result: dict) -> None:
    """Writes what was measured beside what is known of others, under a name of `ENTRIES`.

    That of the default stands on the first level. Seeds of the same device that were measured
    before are kept; those of another device are not. Raises `BadResults`.
    """
    with locked(path):
        known = read_results(path)
        others = {other: known[other] for other in ENTRIES if other in known and other != name}
        if name == DEFAULT:
            known = {key: value for key, value in known.items() if key not in others}
            write_results(path, _merged(known, result) | others)
        else:
            write_results(path, known | {name: _merged(known.get(name, {}), result)})


def measure_block(block: wiring.Component, seeds: list[int], options: str) -> dict:
    """One row of `build/timing_blocks.json`, without the harness's flip-flops."""
    folder = synthesize(export(Harness(block), "rnic"), options)
    netlist = folder / "rnic.json"
    placed = sorted((place_alone(netlist, seed) for seed in seeds), key=lambda one: one.fmax_mhz)
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
        if "engine_dummy" in result:
            table.add_row("of them of the dummy", str(result["engine_dummy"][key]))
    console.print(table)
    if "critical_path" in result:
        console.print(f"Critical path: {result['critical_path']}")
    else:
        _print_area(result["blocks"], console)


def _print_area(rows: dict[str, dict[str, int]], console: Console) -> None:
    table = Table(title="Blocks, without the ends of carry chains")
    for column in ("block", "LUT4", "of them distributed RAM", "FF", "DP16KD"):
        table.add_column(column, justify="left" if column == "block" else "right")
    for block, row in rows.items():
        table.add_row(block, *(f"{count:,}" if count else "" for count in row.values()))
    console.print(table)


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.hw.timing", description=__doc__)
    parser.add_argument(
        "--seeds",
        type=positive,
        help=f"place-and-route seeds (default {SEEDS} for the device, {SEEDS_ALONE} for a block)",
    )
    parser.add_argument("--jobs", type=positive, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--abc9", action="store_true", help="map with abc9")
    parser.add_argument(
        "--block",
        action="append",
        metavar="NAME",
        help="place this block alone: its name in the device (framer, mpa_receiver.deframer) or "
        "its class (stagecoach.gateware.mpa.framer:Framer); may be repeated",
    )
    parser.add_argument("--config", choices=CONFIGS, help="sizes of the device (default: default)")
    parser.add_argument("--device", choices=PARTS, help="the ECP5 to place it in (default: 85F)")
    parser.add_argument(
        "--engine-dummy", action="store_true", help="beside a dummy of a TCP engine"
    )
    parser.add_argument(
        "--design", choices=DESIGNS, help="what is synthesized and placed (default: the RNIC)"
    )
    parser.add_argument("--area", action="store_true", help="do not place the device")
    parser.add_argument("--blocks", action="store_true", help="place every block alone")
    arguments = parser.parse_args()
    _refuse_ignored(parser, arguments)
    alone = bool(arguments.blocks or arguments.block)
    count = arguments.seeds if arguments.seeds is not None else SEEDS_ALONE if alone else SEEDS
    options = "" if arguments.abc9 else SYNTHESIS_OPTIONS
    seeds = list(range(1, count + 1))
    console = Console()
    BUILD.mkdir(exist_ok=True)
    try:
        if alone:
            read_results(BLOCKS_RESULT)
            names = [] if arguments.blocks else arguments.block
            rows = measure_blocks(RnicConfig(), names, seeds, arguments.jobs, options)
            _print_blocks(rows, console)
            for name, row in rows.items():
                console.print(f"{name}: {row['critical_path']}", soft_wrap=True)
            named = {"_".join([name, *_flow(options)]): row for name, row in rows.items()}
            with locked(BLOCKS_RESULT):
                write_results(BLOCKS_RESULT, read_results(BLOCKS_RESULT) | named)
            if options != SYNTHESIS_OPTIONS:
                return 0
            return _show_excess(budgets.read().clock_excess(rows), console)
        part = PARTS[arguments.device] if arguments.device else DEFAULT_PART
        config = arguments.config or DEFAULT
        design = arguments.design or RNIC
        name = entry(config, part, options, arguments.engine_dummy, design)
        if arguments.area:
            seeds = []
        else:
            read_results(RESULT)
        with progress() as shown:
            task = shown.add_task("", total=None)
            result = measure(
                CONFIGS[config],
                part,
                seeds,
                arguments.jobs,
                options,
                lambda text: shown.update(task, description=text),
                arguments.engine_dummy,
                design,
            )
        _print_device(result, console)
        if not arguments.area:
            record(RESULT, name, result)
        if name == entry(DEFAULT, DEFAULT_PART, SYNTHESIS_OPTIONS, design=design):
            return _show_excess(budgets.read().excess(design, result), console)
    except (ToolError, CacheError, BadResults, blocks.NoSuchBlock) as error:
        print(f"timing: {error}", file=sys.stderr)
        return 1
    return 0


def _show_excess(excess: list[str], console: Console) -> int:
    """Prints what goes beyond the budgets, and returns the exit status."""
    for line in excess:
        console.print(f"beyond {budgets.FILE.name}: {line}", soft_wrap=True)
    return int(bool(excess))


def _refuse_ignored(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Ends the command where one option would make another mean nothing."""
    given = [
        name.replace("_", "-")
        for name, value in vars(arguments).items()
        if value not in (None, False)
    ]
    for name, others in (
        ("block", ("blocks", "area", "config", "device", "engine-dummy", "design")),
        ("blocks", ("area", "config", "device", "engine-dummy", "design")),
        ("engine-dummy", ("design",)),
        ("area", ("seeds",)),
    ):
        for other in others:
            if name in given and other in given:
                parser.error(f"--{name} with --{other}; allowed: one of them")


if __name__ == "__main__":
    sys.exit(main())
