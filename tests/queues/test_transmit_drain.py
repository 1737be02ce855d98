"""What asked before the mark has read host memory when it has passed."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.drain import COUNT_BITS
from stagecoach.gateware.queues.transmit_drain import TransmitDrain
from stagecoach.sim.cosim.signals import cycles
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

PULSES = ("visit_begin", "visit_end", "job_begin", "job_end", "mark")


@pytest.mark.parametrize("count_bits", [4, COUNT_BITS])
def test_transmit_drain(count_bits):
    parameters = {"COUNT_BITS": str(count_bits)}
    run_cocotb(TransmitDrain(count_bits), __name__, parameters=parameters)


async def start(dut):
    for name in PULSES:
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)


async def pulse(dut, *names):
    for name in names:
        getattr(dut, name).value = 1
    await RisingEdge(dut.clk)
    for name in names:
        getattr(dut, name).value = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_visit_and_jobs_are_waited_for(dut):
    await start(dut)
    for jobs_before in (0, 1, 5):
        for _ in range(jobs_before):
            await pulse(dut, "visit_begin")
            await pulse(dut, "visit_end", "job_begin")
        await pulse(dut, "visit_begin")
        await pulse(dut, "mark")
        await cycles(dut, 20)
        assert not dut.passed.value
        # The job of this visit counts, that of the next one does not.
        await pulse(dut, "visit_end", "job_begin")
        await cycles(dut, 3)
        await pulse(dut, "visit_begin")
        await pulse(dut, "visit_end", "job_begin")
        for _ in range(jobs_before + 1):
            await cycles(dut, 10)
            assert not dut.passed.value
            await pulse(dut, "job_end")
        await cycles(dut, 5)
        assert dut.passed.value
        await pulse(dut, "job_end")


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_random(dut):
    """The model: what had begun, or was being visited, when the mark came."""
    rng = seeded_random(parameter("COUNT_BITS"))
    most = (1 << int(parameter("COUNT_BITS"))) - 1
    await start(dut)
    visits, jobs, owed, marked, passes = 0, 0, None, False, 0
    for _ in range(40_000):
        now = []
        if visits and rng.random() < 0.2:
            now.append("visit_end")
            if jobs < most and rng.random() < 0.7:
                now.append("job_begin")
        if visits < 2 and rng.random() < 0.3:
            now.append("visit_begin")
        if jobs and rng.random() < 0.15:
            now.append("job_end")
        if not marked and rng.random() < 0.05:
            now.append("mark")
        await pulse(dut, *now)
        # What of before the mark is still to end: jobs, and visits with theirs.
        if marked:
            if "job_end" in now and owed["jobs"]:
                owed["jobs"] -= 1
            if owed["visits"] and "visit_end" in now:
                owed["visits"] -= 1
                owed["jobs"] += "job_begin" in now
        jobs += ("job_begin" in now) - ("job_end" in now)
        visits += ("visit_begin" in now) - ("visit_end" in now)
        if "mark" in now:
            marked, owed = True, {"jobs": jobs, "visits": visits}
        elif marked and dut.passed.value:
            assert not owed["jobs"] and not owed["visits"], owed
            marked = False
            passes += 1
    assert passes > 100


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_it_has_passed_after_6_cycles_with_nothing_under_way(dut):
    await start(dut)
    await pulse(dut, "mark")
    waited = 0
    while not dut.passed.value or not waited:
        await RisingEdge(dut.clk)
        waited += 1
    assert waited - 1 == 6


@cocotb.test(timeout_time=8, timeout_unit="ms")
async def check_jobs_that_begin_and_end_behind_a_held_visit_do_not_count(dut):
    """More jobs than any count holds, up to 16 bits."""
    most = (1 << int(parameter("COUNT_BITS"))) - 1
    await start(dut)
    for turns in (most // 2 + 2, most + 2, (1 << 15) + 2, (1 << 16) + 2):
        await pulse(dut, "visit_begin")
        await pulse(dut, "job_begin")
        await pulse(dut, "mark")
        dut.job_begin.value = dut.job_end.value = 1
        await cycles(dut, turns)
        dut.job_begin.value = dut.job_end.value = 0
        await cycles(dut, 20)
        assert not dut.passed.value
        await pulse(dut, "visit_end")
        await cycles(dut, 20)
        assert not dut.passed.value  # one job, which was under way when the visit ended
        await pulse(dut, "job_end")
        await cycles(dut, 5)
        assert dut.passed.value
