"""A board's memory is started on a model, whose lanes read right in given windows only."""

from pathlib import Path

import pytest

from stagecoach.host_driver.board_memory.errors import (
    MemoryControllerError,
    MemoryNotLevelled,
    MemoryTestFailed,
)
from stagecoach.host_driver.board_memory.levelling import PATTERNS
from stagecoach.host_driver.board_memory.memory import BoardMemory
from stagecoach.hw.interface.litedram import GEOMETRY, SEL, SETTINGS
from stagecoach.sim.litedram.core import LiteDram, ReadsRight
from stagecoach.sim.litedram.ddr3 import Ddr3
from tests.host_driver.board_memory.fake_board import FakeBoard

PAGE = Path(__file__).parents[3] / "docs" / "board.md"

DELAYS, BITSLIPS = SETTINGS["delays"], SETTINGS["bitslips"]
GOOD = ([ReadsRight(1, 2, 5)], [ReadsRight(2, 1, 5)])


def board(*lanes, **faults):
    chip = {name: faults.pop(name) for name in ("wired", "kept") if name in faults}
    return FakeBoard(LiteDram(lanes, Ddr3(**chip)), **faults)


def memory_of(device, **options):
    return BoardMemory(device, device.sleep, **options)


def is_open(device):
    return device.core.values["ddrctrl_init_done"]


def has_failed(device):
    return device.core.values["ddrctrl_init_error"] and not is_open(device)


@pytest.mark.parametrize("bitslip", range(BITSLIPS))
@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 0), (0, 3), (0, DELAYS - 1), (3, 3), (2, 6), (DELAYS - 4, DELAYS - 1), (DELAYS - 1,) * 2],
)
def test_a_window_anywhere_and_of_any_width_is_found(bitslip, first, last):
    other = ReadsRight((bitslip + 1) % BITSLIPS, DELAYS - 1 - last, DELAYS - 1 - first)
    device = board([ReadsRight(bitslip, first, last)], [other])
    margins = memory_of(device).start()
    for lane, place in enumerate((ReadsRight(bitslip, first, last), other)):
        right = [
            (slip, delay)
            for slip in range(BITSLIPS)
            for delay in range(DELAYS)
            if margins.lanes[lane].right[slip][delay]
        ]
        assert right == [(place.bitslip, delay) for delay in range(place.first, place.last + 1)]
        assert device.core.bitslips[lane] == place.bitslip
        assert device.core.delays[lane] == (place.first + place.last) // 2
    assert margins.least == last - first + 1
    assert is_open(device) and not device.core.values["ddrctrl_init_error"]
    assert device.core.values["sdram_dfii_control"] == SEL
    assert not device.core.values["ddrphy_dly_sel"]
    assert not device.core.chip.violations


def test_the_wider_of_two_windows_is_chosen():
    lane = [ReadsRight(0, 0, 1), ReadsRight(1, 3, 7), ReadsRight(2, 2, 3)]
    device = board(lane, lane)
    assert memory_of(device).start().least == 5
    assert device.core.bitslips == [1, 1] and device.core.delays == [5, 5]


def test_a_delay_at_which_no_burst_is_detected_is_not_right():
    device = board([ReadsRight(1, 2, 4), ReadsRight(1, 5, 7, detected=False)], GOOD[1])
    (window,) = memory_of(device).start().lanes[0].windows
    assert (window.first, window.last) == (2, 4)


@pytest.mark.parametrize("none", [0, 1])
def test_a_lane_without_a_window_is_named_with_all_margins(none):
    lanes = list(GOOD)
    lanes[none] = []
    device = board(*lanes)
    with pytest.raises(MemoryNotLevelled, match=f"byte lane {none} reads right at no") as caught:
        memory_of(device).start()
    assert caught.value.margins.lanes[none].chosen is None
    assert caught.value.margins.lanes[1 - none].chosen is not None
    assert str(caught.value.margins) in str(caught.value)
    assert has_failed(device)
    assert not device.core.chip.violations


def test_two_lanes_without_a_window():
    with pytest.raises(MemoryNotLevelled, match="byte lane 0 and 1 reads right at no") as caught:
        memory_of(board([], [])).start()
    assert caught.value.margins.least == 0


def test_a_lane_that_forgets_its_delay_is_named():
    device = board(*GOOD)
    write = device.core.write
    # What is set one lane at a time, which is the choice, does not come to lane 1.
    selected = []

    def forgetful(now, address, word):
        if address == 0x800:
            selected.append(word)
        if not (selected and selected[-1] == 2 and address == 0x808):
            write(now, address, word)

    device.core.write = forgetful
    with pytest.raises(MemoryNotLevelled, match="byte lane 1 reads wrong at the chosen delay"):
        memory_of(device).start()
    assert has_failed(device)


@pytest.mark.parametrize("bits", [0b1, 1 << 7, 1 << 8, 1 << 15])
def test_a_cell_that_does_not_hold_a_bit_fails_the_test(bits):
    # What levelling writes is held.
    levelled = [
        [int.from_bytes(pattern[at : at + 2], "little") for at in range(0, 16, 2)]
        for pattern in PATTERNS
    ]
    device = board(
        *GOOD, kept=lambda _, words: words if words in levelled else [w | bits for w in words]
    )
    with pytest.raises(MemoryTestFailed, match="data test at bank 0, row 0x0, column 0x0") as found:
        memory_of(device).start()
    assert found.value.read != found.value.written
    assert found.value.margins.least == 4
    assert has_failed(device)


ADDRESS_PINS = [
    *(("bank", bit) for bit in range(GEOMETRY["bankbits"])),
    *(("row", bit) for bit in range(GEOMETRY["rowbits"])),
    *(("column", bit) for bit in range(3, GEOMETRY["colbits"])),
]


@pytest.mark.parametrize(("part", "bit"), ADDRESS_PINS)
@pytest.mark.parametrize("stuck", [0, 1])
def test_an_address_pin_that_is_stuck_fails_the_test(part, bit, stuck):
    index = ("bank", "row", "column").index(part)

    def wired(place):
        parts = list(place)
        parts[index] = parts[index] | 1 << bit if stuck else parts[index] & ~(1 << bit)
        return tuple(parts)

    device = board(*GOOD, wired=wired)
    with pytest.raises(MemoryTestFailed, match="address test at") as found:
        memory_of(device).start()
    assert found.value.margins is not None
    assert has_failed(device)


def test_two_address_pins_that_are_one_fail_the_test():
    def wired(place):
        bank, row, column = place
        both = (row >> 4 | row >> 9) & 1
        return bank, row | both << 4 | both << 9, column

    device = board(*GOOD, wired=wired)
    with pytest.raises(MemoryTestFailed, match="address test at"):
        memory_of(device).start()


@pytest.mark.parametrize(
    ("failure", "words"),
    [("error", "answers an access with an error"), ("late", "does not answer: no clock")],
)
@pytest.mark.parametrize("number", [1, 2, 50, 300, 5000])
def test_a_controller_that_fails_at_any_time_is_told(failure, words, number):
    device = board(*GOOD, fails=lambda access: failure if access >= number else None)
    with pytest.raises(MemoryControllerError, match=words):
        memory_of(device).start()
    assert not is_open(device)


def test_a_queue_that_stays_busy_ends_after_its_time():
    device = board(*GOOD)
    memory = memory_of(device, busy_seconds=0.05)
    device.is_stuck = True
    with pytest.raises(MemoryControllerError, match=r"MEMORY_STATUS.busy is 1 for 0.05 s"):
        memory.start()


def test_it_can_be_started_again_and_says_whether_it_was():
    device = board([], GOOD[1])
    memory = memory_of(device)
    assert not memory.is_ready
    with pytest.raises(MemoryNotLevelled):
        memory.start()
    device.core._lanes = GOOD
    assert not memory.is_ready
    memory.start()
    assert memory.is_ready
    open_at = []
    memory.start(lambda *step: open_at.append((step[0], is_open(device))))
    assert not any(is_open for step, is_open in open_at if step != "initialisation")
    assert memory.is_ready
    assert not device.core.chip.violations


def test_a_start_takes_so_many_accesses_as_the_page_says():
    device = board(*GOOD)
    memory_of(device).start()
    assert 16_000 < device.host_accesses < 17_000
    assert "some 16,500 accesses" in PAGE.read_text()


def test_progress_comes_to_the_end_of_each_step():
    told = []
    memory_of(board(*GOOD)).start(lambda *step: told.append(step))
    steps = list(dict.fromkeys(step for step, _, _ in told))
    assert steps == ["initialisation", "read levelling", "data test", "address test"]
    for step in steps:
        done = [(one, total) for name, one, total in told if name == step]
        assert done == [(number, done[0][1]) for number in range(done[0][1] + 1)]
