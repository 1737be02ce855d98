"""The LLP is granted what the ring and the list have room for, and never less than before."""

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from stagecoach.gateware.tcp.segment_list import PLACES
from stagecoach.gateware.tcp.transmit_grant import (
    GRANTED_SEGMENTS,
    RESERVED_PLACES,
    TransmitGrant,
)
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

SPACE = 1 << 32
CYCLES = 5
SMALLEST_RING = 1 << 17


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_grants_at_random(dut: Any) -> None:
    """Positions count from SND.UNA, whose number may be near the end of all numbers."""
    rng = seeded_random()
    await start_clock_and_reset(dut)
    seen = {"due": 0, "crowded": 0, "ring": 0}
    for _ in range(2000):
        una = rng.choice([rng.getrandbits(32), SPACE - 1 - rng.randrange(200_000)])
        size = rng.choice([0, 0, 1, 13])
        ring = SMALLEST_RING << size
        emss = rng.choice([1, 536, 1460, 8960, (1 << 14) - 1])
        end = rng.choice([rng.randrange(2000), ring - rng.randrange(150_000) % ring])
        most = min(ring, end + GRANTED_SEGMENTS * emss)
        granted = max(end, most - rng.choice([0, emss - 1, emss, emss + 1, 3 * emss, -1]))
        free = rng.choice([RESERVED_PLACES - 1, RESERVED_PLACES, 0, PLACES - 1, 20])
        dut.una.value, dut.end.value = una, (una + end) % SPACE
        dut.granted.value, dut.emss.value, dut.size.value = (una + granted) % SPACE, emss, size
        dut.free.value = free
        await ClockCycles(dut.clk, CYCLES + 1)
        crowded = free < RESERVED_PLACES
        due = not crowded and most - granted >= emss
        assert bool(dut.crowded.value) == crowded
        assert int(dut.number.value) == (una + most) % SPACE
        assert bool(dut.due.value) == due
        seen["due"] += due
        seen["crowded"] += crowded
        seen["ring"] += most == ring
    assert min(seen.values()) > 100, seen


def test_transmit_grant() -> None:
    run_cocotb(TransmitGrant(), __name__)
