"""One FIFO per QP: order, levels and clears, with pushes, pops and clears of any QPs."""

from collections import deque

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.queues.qp_fifo import QpFifo
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig(qps=4)
ITEM = data.StructLayout({"number": 32})


@pytest.mark.requirement("RDMAP-8.1.2-07", "SEC-6.4.3.3-01", "SEC-A-03")
@pytest.mark.parametrize("depth", [1, 2, 8])
def test_fifo(depth):
    run_cocotb(QpFifo(CONFIG, ITEM, depth), __name__, parameters={"DEPTH": str(depth), "HELD": "0"})


@pytest.mark.requirement("RDMAP-5.5-08", "RDMAP-5.5-14", "SEC-6.4.3.3-01")
@pytest.mark.parametrize("depth", [1, 2, 8])
def test_held_fifo(depth):
    parameters = {"DEPTH": str(depth), "HELD": "1"}
    run_cocotb(QpFifo(CONFIG, ITEM, depth, held=True), __name__, parameters=parameters)


def test_depth_that_is_no_power_of_two_is_refused():
    with pytest.raises(ValueError, match="depth is 3"):
        QpFifo(CONFIG, ITEM, 3)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_items_leave_in_order_and_levels_are_right(dut):
    rng, depth, held = seeded_random(), int(parameter("DEPTH")), parameter("HELD") == "1"
    if held:
        dut.release__valid.value = 0
    dut.clear__valid.value = 0
    dut.reader__pop.value = 0
    dut.writer__push.value = 0
    await start_clock_and_reset(dut)
    model = [deque() for _ in range(CONFIG.qps)]
    visible = [0] * CONFIG.qps  # items that the reader may see
    # What the outputs must show: (level at the writer, what the reader sees); None where a clear
    # is not seen yet
    expected: deque = deque()
    left: dict[int, int] = {}  # item: in which cycle it left
    just_cleared = None
    pop_qp = push_qp = 0
    pop = push = False
    number = compared = 0
    for cycle in range(6000):
        queues = [list(queue) for queue in model]
        writer, reader = rng.randrange(CONFIG.qps), rng.randrange(CONFIG.qps)
        dut.writer__select.value, dut.reader__select.value = writer, reader
        expected.append(
            (
                len(queues[writer]) if writer != just_cleared else None,
                queues[reader][: visible[reader]] if reader != just_cleared else None,
            )
        )
        if len(expected) > 4:
            level, queue = expected[-4]
            # Driven after edge 0, taken at edge 1, in the output registers at 2, sampled at 3;
            # the head a cycle later.
            assert level in (int(dut.writer__level.value), None)
            assert queue is None or int(dut.reader__level.value) == len(queue)
            _, queue = expected[-5]
            # A slot can be written while it is read if its item leaves in the cycle of `select`.
            if queue and left.get(queue[0]) != cycle - 4:
                compared += 1
                assert int(dut.reader__head.value) == queue[0]

        clear, clear_qp = rng.random() < 0.03, rng.randrange(CONFIG.qps)
        # In turns mostly filling and mostly emptying.
        filling = cycle // 200 % 2
        # The QPs of a pop and a push have stood for a cycle.
        pop_before, push_before = (pop, pop_qp), (push, push_qp)
        pop_qp, push_qp = (rng.choice([qp, rng.randrange(CONFIG.qps)]) for qp in (pop_qp, push_qp))
        pop = bool(visible[pop_qp]) and rng.random() < (0.3 if filling else 0.9)
        pop &= pop_before == (False, pop_qp)
        room = len(model[push_qp]) < depth
        push = room and rng.random() < (0.9 if filling else 0.3)
        push &= push_before == (False, push_qp)
        release_qp = rng.randrange(CONFIG.qps)
        # Not with a clear of the same QP: what was not released then never is.
        release = (
            held
            and visible[release_qp] < len(model[release_qp])
            and not (clear and clear_qp == release_qp)
            and rng.random() < 0.8
        )
        if pop:
            left[model[pop_qp].popleft()] = cycle
            visible[pop_qp] -= 1
        if release:
            visible[release_qp] += 1
        just_cleared = clear_qp if clear else None
        if clear:
            left |= dict.fromkeys(model[clear_qp], cycle)
            model[clear_qp].clear()
            visible[clear_qp] = 0
        if push:
            number += 1
            model[push_qp].append(number)
        if held:
            dut.release__valid.value, dut.release__qp.value = int(release), release_qp
        else:
            visible = [len(queue) for queue in model]
        dut.reader__pop.value, dut.reader__pop_qp.value = int(pop), pop_qp
        dut.clear__valid.value, dut.clear__qp.value = int(clear), clear_qp
        dut.writer__push.value, dut.writer__push_qp.value = int(push), push_qp
        dut.writer__item.value = number
        await RisingEdge(dut.clk)
    assert compared > 1000
