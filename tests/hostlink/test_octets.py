"""Messages queue without being torn, mixed or lost."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.hostlink.octets import OCTET, MessageArbiter, OctetBuffer
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_buffer(pattern):
    parameters = {"PATTERN": pattern}
    run_cocotb(OctetBuffer(64), __name__, test_filter="buffer", parameters=parameters)


@pytest.mark.parametrize("pattern", ["always", "random"])
def test_arbiter(pattern):
    parameters = {"PATTERN": pattern}
    run_cocotb(MessageArbiter(3), __name__, test_filter="arbiter", parameters=parameters)


def message(rng, first: int) -> list[dict[str, int]]:
    octets = [first, *rng.randbytes(rng.randrange(12))]
    return [{"octet": octet, "last": int(i == len(octets) - 1)} for i, octet in enumerate(octets)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_buffer(dut):
    rng = seeded_random(parameter("PATTERN"))
    sink = StreamSink(dut, "o", OCTET, rng=rng, pattern=parameter("PATTERN"))
    StreamMonitor(dut, "o", OCTET)
    for name in ("i__valid", "i__payload", "commit", "drop"):
        getattr(dut, name).value = 0
    await start_clock_and_reset(dut)
    kept = []
    for number in range(120):
        octets = message(rng, number)
        for item in octets:
            dut.i__valid.value = 1
            dut.i__payload.value = item["octet"] | item["last"] << 8
            await RisingEdge(dut.clk)
            while not dut.i__ready.value:
                await RisingEdge(dut.clk)
        dut.i__valid.value = 0
        wanted = rng.random() < 0.6
        dut.commit.value = int(wanted)
        dut.drop.value = int(not wanted)
        await RisingEdge(dut.clk)
        dut.commit.value = dut.drop.value = 0
        if wanted:
            kept += octets
    assert len(kept) > 200
    assert await sink.get_many(len(kept)) == kept
    await ClockCycles(dut.clk, 20)
    assert not len(sink)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_arbiter(dut):
    rng = seeded_random(parameter("PATTERN"))
    pattern = parameter("PATTERN")
    sources = [StreamSource(dut, f"i__{n}", OCTET, rng=rng, pattern=pattern) for n in range(3)]
    sink = StreamSink(dut, "o", OCTET, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o", OCTET)
    await start_clock_and_reset(dut)
    sent = {n: [message(rng, n) for _ in range(20)] for n in range(3)}
    for number, messages in sent.items():
        for one in messages:
            sources[number].put_all(one)
    came: dict[int, list] = {n: [] for n in range(3)}
    order = []
    for _ in range(60):
        one = await sink.get_until()
        came[one[0]["octet"]].append(one)
        order.append(one[0]["octet"])
    assert came == sent
    if pattern == "always":  # everyone has its turn
        assert order == [(order[0] + i) % 3 for i in range(60)]
