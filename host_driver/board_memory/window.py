"""The registers of a memory controller by name, through the window of the device."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from stagecoach.host_driver import memory_registers as registers
from stagecoach.host_driver.board_memory.errors import MemoryControllerError, NoBoardMemory
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.transport.base import DeviceClosed, TransportError, TransportTimeout
from stagecoach.hw.interface.litedram import REGISTERS, USER_CLOCK_HZ
from stagecoach.hw.interface.sizes import MEMORY_ACCESSES

BUSY_SECONDS = 2.0
"""For which the queue may be busy: the device itself gives up an access after microseconds."""


class RegisterAccess(Protocol):
    """Registers of a device by name, as a `Device` has them."""

    def read(self, register: Register) -> dict[str, int]:
        """The fields of a register."""

    def write(self, register: Register, **fields: int) -> None:
        """Write a register; fields that are not named are 0."""


class ControllerWindow:
    """Reads and writes registers of the controller, in order.

    Writes are queued in the device. What goes wrong with one is told by the next `read`, `together`
    or `wait`; nothing that was asked for after it was done. All waits are bounded.

    Parameters
    ----------
    device: its registers. sleep: waits so many seconds. busy_seconds: for which the queue may be
        busy.
    """

    def __init__(
        self,
        device: RegisterAccess,
        sleep: Callable[[float], None] = time.sleep,
        busy_seconds: float = BUSY_SECONDS,
    ):
        self._device = device
        self._sleep = sleep
        self._busy_seconds = busy_seconds
        self._identify()
        self._forget_errors()

    def _identify(self) -> None:
        try:
            magic = self._device.read(registers.MEMORY_ID)["magic"]
        except (DeviceClosed, TransportTimeout):
            raise
        except TransportError as error:
            raise NoBoardMemory("the device has no memory of its own (no MEMORY_ID)") from error
        digest = self._device.read(registers.MEMORY_INTERFACE)["digest"]
        known = registers.MEMORY_ID.constant, registers.MEMORY_INTERFACE.constant
        if (magic, digest) != known:
            raise NoBoardMemory(
                f"the device has MEMORY_ID 0x{magic:08X} and MEMORY_INTERFACE 0x{digest:08X}; "
                f"allowed: 0x{known[0]:08X} and 0x{known[1]:08X}"
            )

    def write(self, name: str, value: int) -> None:
        """Queue the write of a register."""
        register = REGISTERS[name]
        if register.read_only or not 0 <= value < 1 << 32 * register.words:
            allowed = "none" if register.read_only else f"{register.words} words of 32 bits"
            raise ValueError(f"{value:#x} for {name}; allowed: {allowed}")
        for number in reversed(range(register.words)):
            address = register.address + 4 * (register.words - 1 - number)
            self._device.write(registers.MEMORY_ADDRESS, word=address >> 2)
            word = value >> 32 * number & 0xFFFFFFFF
            self._device.write(registers.MEMORY_WRITE, value=word)

    def read(self, name: str) -> int:
        """The value of a register. Raises `MemoryControllerError`."""
        register = REGISTERS[name]
        value = 0
        for number in range(register.words):
            self._device.write(registers.MEMORY_ADDRESS, word=(register.address >> 2) + number)
            self._device.write(registers.MEMORY_READ, start=1)
            self._finish(name)
            value = value << 32 | self._device.read(registers.MEMORY_VALUE)["value"]
        return value

    @contextmanager
    def together(self, name: str) -> Iterator[None]:
        """Have the writes in the block made one right after the other, when it ends.

        There may be `MEMORY_ACCESSES` of them. name: of what they do, for errors. Raises
        `MemoryControllerError`.
        """
        self._finish(name)  # what was queued before has its places
        self._device.write(registers.MEMORY_HOLD, hold=1)
        try:
            yield
        finally:
            self._device.write(registers.MEMORY_HOLD)
        self._finish(name)

    def wait(self, cycles: int) -> None:
        """Let cycles of `user_clk` pass after all that was queued. Raises as `read` does."""
        self._finish("all that was written")
        self._sleep(cycles / USER_CLOCK_HZ)

    def _finish(self, name: str) -> None:
        end = time.monotonic() + self._busy_seconds
        while self._device.read(registers.MEMORY_STATUS)["busy"]:
            if time.monotonic() >= end:
                raise MemoryControllerError(
                    f"{name}: MEMORY_STATUS.busy is 1 for {self._busy_seconds:g} s"
                )
        errors = self._device.read(registers.MEMORY_ERRORS)
        if not any(errors.values()):
            return
        self._forget_errors()
        words = {
            "error": "answers an access with an error",
            "late": "does not answer: no clock, or it hangs",
            "overrun": f"was given more than {MEMORY_ACCESSES} accesses at once",
        }
        told = ", ".join(words[each] for each, is_set in errors.items() if is_set)
        raise MemoryControllerError(f"{name}: the memory controller {told}")

    def _forget_errors(self) -> None:
        self._device.write(registers.MEMORY_ERRORS, error=1, late=1, overrun=1)
