"""The transmitter finds again what it kept of every QP, and counts every retired work request."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.rdmap.transmit.context import (
    HALT,
    RetiredSends,
    TransmitContexts,
    progress_layout,
    sends_bits,
    settings_layout,
)
from stagecoach.sim.cosim.streams import (
    active_cycles,
    pack,
    seeded_random,
    start_clock_and_reset,
    width_of,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4, pending_sends=8)
COMMAND = Layouts(CONFIG).qp_command
CYCLES = 3000
# Cycles after a strobe in which the count may still be the old one.
LATENCY = 2


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_retired_sends(pattern):
    run_cocotb(
        RetiredSends(CONFIG),
        __name__,
        test_filter="check_strobes",
        parameters={"PATTERN": pattern},
    )


def test_transmit_contexts():
    run_cocotb(TransmitContexts(CONFIG), __name__, test_filter="check_every_qp")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_strobes_are_counted(dut):
    rng = seeded_random(parameter("PATTERN"))
    active = active_cycles(parameter("PATTERN"), rng)
    modulus = 1 << sends_bits(CONFIG)
    dut.retired__valid.value = 0
    await start_clock_and_reset(dut)
    counts = [0] * CONFIG.qps
    # For each cycle: the QP that was selected, and the counts up to the cycle before.
    cycles = []
    exact = 0
    for cycle in range(CYCLES + 2 * LATENCY):
        # Driven after an edge, in the memory's output at the next, sampled at the one after that.
        if cycle >= LATENCY:
            select, newest = cycles[-2]
            oldest = cycles[max(0, len(cycles) - 2 - LATENCY)][1][select]
            late = (newest[select] - int(dut.count.value)) % modulus
            assert late <= newest[select] - oldest, (select, late)
            exact += newest[select] == oldest
        select = rng.randrange(CONFIG.qps)
        dut.select.value = select
        cycles.append((select, list(counts)))
        # The same QP in many cycles that follow each other, too.
        qp = rng.randrange(CONFIG.qps) if rng.random() < 0.5 else int(dut.retired__qp.value)
        retired = cycle < CYCLES and next(active)
        dut.retired__valid.value, dut.retired__qp.value = int(retired), qp
        counts[qp] += retired
        await RisingEdge(dut.clk)
    assert exact > CYCLES // 10
    assert min(counts) > 2 * modulus


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_every_qp_has_its_own(dut):
    rng = seeded_random()
    dut.store.value = dut.set_settings.value = dut.set_pd.value = dut.set_halt.value = 0
    await start_clock_and_reset(dut)
    contexts = [(0, 0, 0)] * CONFIG.qps
    halts = [0] * CONFIG.qps
    # What the outputs must be: driven after an edge, in them one cycle later.
    expected = []
    for cycle in range(CYCLES):
        if cycle >= 2:
            found = int(dut.progress.value), int(dut.settings.value), int(dut.pd.value)
            found += (int(dut.halt.value),)
            assert found == expected[cycle - 2]
        qp = rng.randrange(CONFIG.qps)
        expected.append((*contexts[qp], halts[qp]))
        progress = rng.getrandbits(width_of(progress_layout(CONFIG)))
        settings = {
            "ord": rng.randint(0, CONFIG.read_queue_depth),
            "crc": rng.getrandbits(1),
            "transmit_markers": rng.getrandbits(1),
        }
        pd = rng.getrandbits(16)
        written = [rng.random() < 0.3 for _ in range(3)]
        dut.qp.value, dut.followed.value = qp, progress
        dut.command.value = pack(COMMAND, {"pd": pd, **settings})
        strobes = (dut.store, dut.set_settings, dut.set_pd)
        for strobe, value in zip(strobes, written, strict=True):
            strobe.value = int(value)
        new = (progress, pack(settings_layout(CONFIG), settings), pd)
        contexts[qp] = tuple(
            value if write else old
            for write, value, old in zip(written, new, contexts[qp], strict=True)
        )
        # The halt is that of another QP.
        halting_qp, halting = rng.randrange(CONFIG.qps), rng.getrandbits(width_of(HALT))
        dut.halting_qp.value, dut.halting.value = halting_qp, halting
        halts_now = rng.random() < 0.3
        dut.set_halt.value = int(halts_now)
        if halts_now:
            halts[halting_qp] = halting
        await RisingEdge(dut.clk)
