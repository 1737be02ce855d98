"""Registers and commands of a network: one command at a time."""

import time
from collections.abc import Callable

from stagecoach.host_driver import network_registers as registers
from stagecoach.host_driver.network_registers import NetworkOpcode
from stagecoach.host_driver.registers import Register
from stagecoach.host_driver.transport.base import TransportError, TransportTimeout
from stagecoach.host_driver.transport.network import NetworkHost

COMMAND_SECONDS = 10.0
"""Of the wall's time, for which a command may take."""


class NetworkCommands:
    """Registers by name, and the command mailbox. All calls are under one lock of the caller.

    Parameters
    ----------
    meanwhile: is called while a command is under way. seconds: for which one may take.
    """

    def __init__(
        self,
        host: NetworkHost,
        meanwhile: Callable[[], None] = lambda: None,
        seconds: float = COMMAND_SECONDS,
    ):
        self._host = host
        self._meanwhile = meanwhile
        self._seconds = seconds
        self._unfinished: NetworkOpcode | None = None

    def read(self, register: Register) -> dict[str, int]:
        """The fields of a register."""
        return register.unpack(self._host.read_register(register.address))

    def write(self, register: Register, **fields: int) -> None:
        """Write a register; fields that are not named are 0."""
        self._host.write_register(register.address, register.pack(**fields))

    def write_wide(self, low: Register, high: Register, value: int) -> None:
        """Write a value to two registers."""
        self.write(low, value=value & 0xFFFFFFFF)
        self.write(high, value=value >> 32)

    @property
    def idle(self) -> bool:
        """Whether no command is under way: false only after one that was too late."""
        if self._unfinished is not None and not self.read(registers.NETWORK_COMMAND_STATUS)["busy"]:
            self._unfinished = None
        return self._unfinished is None

    def require_idle(self) -> None:
        """Wait for a command that was too late, before its arguments are written over.

        Raises `TransportTimeout` if it does not end.
        """
        if self._unfinished is not None:
            self._wait(self._unfinished, lambda: False)
            self._unfinished = None

    def run(self, opcode: NetworkOpcode, is_late: Callable[[], bool] = lambda: False) -> None:
        """Run a command to its end; its arguments are in the staging registers.

        Raises `TransportError` if the device refuses it, and `TransportTimeout` if it takes longer
        than any command may, or `is_late` says so. It goes on then.
        """
        if not self.accepts(opcode, is_late):
            raise TransportError(
                f"the device refused network command {opcode}, {opcode.name}: invalid argument"
            )

    def accepts(self, opcode: NetworkOpcode, is_late: Callable[[], bool] = lambda: False) -> bool:
        """As `run`, but returns whether the device has taken it."""
        self.write(registers.NETWORK_COMMAND, opcode=opcode)
        self._unfinished = opcode
        status = self._wait(opcode, is_late)
        self._unfinished = None
        return not status["invalid"]

    def _wait(self, opcode: NetworkOpcode, is_late: Callable[[], bool]) -> dict[str, int]:
        end = time.monotonic() + self._seconds
        while True:
            late = is_late() or time.monotonic() >= end
            status = self.read(registers.NETWORK_COMMAND_STATUS)
            if not status["busy"]:
                return status
            if late:
                raise TransportTimeout(
                    f"network command {opcode}, {opcode.name}, is not finished: "
                    "NETWORK_COMMAND_STATUS.busy is 1"
                )
            self._meanwhile()
