"""Ranges become a SACK option, octet by octet as RFC 2018 has it, with their sum."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.layouts import FRAME_WORD
from stagecoach.gateware.tcp.ranges import RANGES, ranges_layout
from stagecoach.gateware.tcp.sack_blocks import SackBlocks
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from stagecoach.sim.model.tcp.checksum import checksum
from tests.support.runner import parameter, run_cocotb
from tests.tcp.asked_ranges import parts_of

ASKED = 200


@pytest.mark.parametrize("connections", [2, 256])
@pytest.mark.parametrize("pattern", ["always", "random"])
def test_sack_blocks(pattern: str, connections: int) -> None:
    parameters = {"PATTERN": pattern, "CONNECTIONS": str(connections)}
    run_cocotb(SackBlocks(connections), __name__, parameters=parameters)


@pytest.mark.parametrize("connections", [1, 257])
def test_other_sizes_are_refused(connections: int) -> None:
    with pytest.raises(ValueError, match=f"connections is {connections}; allowed: 2 to 256"):
        SackBlocks(connections)


def test_the_option_is_that_of_rfc_2018() -> None:
    """Section 7, case 2: the first segment, from 5000 on, is lost; 5500 to 6000 came."""
    assert option([(5500, 6000)]) == bytes.fromhex("0101 050a 0000157c 00001770")


def option(blocks: list[tuple[int, int]]) -> bytes:
    """Two NOPs, kind 5, length, and the edges of each block (RFC 2018, 3)."""
    if not blocks:
        return b""
    edges = b"".join(edge.to_bytes(4, "big") for block in blocks for edge in block)
    return bytes([1, 1, 5, 2 + len(edges)]) + edges


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_options_are_those_of_the_ranges(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    sink = StreamSink(dut, "o", FRAME_WORD, rng=rng, pattern=pattern)
    StreamMonitor(dut, "o", FRAME_WORD)
    dut.begin.value = dut.ask__ready.value = 0
    await start_clock_and_reset(dut)
    for number in range(ASKED):
        used = number if number <= RANGES else rng.randint(0, RANGES)
        places = [(rng.getrandbits(32), rng.getrandbits(32)) for _ in range(RANGES)]
        places[0] = rng.choice([places[0], (0, (1 << 32) - 1)])
        order = rng.sample(range(RANGES), RANGES)
        state = {
            "list": [{"first": first, "end": end} for first, end in places],
            "order": order,
            "used": used,
        }
        allowed = rng.random() < 0.9
        dut.allowed.value, used = allowed, used if allowed else 0
        expected = option([places[place] for place in order[:used]])
        connection = rng.randrange(int(parameter("CONNECTIONS")))
        dut.begin.value, dut.connection.value = 1, connection
        await RisingEdge(dut.clk)
        dut.begin.value, dut.connection.value = 0, rng.getrandbits(len(dut.connection))
        # There may be none any more when they are asked for.
        some = bool(state["used"]) or rng.random() < 0.5
        dut.out_of_order.value = some
        await RisingEdge(dut.clk)
        dut.out_of_order.value = rng.getrandbits(1)
        assert not int(dut.ask__valid.value)
        # Asked until taken, and each part of the answer is there for one cycle.
        for _ in range(rng.choice([0, 0, 5]) if some else 0):
            await RisingEdge(dut.clk)
            assert int(dut.ask__valid.value) and int(dut.ask__payload.value) == connection
        cycles = 0
        if some:
            dut.ask__ready.value = 1
            await RisingEdge(dut.clk)
            assert int(dut.ask__valid.value) and int(dut.ask__payload.value) == connection
            dut.ask__ready.value = 0
            for part in parts_of(pack(ranges_layout(), state), rng):
                dut.ranges.value = part
                await RisingEdge(dut.clk)
                assert not int(dut.ask__valid.value) and not int(dut.done.value)
                cycles += 1
            dut.ranges.value = rng.getrandbits(len(dut.ranges))
        while True:
            await RisingEdge(dut.clk)
            cycles += 1
            if int(dut.done.value):
                break
        assert cycles == ((11 if used else 5) if some else 2)
        assert int(dut.octets.value) == len(expected)
        if used:
            assert ~int(dut.sum.value) & 0xFFFF == checksum(expected)
        else:
            assert int(dut.sum.value) == 0
        words = await sink.get_many(-(-len(expected) // 8))
        found = b"".join(word["data"].to_bytes(8, "little") for word in words)
        assert found[: len(expected)] == expected
        assert [word["last"] for word in words] == [0] * (len(words) - 1) + [1] * bool(words)
        assert int(dut.done.value), "until the next begin"
