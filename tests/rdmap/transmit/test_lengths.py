"""Lengths and window of an FPDU are those of the model as soon as they are called settled."""

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.rdmap.transmit.lengths import TransmitLengths
from stagecoach.hw.interface.wire import TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS
from stagecoach.sim.model.mpa import fpdu_length
from tests.support.runner import run_cocotb

CASES = 1000
MOST_CYCLES = 20
HELD = ("payload", "tagged", "position", "room")


def test_transmit_lengths():
    run_cocotb(TransmitLengths(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_settled_lengths_are_those_of_the_model(dut):
    rng = seeded_random()
    dut.start.value = 0
    await start_clock_and_reset(dut)
    opened = 0
    for _ in range(CASES):
        tagged, markers, unlimited = (rng.getrandbits(1) for _ in range(3))
        header = TAGGED_HEADER_OCTETS if tagged else UNTAGGED_HEADER_OCTETS
        top = rng.choice([8, 600, 1442, MAX_ULPDU_LENGTH - header])
        payload = rng.choice([top, rng.randint(0, top)])
        ulpdu_length = header + payload
        position = 4 * rng.getrandbits(30)
        sent = fpdu_length(ulpdu_length, markers=bool(markers), position=position)
        room = rng.choice([sent + rng.randint(-2, 2), rng.getrandbits(rng.randint(1, 32))])

        dut.start.value, dut.unlimited.value = 1, unlimited
        dut.markers.value = markers
        for name in HELD:
            signal = getattr(dut, name)
            signal.value = rng.getrandbits(len(signal))
        await RisingEdge(dut.clk)
        dut.start.value, dut.unlimited.value = 0, rng.getrandbits(1)
        for name, value in zip(HELD, (payload, tagged, position, room), strict=True):
            getattr(dut, name).value = value
        cycles = 0
        await RisingEdge(dut.clk)
        while not dut.settled.value:
            cycles += 1
            assert cycles < MOST_CYCLES
            await RisingEdge(dut.clk)
        for _ in range(2):
            assert int(dut.ulpdu_length.value) == ulpdu_length
            if not unlimited:
                assert int(dut.sent_length.value) == sent
                assert bool(dut.window_open.value) == (sent <= room)
                until_marker = -position % MARKER_INTERVAL // MARKER_OCTETS
                assert int(dut.until_marker.value) == until_marker
            await RisingEdge(dut.clk)
        opened += sent <= room
        await ClockCycles(dut.clk, rng.randint(1, 3))
    assert CASES // 10 < opened < CASES - CASES // 10
