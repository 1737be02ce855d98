"""Bursts of software keep the timing of the memory, whenever the controller refreshes it."""

import pytest

from stagecoach.host_driver.board_memory.bursts import BURST_OCTETS, Bursts
from stagecoach.host_driver.board_memory.errors import Place
from stagecoach.host_driver.board_memory.window import ControllerWindow
from stagecoach.sim.litedram.core import LiteDram, ReadsRight
from stagecoach.sim.litedram.ddr3 import T_REFI
from tests.host_driver.board_memory.fake_board import HOST_CYCLES, FakeBoard

PLACE = Place(3, 0x1234, 0x18)
ALWAYS = [[ReadsRight(0, 0, 7)]] * 2


def begin(**options):
    device = FakeBoard(LiteDram(ALWAYS), **options)
    bursts = Bursts(ControllerWindow(device, device.sleep))
    bursts.initialise()
    device.sleep(1e-3)
    return device, bursts


def until(device, offset):
    """Waits until a refresh is due in so many cycles."""
    device.now += (-offset - device.now) % T_REFI


def test_a_refresh_at_any_time_before_a_burst_and_after_it():
    device, bursts = begin()
    for offset in range(T_REFI):
        octets = offset.to_bytes(BURST_OCTETS, "little")
        until(device, offset)
        bursts.write(PLACE, octets)
        until(device, offset)
        assert bursts.read(PLACE) == (octets, 0b11)
    assert not device.core.chip.violations


@pytest.mark.parametrize("offset", range(0, T_REFI, 15))
def test_refreshes_that_are_all_due_in_the_middle_of_a_burst(offset):
    device, bursts = begin(host_cycles=5)
    for _ in range(12):
        until(device, offset)
        bursts.write(PLACE, bytes(BURST_OCTETS))
    assert not device.core.chip.violations


def test_the_host_may_be_slow():
    device, bursts = begin(host_cycles=100 * HOST_CYCLES)
    octets = bytes(range(BURST_OCTETS))
    bursts.write(PLACE, octets)
    assert bursts.read(PLACE) == (octets, 0b11)
    assert not device.core.chip.violations


@pytest.mark.parametrize("octets", [BURST_OCTETS - 1, BURST_OCTETS + 1])
def test_a_burst_has_its_size(octets):
    device, bursts = begin()
    before = device.accesses
    with pytest.raises(ValueError, match=r"bytes of a burst; allowed: 16"):
        bursts.write(PLACE, bytes(octets))
    assert device.accesses == before
