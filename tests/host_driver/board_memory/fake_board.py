"""Registers of a board with a memory, as `hw/interface/memory.rdl` describes them, and time."""

from collections.abc import Callable

from stagecoach.host_driver import memory_registers as registers
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.transport.base import TransportError
from stagecoach.hw.interface.litedram import USER_CLOCK_HZ
from stagecoach.hw.interface.sizes import MEMORY_ACCESSES
from stagecoach.sim.litedram.core import LiteDram

HOST_CYCLES = 10_000
"""133 us."""

ACCESS_CYCLES = 6
"""The least that an access of the window takes."""


class FakeBoard:
    """A window as quick as one can be, before a core.

    Parameters
    ----------
    core: what is behind it. host_cycles: of `user_clk`, that an access of the host takes.
    fails: tells for the number of an access whether it fails, and how: a field of MEMORY_ERRORS.
    """

    def __init__(
        self,
        core: LiteDram,
        fails: Callable[[int], str | None] = lambda _: None,
        host_cycles: int = HOST_CYCLES,
    ):
        self.core = core
        self._host_cycles = host_cycles
        self.now = 0
        self.host_accesses = self.accesses = 0
        self.is_stuck = False
        self._fails = fails
        self._queue: list[tuple[int, int | None]] = []
        self._values = {
            register.address: register.constant or 0
            for register in vars(registers).values()
            if isinstance(register, Register)
        }

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * USER_CLOCK_HZ)

    def read(self, register: Register) -> dict[str, int]:
        self._pass()
        if register.address not in self._values:
            raise TransportError("the device answers with an error response")
        value = self._values[register.address]
        if register is registers.MEMORY_STATUS:
            value = int(bool(self._queue) or self.is_stuck)
        return register.unpack(value)

    def write(self, register: Register, **fields: int) -> None:
        self._pass()
        value = register.pack(**fields)
        address = self._values[registers.MEMORY_ADDRESS.address]
        if register is registers.MEMORY_ERRORS:
            self._values[register.address] &= ~value
        elif register is registers.MEMORY_WRITE:
            self._take(address, value)
        elif register is registers.MEMORY_READ:
            self._take(address, None)
        else:
            self._values[register.address] = value
        self._go_on()

    def _pass(self) -> None:
        self.now += self._host_cycles
        self.host_accesses += 1

    def _take(self, address: int, value: int | None) -> None:
        if len(self._queue) == MEMORY_ACCESSES:
            self._fail("overrun")
        else:
            self._queue.append((address, value))

    def _fail(self, field: str) -> None:
        self._values[registers.MEMORY_ERRORS.address] |= registers.MEMORY_ERRORS.pack(**{field: 1})

    def _go_on(self) -> None:
        if self._values[registers.MEMORY_HOLD.address]:
            return
        for address, value in self._queue:
            if self._values[registers.MEMORY_ERRORS.address]:
                break
            self.now += ACCESS_CYCLES
            self.accesses += 1
            failure = self._fails(self.accesses)
            if failure is not None:
                self._fail(failure)
            elif value is not None:
                self.core.write(self.now, address, value)
            else:
                found = self.core.read(self.now, address)
                self._values[registers.MEMORY_VALUE.address] = found
        self._queue.clear()
