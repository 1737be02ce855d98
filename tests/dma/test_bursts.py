"""Commands are cut into AXI bursts that hold exactly their words and cross no 4 KiB boundary."""

import cocotb
import pytest

from stagecoach.gateware.dma.bursts import BurstSplitter, burst, tagged_command
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

TAG_BITS = 3
PAGE = 4096
LONGEST = 65535


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
@pytest.mark.parametrize("max_beats", [1, 32, 256])
def test_burst_splitter(max_beats, pattern):
    run_cocotb(
        BurstSplitter(max_beats, TAG_BITS),
        __name__,
        parameters={"MAX_BEATS": str(max_beats), "PATTERN": pattern},
    )


@pytest.mark.parametrize("max_beats", [0, 24, 512])
def test_max_beats_is_checked(max_beats):
    with pytest.raises(ValueError, match=f"max_beats is {max_beats}"):
        BurstSplitter(max_beats)


def bursts_of(address, octets, tag, max_beats):
    """The bursts: one for each block of `max_beats` words that the command touches."""
    block = 8 * max_beats
    end = address + octets
    starts = [address & ~7, *range(address // block * block + block, end, block)]
    ends = [*starts[1:], end]
    return [
        {
            "address": start,
            "beats": -(-(stop - start) // 8) - 1,
            "first": int(start == starts[0]),
            "last": int(stop == end),
            "start_lane": address % 8,
            "end_lane": (end - 1) % 8,
            "tag": tag,
        }
        for start, stop in zip(starts, ends, strict=True)
    ]


def random_command(rng, max_beats):
    """A command of any length; often it begins or ends near a boundary that matters."""
    octets = min(rng.randint(1, rng.choice([9, 80 * max_beats, 400 * max_beats])), LONGEST)
    boundary = rng.getrandbits(51) * rng.choice([8 * max_beats, PAGE])
    offset = rng.choice([rng.randint(-9, 9), rng.randint(-9, 9) - octets, rng.randrange(PAGE)])
    return max(boundary + offset, 0), octets


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_bursts_are_those_of_the_model(dut):
    max_beats, pattern = int(parameter("MAX_BEATS")), parameter("PATTERN")
    rng = seeded_random(max_beats, pattern)
    source = StreamSource(dut, "i", tagged_command(TAG_BITS), rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", burst(TAG_BITS), rng=rng, pattern=pattern)
    monitor = StreamMonitor(dut, "o")
    await start_clock_and_reset(dut)
    commands = [random_command(rng, max_beats) for _ in range(100)]
    commands += [(PAGE - 1, 1), (PAGE - 1, 2), (PAGE, PAGE), (2**64 - 5, 5)]
    if pattern == "always":
        commands.append((7, LONGEST))
    expected = []
    for address, octets in commands:
        tag = rng.getrandbits(TAG_BITS)
        source.put({"address": address, "octets": octets, "tag": tag})
        expected += bursts_of(address, octets, tag, max_beats)
    got = await sink.get_many(len(expected))
    assert got == expected
    for item in got:
        assert item["beats"] < max_beats
        assert item["address"] // PAGE == (item["address"] + 8 * item["beats"]) // PAGE
    if pattern == "always":
        assert monitor.cycles <= len(expected) + 2 * len(commands) + 5
