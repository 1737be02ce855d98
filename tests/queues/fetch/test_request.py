"""Each read is one command and one tag, and no more are on their way than may be."""

from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.host_memory import MEMORY_COMMAND
from stagecoach.gateware.queues.fetch.request import FetchRequest
from stagecoach.gateware.queues.fetch.visit import read_layout
from stagecoach.gateware.queues.prefetch_memory import UNIT_OCTETS
from stagecoach.gateware.queues.unit_arrivals import RUN, arrival_tag
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
    unpack,
)
from tests.queues.fetch.bench import MEMORIES, both_sizes, config, memory, random_fields
from tests.support.runner import parameter, run_cocotb

READS = 600
OUTSTANDING = {"smallest": 1, "largest": 64}


@both_sizes
@pytest.mark.parametrize("pattern", ["always", "slow"])
def test_fetch_request(size, pattern):
    request = FetchRequest(MEMORIES[size], outstanding=OUTSTANDING[size])
    run_cocotb(request, __name__, parameters={"SIZE": size, "PATTERN": pattern})


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def check_reads_become_commands_and_tags(dut):
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    layout = read_layout(memory())
    tag_layout = arrival_tag(config(), memory().address_bits)
    commands = StreamSink(dut, "command", MEMORY_COMMAND, rng=rng, pattern=pattern)
    StreamMonitor(dut, "command", keep=False)
    dut.read__valid.value = dut.ended.value = 0
    dut.tag_room.value = room = 1
    await start_clock_and_reset(dut)
    read, outstanding, most, done = None, 0, 0, 0
    allowed = OUTSTANDING[parameter("SIZE")]
    expected = deque()
    before = None  # what the cycle before said of room
    while done < READS:
        # Most of the time they end more slowly than they begin.
        dut.ended.value = ended = int(outstanding > 0 and rng.random() < 0.01)
        if read is None and rng.random() < 0.8:
            read = random_fields(rng, layout, units=rng.randint(1, RUN))
            dut.read__payload.value = pack(layout, read)
        elif read is None:
            dut.read__payload.value = rng.getrandbits(len(dut.read__payload))
        dut.read__valid.value = read is not None
        await RisingEdge(dut.clk)
        requested = bool(dut.requested.value)
        may_fetch, waits = bool(dut.may_fetch.value), bool(dut.command__valid.value)
        assert bool(dut.quiet.value) == (outstanding == 0)
        assert bool(dut.read__ready.value) == may_fetch
        assert requested == (read is not None and may_fetch)
        # There was room for it in the cycle before.
        assert before is None or may_fetch == before
        before = not waits and not requested and outstanding < allowed and bool(room)
        assert not (requested and waits)
        fetches = requested and bool(read["home"]["in_lane"])
        assert bool(dut.fetch.value) == fetches
        if fetches:
            assert int(dut.fetch_lane.value) == read["home"]["lane"]
        if requested:
            tag = {"qp": read["qp"], "address": read["place"], "copies": read["copies"]}
            assert unpack(tag_layout, dut.tag.value) == tag
            octets = read["units"] * UNIT_OCTETS
            expected.append({"address": read["address"], "octets": octets})
            read, done = None, done + 1
        # It falls only when a tag came.
        if requested or not room:
            room = int(rng.random() < (0.8 if requested else 0.2))
        dut.tag_room.value = room
        outstanding += requested - ended
        most = max(most, outstanding)
        for found in commands.take_all():
            assert found == expected.popleft()
    assert most == allowed
