"""A failed read is told once, with the first unit that is not there; a refused doorbell always."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.queues.fetch.failure import FetchFailure
from stagecoach.gateware.queues.fetch.visit import found_layout, refused_layout
from stagecoach.gateware.queues.unit_arrivals import COUNT_BITS
from stagecoach.hw.interface.causes import Cause
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.queues.fetch.bench import (
    MEMORIES,
    MOD,
    both_sizes,
    config,
    memory,
    random_fields,
    random_found,
)
from tests.support.runner import parameter, run_cocotb

VISITS = 800
FIELDS = ("qp", "index", "cause")


@both_sizes
@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_fetch_failure(size, pattern):
    parameters = {"SIZE": size, "PATTERN": pattern}
    run_cocotb(FetchFailure(MEMORIES[size]), __name__, parameters=parameters)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_errors_of_a_ring(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    layout, refusal = found_layout(memory()), refused_layout(config())
    errors = StreamSink(dut, "error", Layouts(config()).qp_error, rng=rng, pattern=pattern)
    StreamMonitor(dut, "error", keep=False)
    dut.failed__valid.value = dut.refused__valid.value = 0
    dut.popped_since.value = dut.counting.value = 0
    await start_clock_and_reset(dut)
    expected, seen = [], []
    ways = dict.fromkeys(("told", "popped", "tells", "counting", "waits", "refused"), 0)
    for _ in range(VISITS):
        if rng.random() < 0.4:
            refused = random_fields(rng, refusal)
            dut.refused__valid.value, dut.refused__payload.value = 1, pack(refusal, refused)
            waited = True
            while waited:
                await RisingEdge(dut.clk)
                assert not dut.tell.value and not dut.again.value
                # It waits for the error before, and for nothing else.
                waited = bool(dut.error__valid.value)
                assert bool(dut.refused__ready.value) != waited
            cause, way = Cause.LOCAL_BAD_ENTRY, "refused"
            expected.append({"qp": refused["qp"], "index": refused["index"], "cause": cause})
            dut.refused__valid.value = 0
        else:
            found = random_found(rng, told=int(rng.random() < 0.3))
            popped = rng.random() < 0.3
            dut.failed__valid.value, dut.failed__payload.value = 1, pack(layout, found)
            dut.popped_since.value = popped
            await RisingEdge(dut.clk)
            assert not dut.tell.value and not dut.again.value and not dut.failed__ready.value
            await RisingEdge(dut.clk)
            assert not dut.tell.value
            if found["told"] or popped:
                way = "told" if found["told"] else "popped"
                assert dut.failed__ready.value
                assert bool(dut.again.value) == (not found["told"])
            else:
                assert not dut.failed__ready.value and not dut.again.value
                # What is popped from now on is noticed by others.
                dut.popped_since.value = rng.getrandbits(1)
                counting = rng.random() < 0.2
                dut.counting.value = counting
                await RisingEdge(dut.clk)
                assert dut.failed__ready.value
                waits = bool(dut.error__valid.value)
                way = "counting" if counting else "waits" if waits else "tells"
                assert bool(dut.tell.value) == (way == "tells") != bool(dut.again.value)
                if way == "tells":
                    index = (found["popped"]["number"] + found["on_chip"]) % MOD
                    cause = Cause.HOST_READ_ERROR
                    expected.append({"qp": found["qp"], "index": index, "cause": cause})
                    assert int(dut.count.value) == index % (1 << COUNT_BITS)
            dut.failed__valid.value = dut.counting.value = 0
        ways[way] += 1
        for _ in range(rng.choice([0, 0, 1, 12])):
            dut.failed__payload.value = rng.getrandbits(len(dut.failed__payload))
            dut.refused__payload.value = rng.getrandbits(len(dut.refused__payload))
            await RisingEdge(dut.clk)
            assert not dut.tell.value and not dut.again.value
        seen += errors.take_all()
    while len(seen) < len(expected):
        seen.append(await errors.get())
    assert [{name: error[name] for name in FIELDS} for error in seen] == expected
    if pattern == "always":
        assert not ways.pop("waits")
    assert min(ways.values()) > 10, ways
