"""What is sent is what the windows allow, and no silly part of it."""

from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.tcp.send_window import SendMode, SendWindow
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from tests.support.runner import run_cocotb

SPACE = 1 << 32
CYCLES = 4
CYCLES_AFTER = 2
LARGEST = (1 << 14) - 1


def some_octets(rng: Random, *near: int) -> int:
    """Around one of those, or anything."""
    anything = rng.choice(
        [0, 1, rng.randrange(3000), rng.randrange(1 << 20), rng.randrange(1 << 30)]
    )
    return rng.choice([anything, *(max(0, each + rng.randint(-1, 1)) for each in near)])


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_windows_at_random(dut: Any) -> None:
    """RFC 9293, 3.8.6.2.1; positions count from SND.UNA, whose number may be near the end."""
    rng = seeded_random()
    await start_clock_and_reset(dut)
    for _ in range(3000):
        una = rng.choice([rng.getrandbits(32), SPACE - 1 - rng.randrange(3000)])
        full = rng.choice([0, 1, 1460, rng.randrange(3000), LARGEST])
        position = some_octets(rng, full)
        waiting = full and rng.choice([full, full, full + 1, full + some_octets(rng)])
        sent = some_octets(rng, position, position + full, position + full + 1)
        sent = max(sent, position)
        limit = some_octets(rng, position, position + full)
        window = some_octets(rng, position, position + full, position + full + 1)
        largest = some_octets(rng, window, 2 * (window - position), 2 * (limit - position))
        largest = max(largest, window)
        closing = rng.getrandbits(1)
        mode = rng.choice(list(SendMode))
        if mode is SendMode.PROBE:
            position = 0
        dut.mode.value = mode.value
        dut.una.value, dut.number.value = una, (una + position) % SPACE
        dut.highest.value = (una + sent) % SPACE
        dut.end.value = (una + position + waiting) % SPACE
        dut.closing.value, dut.limit.value = closing, limit
        held = rng.random() < 0.2
        dut.held.value = held
        dut.window.value, dut.max_window.value = window, largest
        dut.full.value = rng.getrandbits(14)
        await ClockCycles(dut.clk, CYCLES - 1)
        dut.full.value = full
        await ClockCycles(dut.clk, 1)
        dut.full.value = rng.getrandbits(14)

        usable = (min(limit, window) if mode is SendMode.NEW else window) - position
        octets = full if mode is SendMode.AGAIN else max(0, min(full, usable))
        whole = octets == full and (usable >= 0 or mode is SendMode.AGAIN)
        last = whole and waiting == full
        fin, sends = False, mode is SendMode.AGAIN or octets > 0
        if mode is SendMode.NEW:
            fin = bool(closing) and last and octets < window - position
            sends = fin or (octets > 0 and (whole or 2 * octets >= largest))
            sends = sends and not (held and last)
        elif mode is SendMode.AGAIN:
            fin = bool(closing) and last and sent > position + octets
        await ClockCycles(dut.clk, CYCLES_AFTER)
        found = {
            name: int(getattr(dut, name).value)
            for name in (
                *("octets", "fin", "whole", "last", "sends", "following", "advances"),
                *("some", "one"),
            )
        }
        # A cycle later `full` counts again.
        assert found["following"] == (una + position + found["octets"] + found["fin"]) % SPACE
        del found["following"]
        expected = {
            "octets": octets,
            "fin": int(fin),
            "whole": int(whole),
            "last": int(last),
            "sends": int(sends),
            "advances": int(position + octets + fin > sent),
            "some": int(waiting > 0),
            "one": int(waiting == 1),
        }
        assert found == expected, (mode, position, waiting, sent, limit, window, largest, closing)


@pytest.mark.requirement("TCP-MUST-38")
def test_send_window() -> None:
    run_cocotb(SendWindow(), __name__)
