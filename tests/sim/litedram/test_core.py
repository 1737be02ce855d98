"""The model of the core: lanes read right in their windows alone, and only while they may."""

import pytest

from stagecoach.hw.interface.litedram import CAS, CS, RAS, RDDATA, REGISTERS, SEL, STEPS, WE, WRDATA
from stagecoach.sim.litedram.core import READ_CYCLES, LiteDram, ReadsRight
from stagecoach.sim.litedram.ddr3 import T_RESET

DATA = (0x1A2B3C4D5E6F7081, 0x92A3B4C5D6E7F809)


class Core:
    """A core whose memory is initialised, and has a burst."""

    def __init__(self, *lanes):
        self.core, self.now = LiteDram(lanes), 0
        self.write("sdram_dfii_control", 0)
        self.now += T_RESET
        for step in STEPS:
            self.write("sdram_dfii_pi0_address", step.address)
            self.write("sdram_dfii_pi0_baddress", step.bank)
            if step.command is not None:
                self.write("sdram_dfii_pi0_command", step.command)
                self.write("sdram_dfii_pi0_command_issue", 1)
            else:
                self.write("sdram_dfii_control", step.control)
            self.now += 2 * step.wait
        self.write("sdram_dfii_pi0_baddress", 0)
        for phase in range(2):
            self.write(f"sdram_dfii_pi{phase}_wrdata", DATA[phase])
        self.access(1, CAS | WE | CS | WRDATA)

    def write(self, name, value):
        for word in range(REGISTERS[name].words):
            self.now += 6
            shift = 32 * (REGISTERS[name].words - 1 - word)
            address = REGISTERS[name].address + 4 * word
            self.core.write(self.now, address, value >> shift & 0xFFFFFFFF)

    def read(self, name):
        value = 0
        for word in range(REGISTERS[name].words):
            self.now += 6
            value = value << 32 | self.core.read(self.now, REGISTERS[name].address + 4 * word)
        return value

    def access(self, phase, command):
        for number, what, address in ((1 - phase, RAS | CS, 0), (phase, command, 1 << 10)):
            self.write(f"sdram_dfii_pi{number}_command", what)
            self.write(f"sdram_dfii_pi{number}_address", address)
        for number in (1 - phase, phase):
            self.write(f"sdram_dfii_pi{number}_command_issue", 1)

    def right(self):
        """Whether lanes read right."""
        self.write("ddrphy_burstdet_clr", 1)
        self.access(0, CAS | CS | RDDATA)
        self.now += READ_CYCLES
        found = [self.read(f"sdram_dfii_pi{phase}_rddata") for phase in range(2)]
        masks = [0x00FF00FF00FF00FF << 8 * lane for lane in range(2)]
        return [
            all((one ^ other) & mask == 0 for one, other in zip(found, DATA, strict=True))
            for mask in masks
        ]

    def set(self, lanes, bitslip, delay):
        self.write("ddrphy_dly_sel", lanes)
        for name, count in (("rdly_dq", delay), ("rdly_dq_bitslip", bitslip)):
            self.write(f"ddrphy_{name}_rst", 1)
            step = name if name.endswith("bitslip") else f"{name}_inc"
            for _ in range(count):
                self.write(f"ddrphy_{step}", 1)
        self.write("ddrphy_dly_sel", 3)
        self.write("ddrphy_dly_sel", 0)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (2, 4), (7, 7)])
def test_a_lane_reads_right_in_its_window_alone(first, last):
    core = Core([ReadsRight(1, first, last)], [ReadsRight(3, 0, 7)])
    for bitslip in range(4):
        for delay in range(8):
            core.set(3, bitslip, delay)
            is_in = first <= delay <= last
            assert core.right() == [bitslip == 1 and is_in, bitslip == 3]
            assert core.read("ddrphy_burstdet_seen") == is_in | 2
    assert not core.core.chip.violations


def test_lanes_are_set_apart_and_counters_go_round():
    core = Core([ReadsRight(1, 2, 2)], [ReadsRight(2, 3, 3)])
    core.set(1, 1, 2)
    core.set(2, 2, 3)
    assert core.right() == [True, True]
    core.set(1, 5, 10)
    assert core.right() == [True, True]


def test_lanes_that_pause_or_went_on_apart_read_wrong():
    core = Core(*[[ReadsRight(0, 0, 7)]] * 2)
    assert core.right() == [True, True]
    core.write("ddrphy_dly_sel", 1)
    assert core.right() == [False, True]
    core.write("ddrphy_dly_sel", 0)
    assert core.right() == [False, False]
    core.write("ddrphy_dly_sel", 3)
    core.write("ddrphy_dly_sel", 0)
    assert core.right() == [True, True]


@pytest.mark.parametrize(
    ("phase", "command"), [(1, CAS | CS | RDDATA), (0, CAS | CS), (0, RAS | CS)]
)
def test_another_command_brings_nothing(phase, command):
    core = Core(*[[ReadsRight(0, 0, 7)]] * 2)
    core.access(phase, command)
    core.now += READ_CYCLES
    assert core.read("sdram_dfii_pi0_rddata") != DATA[0]


def test_with_the_controller_software_reaches_nothing():
    core = Core(*[[ReadsRight(0, 0, 7)]] * 2)
    core.write("sdram_dfii_control", SEL)
    core.access(0, CAS | CS | RDDATA)
    core.now += READ_CYCLES
    assert core.read("sdram_dfii_pi0_rddata") == 0


def test_it_has_two_lanes():
    with pytest.raises(ValueError, match=r"1 lanes; allowed: 2"):
        LiteDram([[]])
