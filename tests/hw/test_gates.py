"""Netlists of the flow behave as the design: memories become block RAM, a wrong LUT is found."""

import json
import random
import re
from pathlib import Path
from typing import Any

import cocotb
import pytest
from amaranth.hdl import Array, Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.hw import gates
from stagecoach.hw.rtlil import export
from stagecoach.hw.synthesis import SYNTHESIS_OPTIONS, synthesize
from stagecoach.sim.cosim import runner
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import CocotbFailure, run_cocotb

WIDTHS = (1, 2, 4, 9, 18, 36)
"""That a port of a DP16KD can have. 9 bits of each 9, of narrower words 8, are used."""

LANE = 9


def words(width: int) -> int:
    """How many of them fill a block."""
    return (18432 if width >= LANE else 16384) // width


def lanes(width: int) -> int:
    """How many parts of a word have a write enable of their own."""
    return max(1, width // LANE)


def first_content(width: int) -> list[int]:
    rng = random.Random(width)
    return [rng.getrandbits(width) for _ in range(words(width))]


class Memories(wiring.Component):
    """A memory of each width, each as large as a block; one of them is used at a time."""

    which: In(range(len(WIDTHS)))
    write: In(max(lanes(width) for width in WIDTHS))
    write_address: In(14)
    data: In(max(WIDTHS))
    read: In(1)
    read_address: In(14)
    q: Out(max(WIDTHS))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        found = []
        for number, width in enumerate(WIDTHS):
            memory = Memory(
                shape=width, depth=words(width), init=first_content(width), attrs=NO_COLLISION
            )
            m.submodules[f"memory_{width}"] = memory
            write = memory.write_port(granularity=min(width, LANE))
            read = memory.read_port()
            chosen = self.which == number
            m.d.comb += [
                write.addr.eq(self.write_address),
                write.data.eq(self.data),
                write.en.eq(self.write & chosen.replicate(len(write.en))),
                read.addr.eq(self.read_address),
                read.en.eq(self.read & chosen),
            ]
            found.append(read.data)
        m.d.comb += self.q.eq(Array(found)[self.which])
        return m


class Counter(wiring.Component):
    """Counts cycles, to so few bits that it takes no carry chain."""

    count: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.count.eq(self.count + 1)
        return m


def test_memories_are_block_rams_of_their_widths() -> None:
    folder = synthesize(export(Memories(), "dut"), SYNTHESIS_OPTIONS, "dut")
    cells = json.loads((folder / "rnic.json").read_text())["modules"]["dut"]["cells"].values()
    blocks = [cell["parameters"] for cell in cells if cell["type"] == "DP16KD"]
    assert sorted(int(block["DATA_WIDTH_A"], 2) for block in blocks) == list(WIDTHS)
    run_cocotb(Memories(), __name__, test_filter="check_memories", gates=True)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_memories(dut: Any) -> None:
    rng = seeded_random()
    contents = [first_content(width) for width in WIDTHS]
    for name in ("which", "write", "write_address", "data", "read", "read_address"):
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    # Few, so that what is written is read, with the first and the last.
    places = [[0, len(one) - 1, *rng.sample(range(len(one)), 20)] for one in contents]
    collisions = 0
    for _ in range(4000):
        which = rng.randrange(len(WIDTHS))
        content, width = contents[which], WIDTHS[which]
        enables = rng.getrandbits(lanes(width))
        write_at, data = rng.choice(places[which]), rng.getrandbits(width)
        read_at = rng.choice([*places[which], rng.randrange(len(content))])
        dut.which.value = which
        dut.write.value, dut.write_address.value, dut.data.value = enables, write_at, data
        dut.read.value, dut.read_address.value = 1, read_at
        await RisingEdge(dut.clk)
        mask = sum((1 << LANE) - 1 << LANE * lane for lane in range(4) if enables >> lane & 1)
        mask &= (1 << width) - 1
        # What is written at the same time must not be relied upon: it looks wrong.
        shown = content[read_at]
        if write_at == read_at:
            shown |= mask
            collisions += mask != 0
        content[write_at] = content[write_at] & ~mask | data & mask
        dut.write.value = 0
        dut.read.value = 0
        dut.read_address.value = rng.randrange(len(content))
        await RisingEdge(dut.clk)
        assert int(dut.q.value) == shown, (width, read_at)
    assert collisions > 20


def test_netlist_is_made_of_cells() -> None:
    text = gates.netlist(export(Counter(), "counter"), "counter")
    assert "module counter(" in text
    assert "TRELLIS_FF #(" in text
    assert "LUT4 #(" in text
    assert "always" not in text


def test_a_wrong_lut_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run_cocotb(Counter(), __name__, test_filter="check_counter", gates=True)

    def wrong(text: str, top: str) -> str:
        """One entry of the first table is inverted: that of inputs which are all 0 or unused."""
        return re.sub(
            r"(\.INIT\(16'h)([0-9a-f]{4})",
            lambda found: f"{found[1]}{int(found[2], 16) ^ 1:04x}",
            gates.netlist(text, top),
            count=1,
        )

    monkeypatch.setenv("STAGECOACH_CACHE", str(tmp_path))
    monkeypatch.setattr(runner, "netlist", wrong)
    with pytest.raises(CocotbFailure):
        run_cocotb(Counter(), __name__, test_filter="check_counter", gates=True)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_counter(dut: Any) -> None:
    await start_clock_and_reset(dut)
    before = int(dut.count.value)
    for _ in range(40):
        await RisingEdge(dut.clk)
        now = int(dut.count.value)
        assert now == (before + 1) % 16
        before = now
