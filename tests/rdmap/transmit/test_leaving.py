"""Which QPs have Read Responses on their way: set by a job, over when the last one has left."""

from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.rdmap.transmit.leaving import LeavingResponses
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

CONFIG = RnicConfig(qps=4)

BEGUN_SEEN, LEFT_SEEN = 3, 4
"""Cycles after which `select` shows that a job began, and that the last one has left."""

KICK = 4
"""Cycles from the one in which the end of a job is driven to the one that sees `kick`."""


def test_leaving_responses() -> None:
    run_cocotb(LeavingResponses(CONFIG), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_bits_and_kicks(dut) -> None:
    rng = seeded_random()
    for name in ("select", "begun__valid", "begun__qp", "is_response", "finished__valid"):
        getattr(dut, name).value = 0
    dut.finished__qp.value = 0
    await start_clock_and_reset(dut)
    under_way: deque = deque()  # (QP, whether of a response), in order
    responses = [0] * CONFIG.qps
    # Per QP, the cycles of the last change of whether responses are under way, and to what.
    changed = [(-100, False)] * CONFIG.qps
    looked: deque = deque(maxlen=2)
    kicks: dict[int, int] = {}  # cycle: QP
    seen = {"leaving": 0, "rests": 0, "kicks": 0, "overtaken": 0}
    for cycle in range(12000):
        # `looked` is what was selected a cycle ago: its bit is there now.
        if len(looked) == 2:
            at, qp, (since, leaves) = looked[0]
            if at - since >= (BEGUN_SEEN if leaves else LEFT_SEEN) - 1:
                assert int(dut.leaving.value) == leaves, (cycle, qp)
                seen["leaving" if leaves else "rests"] += 1
        kicked = kicks.pop(cycle, None)
        assert int(dut.kick__valid.value) == (kicked is not None), cycle
        if kicked is not None:
            assert int(dut.kick__qp.value) == kicked
            seen["kicks"] += 1

        few = cycle // 300 % 2
        begins = len(under_way) < 100 and rng.random() < (0.2 if few else 0.5)
        begun, response = rng.randrange(CONFIG.qps), rng.random() < 0.5
        finishes = bool(under_way) and rng.random() < (0.5 if few else 0.4)
        dut.begun__valid.value, dut.begun__qp.value = int(begins), begun
        dut.is_response.value = int(response)
        dut.finished__valid.value = int(finishes)
        if finishes:
            finished, of_response = under_way.popleft()
            dut.finished__qp.value = finished
            responses[finished] -= of_response
            if of_response and not responses[finished]:
                changed[finished] = (cycle, False)
                kicks[cycle + KICK] = finished
        # One that begins before the end is known goes on with the same bit: no kick.
        if begins:
            under_way.append((begun, response))
            if response:
                if not responses[begun]:
                    changed[begun] = (cycle, True)
                    if kicks.get(cycle + KICK) == begun:
                        del kicks[cycle + KICK]
                        seen["overtaken"] += 1
                responses[begun] += 1
        selected = rng.randrange(CONFIG.qps)
        dut.select.value = selected
        looked.append((cycle, selected, changed[selected]))
        await RisingEdge(dut.clk)
    assert all(count > 20 for count in seen.values()), seen
