"""The arithmetic of atomics leaves in memory what the reference model does."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import OPERANDS, AtomicOperation
from stagecoach.gateware.rdmap.atomic.arithmetic import LATENCY, AtomicArithmetic
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model.atomics import cmp_swap, fetch_add
from tests.support.runner import run_cocotb

ONES = 2**64 - 1
CORNERS = (0, 1, 1 << 63, ONES, ONES >> 1, 0x8000_0000_8000_0000, 0x0123_4567_89AB_CDEF)


@pytest.mark.requirement(
    *("EXT-5.1.1-01", "EXT-5.1.2-01", "EXT-5.1.3-01", "EXT7306-5.1.1-02", "EXT7306-5.1.2-01"),
    *("EXT-5.2.1-04", "EXT-5.2.1-05", "EXT-5.2.1-06"),
)
def test_atomic_arithmetic():
    run_cocotb(AtomicArithmetic(), __name__)


def expected(operation, original, data, mask, compare, compare_mask):
    """Return what memory holds afterwards and whether that is written."""
    if operation == AtomicOperation.FETCH_ADD.value:
        return fetch_add(original, data, mask), 1
    if operation == AtomicOperation.SWAP.value:
        return data, 1
    if operation == AtomicOperation.CMP_SWAP.value:
        matches = (original ^ compare) & compare_mask == 0
        return cmp_swap(original, data, mask, compare, compare_mask), int(matches)
    return original, 0


def some_word(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(CORNERS)
    if kind == 1:
        return 1 << rng.randrange(64)
    if kind == 2:
        return rng.getrandbits(64) & rng.getrandbits(64) & rng.getrandbits(64)
    return rng.getrandbits(64)


def some_operands(rng):
    """Corner values, and compare values that agree with memory about half the time."""
    original, data, mask, compare, compare_mask = (some_word(rng) for _ in range(5))
    if rng.random() < 0.5:
        compare = (original & compare_mask) | (compare & ~compare_mask)
        if rng.random() < 0.3:
            compare ^= 1 << rng.randrange(64)
    return rng.randrange(4), original, data, mask, compare, compare_mask


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_results_follow_their_operands(dut):
    rng = seeded_random()
    await start_clock_and_reset(dut)
    given = [
        (operation, original, data, mask, compare, ONES)
        for operation in range(4)
        for original in CORNERS
        for data in CORNERS
        for mask in CORNERS
        for compare in (original, original ^ 1 << 63)
    ]
    given += [some_operands(rng) for _ in range(4000)]
    for number in range(len(given) + LATENCY + 1):
        if number > LATENCY:
            values = given[number - LATENCY - 1]
            result, writes = expected(*values)
            assert dut.writes.value == writes, [f"{value:#x}" for value in values]
            if writes:
                assert dut.result.value == result, [f"{value:#x}" for value in values]
        if number < len(given):
            operation, original, data, mask, compare, compare_mask = given[number]
            dut.original.value = original
            dut.operands.value = pack(
                OPERANDS,
                operation=operation,
                data=data,
                mask=mask,
                compare=compare,
                compare_mask=compare_mask,
            )
        await RisingEdge(dut.clk)
