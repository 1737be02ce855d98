"""The driver starts a memory through the window of the gateware, with LiteDRAM's model behind it.

The model counts cycles of its clock, so this is where the accesses of a burst must follow each
other as closely, and as far apart, as the memory demands.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from amaranth.sim import Simulator

from stagecoach.gateware.wishbone.window import WishboneWindow
from stagecoach.host_driver.board_memory.bursts import Bursts
from stagecoach.host_driver.board_memory.errors import MemoryControllerError, Place
from stagecoach.host_driver.board_memory.levelling import ALL_LANES
from stagecoach.host_driver.board_memory.memory import BoardMemory
from stagecoach.host_driver.board_memory.window import ControllerWindow
from stagecoach.host_driver.registers import Register
from stagecoach.hw.interface.litedram import USER_CLOCK_HZ
from stagecoach.sim.litedram.core import LiteDram, ReadsRight

GOOD = ([ReadsRight(1, 2, 5)], [ReadsRight(2, 1, 5)])


class SimulatedBoard:
    """Registers of a window that is simulated, cycle by cycle, while somebody waits for one.

    sync_hz: of the device. answers: whether the core acknowledges.
    """

    def __init__(self, core: LiteDram, sync_hz: int, answers: Callable[[], bool] = lambda: True):
        self._core, self._answers = core, answers
        self._slept = 0
        self._window = WishboneWindow()
        self._job: tuple[int, int | None] | None = None
        self._value = 0
        self._simulator = simulator = Simulator(self._window)
        simulator.add_clock(1 / sync_hz)
        simulator.add_clock(1 / USER_CLOCK_HZ, domain="wishbone")
        simulator.add_testbench(self._host, background=True)
        simulator.add_testbench(self._slave, background=True)

    def sleep(self, seconds: float) -> None:
        self._slept += round(seconds * USER_CLOCK_HZ)

    def read(self, register: Register) -> dict[str, int]:
        return register.unpack(self._run(register.address, None))

    def write(self, register: Register, **fields: int) -> None:
        self._run(register.address, register.pack(**fields))

    def _run(self, address: int, value: int | None) -> int:
        self._job = address, value
        while self._job is not None:
            self._simulator.advance()
        return self._value

    async def _host(self, context: Any) -> None:
        bus = self._window.bus
        while True:
            await context.tick()
            if self._job is None:
                continue
            address, value = self._job
            if value is None:
                context.set(bus.araddr, address)
                context.set(bus.arvalid, 1)
                await context.tick().until(bus.arready)
                context.set(bus.arvalid, 0)
                context.set(bus.rready, 1)
                self._value, response = (
                    await context.tick().sample(bus.rdata, bus.rresp).until(bus.rvalid)
                )
                context.set(bus.rready, 0)
            else:
                context.set(bus.awaddr, address)
                context.set(bus.wdata, value)
                context.set(bus.wstrb, 0xF)
                context.set(bus.awvalid, 1)
                context.set(bus.wvalid, 1)
                await context.tick().until(bus.awready & bus.wready)
                context.set(bus.awvalid, 0)
                context.set(bus.wvalid, 0)
                context.set(bus.bready, 1)
                (response,) = await context.tick().sample(bus.bresp).until(bus.bvalid)
                context.set(bus.bready, 0)
            assert response == 0
            self._job = None

    async def _slave(self, context: Any) -> None:
        """Acknowledges in the cycle after that in which it is asked, as LiteX' bridge to CSRs."""
        slave, cycle = self._window.slave, 0
        async for _, _, asked in context.tick("wishbone").sample(slave.cyc & slave.stb):
            cycle += 1
            now = cycle + self._slept
            if context.get(slave.ack):
                context.set(slave.ack, 0)
            elif asked and self._answers():
                address = context.get(slave.adr) * 4
                if context.get(slave.we):
                    self._core.write(now, address, context.get(slave.dat_w))
                else:
                    context.set(slave.dat_r, self._core.read(now, address))
                context.set(slave.ack, 1)


@pytest.mark.parametrize("sync_hz", [50_000_000, 156_250_000])
def test_bursts_keep_the_timing_of_the_memory(sync_hz):
    core = LiteDram([[ReadsRight(0, 0, 7)]] * 2)
    device = SimulatedBoard(core, sync_hz)
    bursts = Bursts(ControllerWindow(device, device.sleep))
    bursts.initialise()
    places = [Place(0, 0, 0), Place(7, 0x7FFF, 0x3F8), Place(0, 1, 0), Place(0, 0, 8)]
    written = [bytes(range(16 * number, 16 * number + 16)) for number in range(len(places))]
    for place, octets in zip(places, written, strict=True):
        bursts.write(place, octets)
    for place, octets in zip(places, written, strict=True):
        assert bursts.read(place) == (octets, ALL_LANES)
    assert not core.chip.violations


@pytest.mark.slow
def test_the_memory_starts():
    core = LiteDram(GOOD)
    device = SimulatedBoard(core, 50_000_000)
    margins = BoardMemory(device, device.sleep).start()
    assert [lane.chosen.width for lane in margins.lanes] == [4, 5]
    assert core.values["ddrctrl_init_done"]
    assert not core.chip.violations


def test_a_core_that_stops_to_acknowledge_is_told():
    left = [50]

    def answers():
        left[0] -= 1
        return left[0] > 0

    device = SimulatedBoard(LiteDram(GOOD), 62_500_000, answers)
    begin = time.monotonic()
    with pytest.raises(MemoryControllerError, match="does not answer: no clock, or it hangs"):
        BoardMemory(device, device.sleep).start()
    assert time.monotonic() - begin < 60
    # All accesses of the host are answered, also now.
    with pytest.raises(MemoryControllerError, match="does not answer"):
        BoardMemory(device, device.sleep).start()
