"""Blocks with clocks of their own do what they do with one clock, and rest."""

import re
import shutil
import subprocess

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from stagecoach.hw.rtlil import export, to_verilog
from stagecoach.sim import resting
from stagecoach.sim.resting import split_clocks

BENCH = """
module bench;
    reg clk = 0, clk_free = 0, rst = 1, put, take;
    reg [{last}:0] clocks = 0;
    reg [7:0] data;
    wire [{last}:0] moves;
    wire [15:0] one, many;
    integer cycle, edges = 0, wrong = 0, at;
    plain plain(.clk(clk), .rst(rst), .put(put), .data(data), .take(take), .o(one));
    rnic split(.clk_free(clk_free), .clocks(clocks), .moves_all(moves), .rst(rst), .put(put),
               .data(data), .take(take), .o(many));
    initial begin
        for (cycle = 0; cycle < 20000; cycle = cycle + 1) begin
            // Bursts, and quiet in between.
            rst = cycle < 8;
            put = cycle % 256 < 64 && $random % 2 != 0;
            take = cycle % 512 < 128 && $random % 2 != 0;
            data = $random;
            #1;
            clocks = clocks ^ (rst ? {{{count}{{1'b1}}}} : moves);
            for (at = 0; at < {count}; at = at + 1) edges = edges + (rst || moves[at]);
            clk_free = ~clk_free;
            clk = 1;
            #1;
            clk = 0;
            #1;
            if (!rst && one !== many) wrong = wrong + 1;
        end
        $display("%0d wrong, %0d edges", wrong, edges);
    end
endmodule
"""


class Queues(wiring.Component):
    """Two queues in a row, of which the second is emptied, and a counter."""

    put: In(1)
    data: In(8)
    take: In(1)
    o: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.first = first = SyncFIFOBuffered(width=8, depth=16)
        m.submodules.second = second = SyncFIFOBuffered(width=8, depth=16)
        count = Signal(8)
        m.d.sync += count.eq(count + 1)
        m.d.comb += [
            first.w_en.eq(self.put),
            first.w_data.eq(self.data),
            second.w_en.eq(first.r_rdy & second.w_rdy),
            second.w_data.eq(first.r_data),
            first.r_en.eq(second.w_rdy),
            second.r_en.eq(self.take),
            self.o.eq(second.r_data + (second.r_rdy << 8) + (first.w_level << 9) + (count << 14)),
        ]
        return m


class Nested(wiring.Component):
    """The queues, in a block of another that counts what comes."""

    put: In(1)
    data: In(8)
    take: In(1)
    o: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queues = queues = Queues()
        came = Signal(16)
        m.d.comb += [
            queues.put.eq(self.put),
            queues.data.eq(self.data),
            queues.take.eq(self.take),
            self.o.eq(queues.o ^ came),
        ]
        with m.If(self.put):
            m.d.sync += came.eq(came + 1)
        return m


def run(folder, spoil=lambda text: text, design=Queues, clocks=3):
    """Numbers of cycles with a wrong output, and of edges of the clocks."""
    verilog = to_verilog(export(design(), "rnic"))
    split, count = split_clocks(verilog, "rnic")
    plain = re.sub(r"\brnic\b", "plain", verilog)
    bench = BENCH.format(last=count - 1, count=count)
    source, program = folder / "bench.v", folder / "bench"
    # Icarus 11 does not know `edge`.
    split = re.sub(r"@\(edge (\w+)\)", r"@(posedge \1 or negedge \1)", spoil(split))
    source.write_text(plain + split + bench)
    subprocess.run(["iverilog", "-g2012", "-o", str(program), str(source)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    match = re.search(r"(\d+) wrong, (\d+) edges", result.stdout)
    assert match is not None
    assert count == clocks
    return int(match[1]), int(match[2])


pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus is not installed")


def test_blocks_that_rest_miss_nothing(tmp_path):
    wrong, edges = run(tmp_path)
    assert wrong == 0
    assert 1_000 < edges < 3 * 20_000 / 2


@pytest.mark.parametrize(("least", "clocks"), [(5, 4), (300, 2)])
def test_a_large_block_has_clocks_for_its_parts(tmp_path, monkeypatch, least, clocks):
    monkeypatch.setattr(resting, "OPEN_STATEMENTS", least)
    monkeypatch.setattr(resting, "LEAST_STATEMENTS", 3)
    wrong, edges = run(tmp_path, design=Nested, clocks=clocks)
    assert wrong == 0
    assert 1_000 < edges < clocks * 20_000


def test_the_smallest_blocks_have_no_clock_if_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(resting, "CLOCKS_LIMIT", 2)
    monkeypatch.setattr(resting, "LEAST_STATEMENTS", 1)
    wrong, _ = run(tmp_path, clocks=1)
    assert wrong == 0


def test_a_change_that_is_not_told_is_noticed_here(tmp_path):
    def spoil(text: str) -> str:
        return re.sub(r"assign moves__ = .*;", "assign moves__ = 1'b0;", text)

    wrong, _ = run(tmp_path, spoil)
    assert wrong > 0


def test_a_module_that_is_not_there_cannot_have_a_clock():
    with pytest.raises(ValueError, match="no module is named 'other'"):
        split_clocks("module rnic(clk);\n  input clk;\n  wire clk;\nendmodule\n", "other")


@pytest.mark.parametrize(
    "body, message",
    [
        ("    if (a)\n      if (b) r <= 1'h1;\n", r"condition 'a' has \"if \(b\) r"),
        ("    if (a)\n      if (b)\n        r <= 1'h1;\n", r"condition 'a' has 'if \(b\)'"),
        ("    if (a)\n      r <= 1'h1;\n    else\n      r <= 1'h0;\n", "clocked block has 'else'"),
    ],
)
def test_verilog_of_another_shape_is_refused(body, message):
    always = f"  always @(posedge clk) begin\n{body}  end\n"
    text = f"module rnic(clk, a, b);\n  reg r;\n{always}endmodule\n"
    with pytest.raises(ValueError, match=message):
        split_clocks(text, "rnic")
