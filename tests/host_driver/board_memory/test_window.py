"""The window finds its registers, refuses what it does not know, and tells what went wrong."""

import pytest

from stagecoach.host_driver import memory_registers as registers
from stagecoach.host_driver.board_memory.errors import MemoryControllerError, NoBoardMemory
from stagecoach.host_driver.board_memory.window import ControllerWindow
from stagecoach.host_driver.transport.base import DeviceClosed, TransportError
from stagecoach.hw.interface.sizes import MEMORY_ACCESSES
from stagecoach.sim.litedram.core import LiteDram, ReadsRight
from tests.host_driver.board_memory.fake_board import FakeBoard


@pytest.fixture
def device():
    return FakeBoard(LiteDram([[ReadsRight(0, 0, 7)]] * 2))


@pytest.fixture
def window(device):
    return ControllerWindow(device, device.sleep)


def test_a_device_without_a_memory(device):
    del device._values[registers.MEMORY_ID.address]
    with pytest.raises(NoBoardMemory, match="no memory of its own"):
        ControllerWindow(device)


@pytest.mark.parametrize("register", [registers.MEMORY_ID, registers.MEMORY_INTERFACE])
def test_another_interface_is_refused(device, register):
    device._values[register.address] ^= 1
    with pytest.raises(NoBoardMemory, match=r"MEMORY_ID 0x.*; allowed: 0x"):
        ControllerWindow(device)


@pytest.mark.parametrize("error", [DeviceClosed, TransportError])
def test_a_link_that_is_lost_is_no_missing_memory(device, monkeypatch, error):
    def read(_):
        raise error("it is gone")

    monkeypatch.setattr(device, "read", read)
    with pytest.raises(NoBoardMemory if error is TransportError else error):
        ControllerWindow(device)


def test_one_word_and_two(window, device):
    window.write("ddrphy_dly_sel", 3)
    assert window.read("ddrphy_dly_sel") == 3
    window.write("sdram_dfii_pi1_wrdata", 0x0123456789ABCDEF)
    assert device.core.values["sdram_dfii_pi1_wrdata"] == 0x0123456789ABCDEF
    assert window.read("sdram_dfii_pi1_wrdata") == 0x0123456789ABCDEF


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ddrphy_dly_sel", -1),
        ("ddrphy_dly_sel", 1 << 32),
        ("sdram_dfii_pi0_wrdata", 1 << 64),
        ("ddrphy_burstdet_seen", 0),
    ],
)
def test_a_value_that_no_register_takes_is_refused(window, device, name, value):
    with pytest.raises(ValueError, match="allowed"):
        window.write(name, value)
    assert not device.accesses


def test_writes_together_have_no_pause(window, device):
    times = []
    write = device.core.write
    device.core.write = lambda now, *access: (times.append(now), write(now, *access))
    with window.together("a sequence"):
        for _ in range(MEMORY_ACCESSES):
            window.write("ddrphy_dly_sel", 0)
        assert not times
    assert len(times) == MEMORY_ACCESSES
    assert times[-1] - times[0] < 10 * MEMORY_ACCESSES


def test_too_many_together_are_told_and_the_window_goes_on(window, device):
    with pytest.raises(MemoryControllerError, match=r"a sequence: .* more than 16 accesses"):
        with window.together("a sequence"):
            for _ in range(MEMORY_ACCESSES + 1):
                window.write("ddrphy_dly_sel", 1)
    assert not device.accesses
    assert window.read("ddrphy_dly_sel") == 0


def test_an_error_in_the_block_lets_go(window, device):
    with pytest.raises(KeyError), window.together("a sequence"):
        window.write("no_such_register", 1)
    window.write("ddrphy_dly_sel", 1)
    assert window.read("ddrphy_dly_sel") == 1


def test_a_write_that_failed_is_told_by_the_next_read(device):
    device._fails = lambda number: "error" if number == 1 else None
    window = ControllerWindow(device)
    window.write("ddrphy_dly_sel", 1)
    with pytest.raises(MemoryControllerError, match="ddrctrl_init_done: the memory controller ans"):
        window.read("ddrctrl_init_done")
    assert window.read("ddrphy_dly_sel") == 0
    window.wait(0)
