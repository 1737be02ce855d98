"""Queued accesses are made in order or dropped with an error, and the register port never hangs."""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from stagecoach.gateware.wishbone.ports import ADDRESS_BITS
from stagecoach.gateware.wishbone.window import WishboneWindow
from stagecoach.host_driver import memory_registers as registers
from stagecoach.host_driver.registers import Register
from stagecoach.hw.interface.sizes import MEMORY_ACCESSES
from stagecoach.sim.cosim.streams import seeded_random
from tests.registers.axi_lite import OKAY, SLVERR, RegisterMaster
from tests.support.runner import parameter, run_cocotb
from tests.wishbone.slave import Answer, Slave

LIMIT_CYCLES = 200
LARGEST = (1 << ADDRESS_BITS) - 1
WORD = (1 << 32) - 1


@pytest.mark.parametrize("period_ns", [10, 7, 23])
def test_wishbone_window(period_ns: float) -> None:
    parameters = {"PERIOD_NS": str(period_ns)}
    run_cocotb(WishboneWindow(LIMIT_CYCLES), __name__, parameters=parameters)


class Bench:
    def __init__(self, dut: Any):
        self.dut = dut
        self.slave = Slave(dut, "slave", float(parameter("PERIOD_NS")))
        self._master = RegisterMaster(dut, seeded_random(), pauses=False)

    async def start(self) -> "Bench":
        await self.slave.start()
        return self

    async def write(self, register: Register, **fields: int) -> None:
        assert await self._master.write(register.address, register.pack(**fields)) == OKAY

    async def read(self, register: Register) -> dict[str, int]:
        word, response = await self._master.read(register.address)
        assert response == OKAY
        return register.unpack(word)

    async def queue(self, word: int, value: int | None = None) -> None:
        await self.write(registers.MEMORY_ADDRESS, word=word)
        if value is None:
            await self.write(registers.MEMORY_READ, start=1)
        else:
            await self.write(registers.MEMORY_WRITE, value=value)

    async def idle(self) -> dict[str, int]:
        """Waits until nothing is under way; returns the errors."""
        for _ in range(MEMORY_ACCESSES * LIMIT_CYCLES // 4):
            if not (await self.read(registers.MEMORY_STATUS))["busy"]:
                return await self.read(registers.MEMORY_ERRORS)
        raise AssertionError("it stays busy")

    async def value(self) -> int:
        return (await self.read(registers.MEMORY_VALUE))["value"]

    async def clear(self) -> None:
        await self.write(registers.MEMORY_ERRORS, error=1, late=1, overrun=1)


NONE = {"error": 0, "late": 0, "overrun": 0}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_reads_and_writes_of_every_word(dut: Any) -> None:
    bench = await Bench(dut).start()
    assert (await bench.read(registers.MEMORY_ID))["magic"] == registers.MEMORY_ID.constant
    for word in (0, 1, LARGEST):
        for value in (0, WORD, 0x12345678):
            bench.slave.answers.extend([Answer(WORD), Answer(value, 2)])
            await bench.queue(word, value)
            assert await bench.idle() == NONE
            await bench.queue(word)
            assert await bench.idle() == NONE
            assert await bench.value() == value
            bench.slave.answers.append(Answer(~value & WORD))
            await bench.queue(word, value)
            assert await bench.idle() == NONE
            assert await bench.value() == value  # a write changes nothing of it
            write = (1, word, value)
            assert bench.slave.asked[-3:] == [write, (0, word, None), write]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_slow_slave_makes_the_host_wait_and_loses_nothing(dut: Any) -> None:
    bench = await Bench(dut).start()
    numbers = range(3 * MEMORY_ACCESSES)
    bench.slave.answers.extend([Answer(0, 20)] * len(numbers))
    for number in numbers:
        await bench.queue(number, number)
    assert await bench.idle() == NONE
    assert bench.slave.asked == [(1, number, number) for number in numbers]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_held_accesses_begin_together(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.slave.answers.extend([Answer(number, 0) for number in range(MEMORY_ACCESSES)])
    await bench.write(registers.MEMORY_HOLD, hold=1)
    for number in range(MEMORY_ACCESSES):
        await bench.queue(number, None if number % 2 else number)
    await ClockCycles(dut.clk, LIMIT_CYCLES)
    assert not bench.slave.asked
    assert (await bench.read(registers.MEMORY_STATUS))["busy"]
    await bench.write(registers.MEMORY_HOLD)
    # One after the other, 13 cycles of both clocks each or fewer
    both = 13 * (1 + bench.slave.period_ns / 10) / 2
    await ClockCycles(dut.clk, int(MEMORY_ACCESSES * both) + 4)
    assert len(bench.slave.asked) == MEMORY_ACCESSES
    assert await bench.idle() == NONE
    numbers = range(MEMORY_ACCESSES)
    assert bench.slave.asked == [(0, n, None) if n % 2 else (1, n, n) for n in numbers]
    assert await bench.value() == MEMORY_ACCESSES - 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_one_too_many_while_held_is_an_overrun_and_none_is_made(dut: Any) -> None:
    bench = await Bench(dut).start()
    for extra in (1, 3):
        await bench.write(registers.MEMORY_HOLD, hold=1)
        for number in range(MEMORY_ACCESSES + extra):
            await bench.queue(number, number)
        assert await bench.idle() == NONE | {"overrun": 1}
        await bench.write(registers.MEMORY_HOLD)
        await bench.clear()
        assert await bench.idle() == NONE
        assert not bench.slave.asked
    bench.slave.answers.append(Answer(5))
    await bench.queue(9)
    assert await bench.idle() == NONE and await bench.value() == 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_an_overrun_while_an_access_is_under_way(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.slave.answers.append(Answer(7, None))
    await bench.queue(3)
    await bench.write(registers.MEMORY_HOLD, hold=1)
    for _ in range(MEMORY_ACCESSES):
        await bench.write(registers.MEMORY_WRITE, value=1)
    assert (await bench.read(registers.MEMORY_ERRORS))["overrun"]
    bench.slave.let_go.set()
    assert (await bench.idle())["overrun"]
    await bench.write(registers.MEMORY_HOLD)
    await bench.clear()
    assert await bench.idle() == NONE
    assert bench.slave.asked == [(0, 3, None)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_nothing_is_made_after_what_failed(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.slave.answers.extend([Answer(1), Answer(2, 0), Answer(3, 0, error=True)])
    await bench.write(registers.MEMORY_HOLD, hold=1)
    for number in range(6):
        await bench.queue(number)
    await bench.write(registers.MEMORY_HOLD)
    assert await bench.idle() == NONE | {"error": 1}
    await bench.queue(7, 7)  # nor while the bit is set
    assert await bench.idle() == NONE | {"error": 1}
    assert bench.slave.asked == [(0, number, None) for number in range(3)]
    await bench.clear()
    bench.slave.answers.append(Answer(4))
    await bench.queue(8)
    assert await bench.idle() == NONE and await bench.value() == 4
    assert bench.slave.asked[3:] == [(0, 8, None)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_slave_that_never_answers(dut: Any) -> None:
    bench = await Bench(dut).start()
    bench.slave.answers.extend([Answer(1), Answer(2, None)])
    await bench.queue(0)
    for number in range(1, 3 * MEMORY_ACCESSES):
        await bench.queue(number)
    assert await bench.idle() == NONE | {"late": 1}
    await bench.clear()
    await bench.queue(5, 5)
    assert await bench.idle() == NONE | {"late": 1}
    assert bench.slave.asked == [(0, 0, None), (0, 1, None)]
    assert await bench.value() == 1
    # Meanwhile all other registers answer.
    assert await bench._master.write(registers.MEMORY_ID.address, 0) == SLVERR
    bench.slave.let_go.set()
    await bench.clear()
    bench.slave.answers.append(Answer(3))
    await ClockCycles(dut.clk, 50)
    await bench.queue(6)
    assert await bench.idle() == NONE and await bench.value() == 3


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_a_reset_empties_the_queue(dut: Any) -> None:
    bench = await Bench(dut).start()
    await bench.write(registers.MEMORY_HOLD, hold=1)
    for number in range(5):
        await bench.queue(number, number)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 16)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 50)
    assert await bench.idle() == NONE
    assert not bench.slave.asked
