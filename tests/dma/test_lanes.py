"""Octets move between the lanes of a word as lists of octets do, for every rotation and choice."""

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from stagecoach.gateware.config import WORD_OCTETS
from stagecoach.gateware.dma.lanes import choose_lanes, lanes_below, rotate_lanes
from stagecoach.sim.cosim.streams import seeded_random
from tests.support.runner import run_cocotb


class Lanes(wiring.Component):
    """The functions of `dma/lanes.py`, each with an output."""

    word: In(64)
    other: In(64)
    lane: In(4)
    choice: In(8)
    rotated: Out(64)
    below: Out(8)
    chosen: Out(64)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.rotated.eq(rotate_lanes(self.word, self.lane[:3])),
            self.below.eq(lanes_below(self.lane)),
            self.chosen.eq(choose_lanes(self.choice, self.word, self.other)),
        ]
        return m


def test_lanes():
    run_cocotb(Lanes(), __name__)


def octets_of(value):
    return int(value).to_bytes(WORD_OCTETS, "little")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_octets_go_to_the_lanes_of_the_model(dut):
    rng = seeded_random()
    for lane in range(WORD_OCTETS + 1):
        for choice in range(1 << WORD_OCTETS):
            word, other = rng.randbytes(WORD_OCTETS), rng.randbytes(WORD_OCTETS)
            dut.word.value = int.from_bytes(word, "little")
            dut.other.value = int.from_bytes(other, "little")
            dut.lane.value, dut.choice.value = lane, choice
            await Timer(1, "ns")
            shift = lane % WORD_OCTETS
            assert octets_of(dut.rotated.value) == word[-shift:] + word[:-shift], lane
            assert int(dut.below.value) == (1 << lane) - 1
            assert octets_of(dut.chosen.value) == bytes(
                (word if choice >> number & 1 else other)[number] for number in range(WORD_OCTETS)
            ), f"{choice:08b}"
