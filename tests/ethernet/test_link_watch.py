"""The MAC starts again for each link, and is in reset while its clock cannot be trusted."""

from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.link_watch import RESET_CHANGES, STABLE_CYCLES, LinkWatch
from stagecoach.sim.cosim.streams import CLOCK_PERIOD_NS, seeded_random
from tests.support.runner import parameter, run_cocotb

GIGABIT, HUNDRED, HALF, DOWN = 0b1101, 0b1011, 0b0101, 0b0000

SYNCHRONIZED = 2
"""Cycles that a bit from outside takes."""


@pytest.mark.parametrize("silent_cycles", [2, 100])
def test_link_watch(silent_cycles: int) -> None:
    run_cocotb(LinkWatch(silent_cycles), __name__, parameters={"SILENT": str(silent_cycles)})


def test_wrong_silence() -> None:
    with pytest.raises(ValueError, match=r"LinkWatch silent_cycles is 1; allowed: 2 and more"):
        LinkWatch(1)


class Phy:
    """What the PHY does, and what must hold in every cycle."""

    def __init__(self, dut: Any):
        self._dut = dut
        self.every = 1  # cycles from one change of activity to the next; 0: the clock stands still
        self.changes = 0  # of activity
        self.resets = 0
        dut.status.value, dut.activity.value = 0, 0
        cocotb.start_soon(self._clock())

    def say(self, status: int) -> None:
        self._dut.status.value = status

    async def _clock(self) -> None:
        level = 0
        while True:
            for _ in range(self.every or 1):
                await RisingEdge(self._dut.clk)
            if self.every:
                level ^= 1
                self.changes += 1
                self._dut.activity.value = level

    async def watch(self) -> None:
        dut, before, began = self._dut, 1, self.changes
        while True:
            await RisingEdge(dut.clk)
            up, reset, link = (
                int(getattr(dut, name).value) for name in ("up", "mac_reset", "link")
            )
            assert not (up and reset)
            assert not reset or not link
            if reset and not before:
                self.resets += 1
                began = self.changes
            if before and not reset:
                # Up to three of those that it has seen were on their way before.
                assert self.changes - began >= RESET_CHANGES - 3
            before = reset


async def begin(dut: Any) -> Phy:
    phy = Phy(dut)
    dut.rst.value = 1
    Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    cocotb.start_soon(phy.watch())
    return phy


async def cycles_until(dut: Any, name: str, value: int, most: int = 1000) -> int:
    """Cycles from what was just set until the one with a value."""
    for cycle in range(most):
        await RisingEdge(dut.clk)
        if int(getattr(dut, name).value) == value:
            return cycle
    raise AssertionError(f"{name} is not {value} within {most} cycles")


async def stays(dut: Any, name: str, value: int, cycles: int = 200) -> None:
    for _ in range(cycles):
        await RisingEdge(dut.clk)
        assert int(getattr(dut, name).value) == value


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_each_link_begins_with_a_reset(dut: Any) -> None:
    phy = await begin(dut)
    await cycles_until(dut, "mac_reset", 0)
    assert phy.resets == 0
    settles = SYNCHRONIZED + 1 + STABLE_CYCLES + 2
    assert settles == 21  # as the block says
    for number in range(3):
        phy.say(GIGABIT)
        assert await cycles_until(dut, "mac_reset", 1) <= settles
        await cycles_until(dut, "mac_reset", 0)
        assert await cycles_until(dut, "up", 1) <= settles
        assert int(dut.link.value) == GIGABIT
        await stays(dut, "up", 1)
        assert phy.resets == 2 * number + 1
        phy.say(DOWN)
        assert await cycles_until(dut, "up", 0) <= settles
        assert dut.mac_reset.value
        await cycles_until(dut, "mac_reset", 0)
        await stays(dut, "mac_reset", 0)
        assert not int(dut.link.value)
        assert phy.resets == 2 * number + 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_other_links_are_told_and_never_up(dut: Any) -> None:
    phy = await begin(dut)
    for status in (HUNDRED, HALF, DOWN | 0b1000, HUNDRED, 0b0001):
        phy.say(status)
        await cycles_until(dut, "link", status)
        await stays(dut, "up", 0)
        assert int(dut.link.value) == status
    resets = phy.resets
    # From one link at once to another one
    phy.say(GIGABIT)
    await cycles_until(dut, "up", 1)
    assert phy.resets == resets + 1
    phy.say(HUNDRED)
    await cycles_until(dut, "up", 0)
    await stays(dut, "up", 0)
    assert int(dut.link.value) == HUNDRED and phy.resets == resets + 2


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_what_the_phy_says_counts_when_it_is_stable(dut: Any) -> None:
    rng = seeded_random()
    phy = await begin(dut)
    phy.say(GIGABIT)
    await cycles_until(dut, "up", 1)
    resets = phy.resets
    for _ in range(20):
        for _ in range(rng.randint(1, STABLE_CYCLES - 1)):
            phy.say(rng.getrandbits(4))
            await RisingEdge(dut.clk)
            assert dut.up.value
        phy.say(GIGABIT)
        await stays(dut, "up", 1, STABLE_CYCLES)
    assert phy.resets == resets


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_clock_that_stands_still_is_a_reset(dut: Any) -> None:
    silent = int(parameter("SILENT"))
    phy = await begin(dut)
    phy.say(GIGABIT)
    await cycles_until(dut, "up", 1)
    phy.every = 0
    assert await cycles_until(dut, "up", 0) <= silent + 5
    assert dut.mac_reset.value
    await stays(dut, "mac_reset", 1)
    # A few cycles of the clock are not enough.
    for _ in range(3):
        phy.every = 1
        for _ in range(RESET_CHANGES // 2):
            await RisingEdge(dut.clk)
        phy.every = 0
        await stays(dut, "mac_reset", 1, silent + 20)
    # What the PHY said before was forgotten; it says the same.
    phy.every = 1
    await cycles_until(dut, "up", 1)
    assert int(dut.link.value) == GIGABIT


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_the_slowest_clock_that_runs(dut: Any) -> None:
    silent = int(parameter("SILENT"))
    phy = await begin(dut)
    phy.every = silent
    phy.say(GIGABIT)
    await cycles_until(dut, "up", 1, 40 * silent + 200)
    await stays(dut, "up", 1, 10 * silent)
    phy.every = silent + 1
    await cycles_until(dut, "up", 0, 2 * silent + 20)
    await stays(dut, "mac_reset", 1, 40 * silent)
