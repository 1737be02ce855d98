"""A ring has as many units as its doorbell says, unless that cannot be."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.fetch.doorbell import FetchDoorbell
from stagecoach.gateware.queues.fetch.visit import Visit, found_layout, refused_layout
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.fetch.bench import MEMORIES, MOD, both_sizes, config, memory, random_found
from tests.support.runner import parameter, run_cocotb

DOORBELLS = 800


@both_sizes
@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_fetch_doorbell(size, pattern):
    parameters = {"SIZE": size, "PATTERN": pattern}
    run_cocotb(FetchDoorbell(MEMORIES[size]), __name__, parameters=parameters)


def near(rng, number):
    """A number, or one that is one more or less, or any."""
    return rng.choice([number - 1, number, number + 1, rng.getrandbits(16)]) % MOD


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_what_becomes_of_a_doorbell(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    layout = found_layout(memory())
    fetched = StreamSink(dut, "o", layout, rng=rng, pattern=pattern)
    refused = StreamSink(dut, "refused", refused_layout(config()), rng=rng, pattern=pattern)
    for name in ("o", "refused"):
        StreamMonitor(dut, name, keep=False)
    dut.i__valid.value = dut.may_fetch.value = 0
    await start_clock_and_reset(dut)
    ways = dict.fromkeys(("passes", "deaf", "fetches", "later", "refused"), 0)
    for _ in range(DOORBELLS):
        found = random_found(rng, failed=int(rng.random() < 0.1), kind=rng.choice([0, 1, 1, 1, 3]))
        size = 1 << found["ring"]["log2"]
        found["known"] = rng.randrange(min(size + 1, MOD))
        found["claim"] = near(rng, rng.choice([found["known"], size, (size + found["known"]) // 2]))
        may_fetch = rng.random() < 0.8
        while rng.random() < 0.3:
            # Nothing happens without one, whatever stands there.
            dut.i__payload.value = rng.getrandbits(len(dut.i__payload))
            await RisingEdge(dut.clk)
            assert not dut.post.value and not dut.again.value
        dut.i__valid.value, dut.i__payload.value = 1, pack(layout, found)
        dut.may_fetch.value = may_fetch
        posts = agains = waits = cycles = 0
        while True:
            await RisingEdge(dut.clk)
            cycles += 1
            posts += int(dut.post.value)
            agains += int(dut.again.value)
            waits += bool(dut.o__valid.value)
            if dut.i__ready.value:
                break
        dut.i__valid.value = 0
        await RisingEdge(dut.clk)
        passed, errors = fetched.take_all(), refused.take_all()
        if Visit(found["kind"]) is not Visit.DOORBELL:
            way, expected = "passes", (1, 0, 0, 0)
            assert waits == cycles
        elif not found["ring"]["exists"]:
            way, expected = "deaf", (0, 0, 0, 0)
        elif not found["known"] <= found["claim"] <= size:
            way, expected = "refused", (0, 1, 0, 0)
        elif found["failed"] or not may_fetch:
            way, expected = "later", (0, 0, 1, 1)
        else:
            way, expected = "fetches", (1, 0, 1, 0)
            assert waits == cycles - 1
        assert (len(passed), len(errors), posts, agains) == expected, way
        assert passed in ([], [found])
        assert errors in ([], [{"qp": found["qp"], "index": found["posted"]}])
        if way in ("deaf", "later"):
            assert cycles == 2
        ways[way] += 1
    assert min(ways.values()) > 20, ways
