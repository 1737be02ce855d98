"""As many units are read as were posted, have room, and follow each other in ring and memory."""

import cocotb
import pytest
from amaranth.utils import exact_log2
from cocotb.triggers import RisingEdge

from stagecoach.gateware.queues.fetch.plan import FetchPlan
from stagecoach.gateware.queues.fetch.visit import Visit, found_layout, read_layout
from stagecoach.gateware.queues.prefetch_memory import LANE_UNITS, UNIT_OCTETS
from stagecoach.gateware.queues.unit_arrivals import RUN
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.queues.fetch.bench import MEMORIES, MOD, both_sizes, config, memory, random_found
from tests.support.runner import parameter, run_cocotb

VISITS = 1500


@both_sizes
@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_fetch_plan(size, pattern):
    parameters = {"SIZE": size, "PATTERN": pattern}
    run_cocotb(FetchPlan(MEMORIES[size]), __name__, parameters=parameters)


def place(found: dict, home: dict) -> int:
    """Where the unit stands: the larger of the two parts of the memory comes first."""
    own_units = memory().own_units
    own_bits = exact_log2(own_units * config().qps)
    lane_bits = exact_log2(LANE_UNITS * config().prefetch_lanes)
    second = 1 << max(own_bits, lane_bits)
    if home["in_lane"]:
        at = home["lane"] * LANE_UNITS + found["number"] % LANE_UNITS
        return at if lane_bits >= own_bits else second + at
    at = found["qp"] * own_units + found["number"] % own_units
    return at if lane_bits < own_bits else second + at


def plan(found: dict, home: dict) -> tuple[int, bool]:
    """Units to read, and whether there are more that could be read at once."""
    if found["kind"] == Visit.COPY.value:
        return 1, False
    size, own_units = 1 << found["ring"]["log2"], memory().own_units
    group = RUN if home["in_lane"] else min(RUN, own_units)
    run = min(group - found["number"] % group, size - found["number"] % size)
    ahead, used = found["ahead"], found["used"]
    wanted = min(ahead, run)
    if home["in_lane"]:
        units = wanted if used <= LANE_UNITS - RUN else 0
        return units, used <= max(RUN, own_units) and ahead > wanted
    room = max(0, own_units - used)
    return min(wanted, room), wanted < room and ahead > wanted


def visit(rng) -> dict:
    """Small numbers more often than others."""
    found = random_found(rng, kind=rng.choice([0, 0, 0, 1, 1, 3]))
    found["ring"]["log2"] = rng.choice([0, 1, 2, 3, 15, rng.randrange(16)])
    for name, most in (("ahead", 12), ("used", 12), ("claim", 12), ("on_chip", 2)):
        if rng.random() < 0.8:
            found[name] = rng.randrange(most)
    if rng.random() < 0.2:
        found["used"] = LANE_UNITS - RUN + rng.randrange(3) - 1
    return found


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_what_is_read(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    layout = found_layout(memory())
    reads = StreamSink(dut, "read", read_layout(memory()), rng=rng, pattern=pattern)
    StreamMonitor(dut, "read", keep=False)
    dut.found__valid.value = dut.lane_free.value = dut.free_lane.value = 0
    dut.popping.value = dut.popped_since.value = 0
    await start_clock_and_reset(dut)
    own_units = memory().own_units
    ways = dict.fromkeys(("bound", "popped", "starved", "read", "nothing", "copied", "more"), 0)
    for _ in range(VISITS):
        found = visit(rng)
        home = dict(found["home"])
        copies = found["kind"] == Visit.COPY.value
        lane_free, lane = rng.getrandbits(1), rng.randrange(config().prefetch_lanes)
        pops, popped_since = rng.randrange(3), rng.random() < 0.2
        while rng.random() < 0.3:
            dut.found__payload.value = rng.getrandbits(len(dut.found__payload))
            await RisingEdge(dut.clk)
            assert not any(
                port.value for port in (dut.count, dut.again, dut.bind, dut.starves, dut.units)
            )
        dut.found__valid.value, dut.found__payload.value = 1, pack(layout, found)
        dut.lane_free.value, dut.free_lane.value = lane_free, lane
        dut.popped_since.value = popped_since
        wants = found["ring"]["exists"] and not home["in_lane"] and found["claim"] > own_units
        wants = wants and not copies
        starves = agains = counts = binds = cycles = 0
        first_read = None
        while True:
            dut.popping.value = popping = cycles < 2 + pops
            await RisingEdge(dut.clk)
            starves += int(dut.starves.value)
            agains += int(dut.again.value)
            if dut.count.value:
                counts += 1
                assert dut.read__valid.value and dut.read__ready.value
            assert not bool(dut.found__ready.value) or not bool(dut.bind.value)
            if dut.bind.value:
                binds += 1
                assert not popping
                settled = unpack(memory().popped, dut.settled.value)
                assert settled["number"] == found["popped"]["number"]
                # Of the oldest units, those that are not fetched will come to the lane.
                fetched = min(found["used"], own_units)
                assert settled["in_lane"] == (1 << own_units) - (1 << fetched)
                assert unpack(memory().home, dut.moved.value) == {"in_lane": 1, "lane": lane}
            if dut.read__valid.value and first_read is None:
                first_read = cycles
            cycles += 1
            if dut.found__ready.value:
                break
            assert cycles < 400
        units_out = int(dut.units.value)
        dut.found__valid.value = 0
        await RisingEdge(dut.clk)
        read = reads.take_all()
        assert starves == (
            wants and not lane_free and found["kind"] == Visit.FETCH.value and not found["on_chip"]
        )
        ways["starved"] += starves
        if wants and lane_free and popped_since:
            # What was found of its oldest unit may be wrong.
            assert (len(read), agains, counts, binds) == (0, 1, 0, 0)
            ways["popped"] += 1
            continue
        assert binds == bool(wants and lane_free)
        if binds:
            home = {"in_lane": 1, "lane": lane}
            ways["bound"] += 1
        if copies:
            home["in_lane"] = 0
        units, more = plan(found, home)
        assert units_out == units
        assert counts == (units > 0 and not copies)
        assert agains == (counts and more)
        ways["more"] += agains
        ways["copied" if copies else "read" if units else "nothing"] += 1
        if not units:
            assert not read
            continue
        assert first_read == (1 if copies else 3 + (3 + pops if binds else 0))
        (read,) = read
        at = found["slot"] * UNIT_OCTETS + found["ring"]["base"]
        assert read == {
            "qp": found["qp"],
            "units": units,
            "address": at % (1 << 64),
            "place": place(found, home),
            "home": home,
            "copies": int(copies),
        }
        assert found["number"] < MOD
    assert min(ways.values()) > 10, ways
