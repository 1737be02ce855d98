"""Rows of a table of words are those that were written last, word by word."""

from typing import Any

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import RisingEdge

from stagecoach.gateware.tcp.word_table import WORD_BITS, WordTable
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

STEPS = 400


@cocotb.test()
async def check_rows_are_those_that_were_written(dut: Any) -> None:
    """Words come one by one; a row that is written while another one is read is whole as well."""
    bits, depth = int(parameter("BITS")), int(parameter("DEPTH"))
    words, mask = -(-bits // WORD_BITS), (1 << WORD_BITS) - 1
    rng = seeded_random(bits)
    dut.write.value = dut.fetch.value = 0
    await start_clock_and_reset(dut)
    rows = dict.fromkeys(range(depth), 0)
    for step in range(STEPS):
        at, again = rng.randrange(depth), rng.randrange(depth)
        while again == at:
            again = rng.randrange(depth)
        if step % 2:
            rows[at] = rng.getrandbits(bits)
            dut.write.value, dut.address.value, dut.row.value = 1, at, rows[at]
            await RisingEdge(dut.clk)
            dut.write.value, dut.row.value = 0, rng.getrandbits(bits)
            for _ in range(words):
                await RisingEdge(dut.clk)
                assert int(dut.writes.value) == 1
            await RisingEdge(dut.clk)
            assert int(dut.writes.value) == 0
        # What is written from the cycle of `fetch` on is another row.
        writes = rng.random() < 0.5
        dut.fetch.value, dut.read_address.value = 1, at
        dut.write.value, dut.address.value = writes, again
        if writes:
            rows[again] = rng.getrandbits(bits)
            dut.row.value = rows[again]
        await RisingEdge(dut.clk)
        dut.fetch.value = dut.write.value = 0
        await RisingEdge(dut.clk)
        for number in range(words):
            await RisingEdge(dut.clk)
            found = int(dut.found.value)
            for earlier in range(number + 1):
                shift = WORD_BITS * earlier
                assert found >> shift & mask == rows[at] >> shift & mask, (step, earlier)
        await RisingEdge(dut.clk)
        assert int(dut.found.value) == rows[at]


@pytest.mark.parametrize(("bits", "depth"), [(52, 64), (91, 6), (144, 2)])
def test_word_table(bits: int, depth: int) -> None:
    run_cocotb(
        WordTable(data.StructLayout({"row": bits}), depth),
        __name__,
        parameters={"BITS": str(bits), "DEPTH": str(depth)},
    )


def test_rejects_rows_of_one_word_and_one_row() -> None:
    with pytest.raises(ValueError, match=r"layout has 36 bits; allowed: from 37 on"):
        WordTable(data.StructLayout({"row": 36}), 64)
    with pytest.raises(ValueError, match=r"depth is 1; allowed: 2 and more"):
        WordTable(data.StructLayout({"row": 37}), 1)
