"""A read of a ring is one piece, or two where the ring ends: as a ring in memory has the octets."""

from typing import Any

import cocotb
import pytest

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts
from stagecoach.gateware.tcp.ring_pieces import RING_READ, RingPieces
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

CONFIG = RnicConfig()
READS = 500
MOST = (1 << 16) - 1
"""Octets of the longest piece."""


@pytest.mark.parametrize("pattern", ["always", "random", "bursty"])
def test_ring_pieces(pattern: str) -> None:
    run_cocotb(RingPieces(CONFIG), __name__, parameters={"PATTERN": pattern})


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_pieces_name_the_octets_of_the_ring(dut: Any) -> None:
    pattern = parameter("PATTERN")
    rng = seeded_random(pattern)
    piece = Layouts(CONFIG).gather_piece
    source = StreamSource(dut, "i", RING_READ, rng=rng, pattern=pattern)
    sink = StreamSink(dut, "o", piece, rng=rng, pattern=pattern)
    monitor = StreamMonitor(dut, "o", piece)
    await start_clock_and_reset(dut)
    expected = []
    for number in range(READS):
        size = 1 << rng.randint(17, 24)
        ring = rng.randrange(1 << 47) & -size
        octets = rng.choice([1, 2, MOST, rng.randint(1, MOST)])
        # At the end of the ring to the octet, one past it, and anywhere.
        close = [size - octets, size - octets + 1, size - 1, rng.randrange(size)]
        begin = close[number] if number < len(close) else rng.choice(close)
        wrapped = max(0, begin + octets - size)
        inline = int(rng.random() < 0.1)
        if wrapped == octets:
            begin, wrapped = 0, 0
        read = {
            "address": ring + begin,
            "octets": octets,
            "wrapped": wrapped,
            "ring": ring,
            "inline": inline,
        }
        source.put(read)
        parts = [(ring + begin, octets - wrapped), *([(ring, wrapped)] if wrapped else [])]
        for at, (address, length) in enumerate(parts):
            last = int(at == len(parts) - 1)
            expected.append({"address": address, "octets": length, "last": last, "inline": inline})
    found = await sink.get_many(len(expected))
    assert found == expected
    await source.wait_idle()
    assert len(expected) > READS
    if pattern == "always":
        assert monitor.cycles <= len(expected) + 8, "a piece in each cycle"
