"""The count of Markers is that of the model for every position and many lengths."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import MAX_ULPDU_LENGTH
from stagecoach.gateware.mpa.marker_count import MarkerCount
from stagecoach.sim.cosim.streams import seeded_random, start_clock_and_reset
from stagecoach.sim.model.fpdu_sizes import fpdu_length
from stagecoach.sim.model.markers import MARKER_INTERVAL, MARKER_OCTETS, marked_length
from tests.support.runner import run_cocotb

LONGEST_FPDU = fpdu_length(MAX_ULPDU_LENGTH)
POSITIONS = MARKER_INTERVAL // MARKER_OCTETS
# Around the lengths at which a Marker more is needed, and the longest.
LENGTHS = sorted(
    {
        *range(4, 1100, 4),
        *(4 * (127 * k + d) for k in (31, 63, 64, 126, 127) for d in range(-2, 3)),
        *range(LONGEST_FPDU - 520, LONGEST_FPDU + 4, 4),
    }
)


@pytest.mark.requirement("MPA-4.3-02", "MPA-4.3-07")
def test_marker_count():
    run_cocotb(MarkerCount(), __name__)


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_markers_and_next_position_are_those_of_the_model(dut):
    rng = seeded_random()
    await start_clock_and_reset(dut)
    values = [(length, until) for length in LENGTHS for until in range(POSITIONS)]
    values += [
        (4 * rng.randint(1, LONGEST_FPDU // 4), rng.randrange(POSITIONS)) for _ in range(5000)
    ]
    for cycle in range(len(values) + MarkerCount.LATENCY + 1):
        if cycle < len(values):
            dut.fpdu_length.value, dut.until_marker.value = values[cycle]
        await RisingEdge(dut.clk)
        # What was driven after the edge before is sampled at this one.
        given = cycle - MarkerCount.LATENCY
        if 0 <= given < len(values):
            length, until = values[given]
            position = -until * MARKER_OCTETS % MARKER_INTERVAL
            marked = marked_length(length, position)
            following = -(position + marked) % MARKER_INTERVAL // MARKER_OCTETS
            assert (int(dut.octets.value), int(dut.until_next.value)) == (
                marked - length,
                following,
            ), values[given]
