"""What asked before the mark has read host memory when it has passed."""

import cocotb
from cocotb.triggers import RisingEdge

from gateware.queues.transmit_drain import TransmitDrain
from tests.queues.ports import cycles
from tests.support.runner import run_cocotb
from tests.support.streams import seeded_random, start_clock_and_reset

PULSES = ("visit_begin", "visit_end", "job_begin", "job_end", "mark")


def test_transmit_drain():
    run_cocotb(TransmitDrain(), __name__)


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
    rng = seeded_random()
    await start(dut)
    visits, jobs, owed, marked, passes = 0, 0, None, False, 0
    for _ in range(40_000):
        now = []
        if visits and rng.random() < 0.2:
            now.append("visit_end")
            if rng.random() < 0.7:
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
